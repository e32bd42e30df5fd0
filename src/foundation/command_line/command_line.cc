// SPDX-License-Identifier: Apache-2.0
//
// Each method passes one call to CLI11, whose headers take long to compile and are included nowhere
// else. Templates are instantiated here for the types that options have. CLI11 throws; parse()
// turns that into a Status, and replaces messages that would mislead: for a misspelt option CLI11
// may report that another one is missing.
#include "command_line/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <map>
#include <string_view>

#include "base/log.h"
#include "command_line/nearest.h"

namespace wideep::command_line {

// What CLI11 does not keep, or keeps as text for people only.
struct Marks {
  struct Mark {
    ValueKind kind = ValueKind::kText;
    std::vector<std::string> choices;
    std::string range;
  };
  std::map<const CLI::Option*, Mark> of;

  // An option's value that may be given without its name.
  struct Positional {
    CLI::Option* option = nullptr;  // --model
    CLI::Option* positional = nullptr;
    bool is_required = false;  // one of both
    std::string text;          // given as the positional
  };
  std::map<const CLI::App*, std::deque<Positional>> positionals;  // of commands; addresses stay

  bool is_required(const CLI::Option& option) const {
    for (const auto& [command, list] : positionals) {
      for (const Positional& each : list) {
        if (each.option == &option) return each.is_required;
      }
    }
    return option.get_required();
  }
};

namespace {

// The names of --help: without the types of the checks, which CLI11 appends after a colon.
std::string value_name_of(const CLI::Option& option) {
  const std::string name = option.get_type_name();
  return name.substr(0, name.find(':'));
}

OptionFacts facts_of(const CLI::Option& option, const Marks& marks) {
  OptionFacts facts;
  if (option.get_positional()) facts.names.push_back(option.get_name(/*positional=*/true));
  for (const std::string& name : option.get_lnames()) facts.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) facts.names.push_back("-" + name);
  facts.description = option.get_description();
  facts.takes_value = option.get_items_expected_max() > 0;
  facts.is_required = marks.is_required(option);
  if (facts.takes_value) {
    facts.value_name = value_name_of(option);
    facts.default_text = option.get_default_str();
    facts.is_repeatable = option.get_expected_max() > 1;
  }
  const auto mark = marks.of.find(&option);
  if (mark == marks.of.end()) return facts;
  facts.kind = mark->second.kind;
  facts.choices = mark->second.choices;
  facts.range = mark->second.range;
  return facts;
}

// path: of the command around it.
CommandFacts facts_of(const CLI::App& app, const Marks& marks, std::vector<std::string> path) {
  CommandFacts facts;
  path.push_back(app.get_name());
  facts.path = path;
  facts.aliases = app.get_aliases();
  facts.description = app.get_description();
  facts.needs_command = app.get_require_subcommand_min() > 0;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    std::vector<OptionFacts>& list = option->get_positional() ? facts.positionals : facts.options;
    list.push_back(facts_of(*option, marks));
  }
  const auto is_shown = [](const CLI::App* command) { return !command->get_group().empty(); };
  for (const CLI::App* command : app.get_subcommands(is_shown)) {
    facts.commands.push_back(facts_of(*command, marks, path));
  }
  return facts;
}

// The facts of the command that the arguments have named last.
const CommandFacts& named_command(const CLI::App& app, const CommandFacts& facts) {
  for (const CLI::App* named : app.get_subcommands()) {
    for (const CommandFacts& each : facts.commands) {
      if (each.path.back() == named->get_name()) return named_command(*named, each);
    }
  }
  return facts;
}

// "-5" and "-.5" are numbers.
bool is_option(std::string_view argument) {
  constexpr std::string_view kBeginsNumber = "0123456789.";
  return argument.size() > 1 && argument[0] == '-' &&
         kBeginsNumber.find(argument[1]) == std::string_view::npos;
}

std::string suggestion(const std::string& name) {
  return name.empty() ? "" : fmt::format("did you mean {}?", name);
}

std::string nearest_option(const std::string& word, const CommandFacts& command) {
  std::vector<std::string> names;
  for (const OptionFacts& option : command.options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return suggestion(nearest(word, names));
}

// Also one of the commands within: "plan" for `balance plan`.
std::string nearest_command(const std::string& word, const CommandFacts& command) {
  std::vector<std::string> names;
  for (const CommandFacts& each : command.commands) {
    names.push_back(each.path.back());
    names.insert(names.end(), each.aliases.begin(), each.aliases.end());
  }
  const std::string near = nearest(word, names);
  if (!near.empty()) return suggestion(near);
  for (const CommandFacts& group : command.commands) {
    for (const CommandFacts& each : group.commands) {
      if (each.path.back() == word) return suggestion(group.path.back() + " " + word);
    }
  }
  return "";
}

std::string line_of(const char* kind, const std::string& word, const std::string& hint) {
  return fmt::format("unknown {} {}{}{}", kind, word, hint.empty() ? "" : ": ", hint);
}

// What to say of arguments that nothing takes. Options come first, since the other arguments may be
// their values.
std::string unknown_line(const std::vector<std::string>& unknown, const CommandFacts& command,
                         const Program::Hint& hint) {
  const auto hint_of = [&](const std::string& word) { return hint ? hint(word, command) : ""; };
  std::vector<std::string> lines;
  for (const std::string& argument : unknown) {
    if (!is_option(argument)) continue;
    const std::string name = argument.substr(0, argument.find('='));
    const std::string known = hint_of(name);
    lines.push_back(line_of("option", name, known.empty() ? nearest_option(name, command) : known));
  }
  if (!lines.empty()) return fmt::format("{}", fmt::join(lines, "; "));
  if (command.needs_command) {
    const std::string known = hint_of(unknown[0]);
    return line_of("command", fmt::format("'{}'", unknown[0]),
                   known.empty() ? nearest_command(unknown[0], command) : known);
  }
  return fmt::format("unexpected arguments: {}", fmt::join(unknown, " "));
}

// Takes the values that were given without the names of their options. Throws what CLI11's options
// throw.
void take_positionals(std::deque<Marks::Positional>& positionals) {
  for (Marks::Positional& each : positionals) {
    const std::string name = each.option->get_name();
    if (each.positional->count() == 0) {
      if (each.is_required && each.option->count() == 0) throw CLI::RequiredError(name);
      continue;
    }
    if (each.option->count() == 0) {
      each.option->add_result(each.text);
      each.option->run_callback();
    } else if (each.option->results().front() != each.text) {
      throw CLI::ValidationError(name,
                                 fmt::format("{} is given, and {} as {}: expected one of them",
                                             each.option->results().front(), each.text,
                                             each.positional->get_name(/*positional=*/true)));
    }
  }
}

}  // namespace

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}

Option& Option::hide() {
  option_->group("");
  return *this;
}

Option& Option::range(int min, int max) {
  option_->check(CLI::Range(min, max));
  marks_->of[option_].range = fmt::format("{} to {}", min, max);
  return *this;
}

Option& Option::range(uint64_t min, uint64_t max) {
  option_->check(CLI::Range(min, max));
  marks_->of[option_].range = fmt::format("{} to {}", min, max);
  return *this;
}

Option& Option::range(double min, double max) {
  option_->check(CLI::Range(min, max));
  marks_->of[option_].range = fmt::format("{} to {}", min, max);
  return *this;
}

Option& Option::positive() {
  option_->check(CLI::PositiveNumber);
  marks_->of[option_].range = "more than 0";
  return *this;
}

Option& Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  marks_->of[option_].range = "0 or more";
  return *this;
}

Option& Option::one_of(const std::vector<std::string>& names) {
  option_->check(CLI::IsMember(names));
  marks_->of[option_].choices = names;
  return *this;
}

Option& Option::check(std::string (*complaint)(const std::string& text)) {
  option_->check(complaint);
  return *this;
}

Option& Option::separate_values_by(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}

Option& Option::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Option& Option::path() {
  option_->type_name("PATH");
  marks_->of[option_].kind = ValueKind::kPath;
  return *this;
}

Option& Option::model() {
  option_->type_name("MODEL");
  marks_->of[option_].kind = ValueKind::kModel;
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& description) const {
  return {app_->add_subcommand(name, description), marks_};
}

void Command::add_alias(const std::string& name) const { app_->alias(name); }

void Command::require_command() const { app_->require_subcommand(1); }

void Command::hide() const { app_->group(""); }

template <OptionValue T>
Option Command::add_option(const std::string& names, T& variable,
                           const std::string& description) const {
  return {app_->add_option(names, variable, description), marks_};
}

// The template is instantiated here for each type of OptionValue, so that its users do not include
// CLI11.
template Option Command::add_option(const std::string&, int&, const std::string&) const;
template Option Command::add_option(const std::string&, int64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, uint64_t&, const std::string&) const;
template Option Command::add_option(const std::string&, float&, const std::string&) const;
template Option Command::add_option(const std::string&, double&, const std::string&) const;
template Option Command::add_option(const std::string&, std::string&, const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<int>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<int>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<int64_t>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<double>&,
                                    const std::string&) const;
template Option Command::add_option(const std::string&, std::optional<std::string>&,
                                    const std::string&) const;

Option Command::add_flag(const std::string& names, bool& variable,
                         const std::string& description) const {
  return {app_->add_flag(names, variable, description), marks_};
}

Option Command::add_choice(const std::string& names, const std::string& description,
                           const std::vector<std::string>& choices,
                           std::function<void(int)> choose) const {
  // CLI11 maps names to numbers and thereby checks them; the number selects the enum's value.
  std::map<std::string, int> numbers;
  for (size_t i = 0; i < choices.size(); ++i) numbers[choices[i]] = static_cast<int>(i);
  CLI::Option* option = app_->add_option_function<int>(
      names, [choose = std::move(choose)](int chosen) { choose(chosen); }, description);
  option->type_name("ENUM");
  option->transform(CLI::CheckedTransformer(numbers));
  marks_->of[option].choices = choices;
  return {option, marks_};
}

void Command::add_positional(const std::string& name, const Option& option) const {
  Marks::Positional& added = marks_->positionals[app_].emplace_back();
  added.option = option.option_;
  added.is_required = option.option_->get_required();
  option.option_->required(false);  // take_positionals() looks
  added.positional =
      app_->add_option(name, added.text, fmt::format("The same as {}", option.option_->get_name()));
  added.positional->type_name("");
  const auto mark = marks_->of.find(option.option_);
  if (mark != marks_->of.end()) marks_->of[added.positional] = mark->second;
}

std::vector<GivenOption> Command::given() const {
  std::vector<GivenOption> all;
  // take_positionals() has given its value to the option, which the user has not named.
  const auto is_by_position = [&](const CLI::Option* option) {
    const auto found = marks_->positionals.find(app_);
    return found != marks_->positionals.end() &&
           std::ranges::any_of(found->second, [&](const Marks::Positional& each) {
             return each.option == option && each.positional->count() > 0;
           });
  };
  for (const CLI::Option* option : app_->get_options()) {
    if (option->count() == 0 || is_by_position(option)) continue;
    GivenOption given;
    given.name = option->get_positional() ? option->get_name(/*positional=*/true)
                                          : "--" + option->get_lnames().at(0);
    if (option->get_items_expected_max() > 0) given.values = option->results();
    if (const char delimiter = option->get_delimiter(); delimiter != '\0') {
      given.values = {fmt::format("{}", fmt::join(given.values, std::string(1, delimiter)))};
    }
    all.push_back(std::move(given));
  }
  return all;
}

void Command::on_run(std::function<void()> run) const {
  app_->callback([app = app_, marks = marks_, run = std::move(run)] {
    const auto positionals = marks->positionals.find(app);
    if (positionals != marks->positionals.end()) take_positionals(positionals->second);
    run();
  });
}

Program::Program(const std::string& description, const std::string& name)
    : Command(nullptr, nullptr),
      owned_(std::make_unique<CLI::App>(description, name)),
      owned_marks_(std::make_unique<Marks>()) {
  app_ = owned_.get();
  marks_ = owned_marks_.get();
}

Program::~Program() = default;

void Program::set_version(const std::string& version) const {
  app_->set_version_flag("--version", version);
}

CommandFacts Program::facts() const { return facts_of(*app_, *marks_, {}); }

void Program::set_hint(Hint hint) { hint_ = std::move(hint); }

Result<bool> Program::parse(std::vector<std::string> arguments) {
  if (arguments.empty() && app_->get_require_subcommand_min() > 0) {
    app_->exit(CLI::CallForHelp());
    return false;
  }
  std::vector<std::string> from_the_back(arguments.rbegin(), arguments.rend());  // as CLI11 wants
  // Arguments that nothing takes are named before a missing option is, which may be one of them
  // misspelt.
  std::vector<std::string> unknown;
  try {
    app_->parse(std::move(from_the_back));
    return true;
  } catch (const CLI::Success& help_or_version) {
    // "-hf" would be read as "-h -f".
    std::ranges::copy_if(arguments, std::back_inserter(unknown), [](const std::string& argument) {
      return argument.size() > 2 && argument.starts_with("-h");
    });
    if (unknown.empty()) {
      app_->exit(help_or_version);
      return false;
    }
  } catch (const CLI::ParseError& error) {
    unknown = app_->remaining(true);
    const bool names_unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                               dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    if (unknown.empty() || !names_unknown) {
      return invalid_input(fmt::format("{} (see --help)", error.what()));
    }
  }
  const CommandFacts all = facts();
  return invalid_input(
      fmt::format("{} (see --help)", unknown_line(unknown, named_command(*app_, all), hint_)));
}

std::optional<int> Program::parse_main(int argc, char** argv) {
  const Result<bool> parsed = parse(std::vector<std::string>(argv + 1, argv + argc));
  if (!parsed.ok()) {
    log::error("{}", parsed.status().message());
    return parsed.status().exit_code();
  }
  return *parsed ? std::nullopt : std::optional(0);
}

}  // namespace wideep::command_line
