// SPDX-License-Identifier: Apache-2.0
//
// Each method passes one call to CLI11, whose headers take long to compile and are included nowhere
// else. Templates are instantiated here for the types that options have. CLI11 throws; parse()
// turns that into a Status, and mends messages that would mislead.
#include "command_line/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "base/log.h"

namespace wideep::command_line {

// What CLI11 does not keep, or keeps as text for people only.
struct Marks {
  struct Mark {
    ValueKind kind = ValueKind::kText;
    std::vector<std::string> choices;
    std::string range;
  };
  std::map<const CLI::Option*, Mark> of;
};

namespace {

// The message for the user. CLI11's own is replaced where it misleads: for a misspelt command it
// reports that a command is missing, and it lists unexpected arguments in reverse order.
std::string message_of(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining(true);
  if (unknown.empty()) return error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return fmt::format("unexpected arguments: {}", fmt::join(unknown, " "));
  }
  const bool misspelt =
      dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !unknown[0].starts_with("-");
  return misspelt ? fmt::format("unknown command '{}'", unknown[0]) : error.what();
}

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
  facts.is_required = option.get_required();
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

void Command::on_run(std::function<void()> run) const { app_->callback(std::move(run)); }

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

Result<bool> Program::parse(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes arguments from the back
  try {
    app_->parse(std::move(arguments));
  } catch (const CLI::Success& help_or_version) {
    app_->exit(help_or_version);
    return false;
  } catch (const CLI::ParseError& error) {
    return invalid_input(fmt::format("{} (see --help)", message_of(*app_, error)));
  }
  return true;
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
