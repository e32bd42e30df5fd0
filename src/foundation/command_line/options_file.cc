// SPDX-License-Identifier: Apache-2.0
#include "command_line/options_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/spelling.h"
#include "base/try.h"
#include "formats/yaml.h"

namespace wideep::command_line {
namespace {

// The command that the arguments begin with, and how many of them name it.
std::pair<const CommandFacts*, size_t> command_of(const CommandFacts& program,
                                                  const std::vector<std::string>& arguments) {
  const CommandFacts* command = &program;
  size_t count = 0;
  for (; count < arguments.size(); ++count) {
    const CommandFacts* next = find_command(*command, arguments[count]);
    if (next == nullptr) break;
    command = next;
  }
  return {command, count};
}

// What the command line says of a command.
struct Given {
  std::set<const OptionFacts*> options;
  std::vector<std::string> files;  // of --options-file
};

Given given_in(const CommandFacts& command, const std::vector<std::string>& arguments,
               size_t begin) {
  Given given;
  for (size_t i = begin; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t sign = argument.starts_with("--") ? argument.find('=') : argument.npos;
    const OptionFacts* option = find_option(command, argument.substr(0, sign));
    if (option == nullptr) {
      // A model without the name of its option.
      const bool is_positional = !argument.starts_with('-') && !command.positionals.empty();
      for (const OptionFacts& each : command.options) {
        const bool is_same =
            each.kind == ValueKind::kModel && command.positionals.front().kind == ValueKind::kModel;
        if (is_positional && is_same) given.options.insert(&each);
      }
      continue;
    }
    given.options.insert(option);
    std::string value = sign == argument.npos ? "" : argument.substr(sign + 1);
    if (option->takes_value && sign == argument.npos && i + 1 < arguments.size()) {
      value = arguments[++i];
    }
    if (option->names.front() == OptionsFile::kOption) given.files.push_back(value);
  }
  return given;
}

// Keys of the file.
std::vector<std::string> keys_of(const CommandFacts& command) {
  std::vector<std::string> keys;
  for (const OptionFacts& option : command.options) {
    for (const std::string& name : option.names) {
      const bool is_own = name == OptionsFile::kOption || name == "--help" || name == "--version";
      if (name.starts_with("--") && !is_own) keys.push_back(name.substr(2));
    }
  }
  return keys;
}

// The arguments that a member of the file stands for.
std::vector<std::string> arguments_of(formats::YamlMap& root, const std::string& key,
                                      const OptionFacts& option, const std::string& name) {
  if (!option.takes_value) {
    if (!root.has(key)) root.complain(key, "expected true or false, found nothing");
    return root.boolean_or(key, false) ? std::vector<std::string>{name}
                                       : std::vector<std::string>();
  }
  std::vector<std::string> values = root.texts(key);
  if (values.size() != 1 && !option.is_repeatable) {  // the first complaint holds
    root.complain(key, fmt::format("expected one value, found {}", values.size()));
  }
  std::vector<std::string> arguments;
  for (std::string& value : values) {
    // A value may begin with a dash; one that is empty can only be an argument of its own.
    if (value.empty()) {
      arguments.insert(arguments.end(), {name, ""});
    } else {
      arguments.push_back(fmt::format("{}={}", name, value));
    }
  }
  return arguments;
}

}  // namespace

Result<OptionsFile> OptionsFile::expand(const CommandFacts& program,
                                        std::vector<std::string> arguments) {
  OptionsFile result;
  result.arguments_ = std::move(arguments);
  const auto [command, begin] = command_of(program, result.arguments_);
  if (find_option(*command, kOption) == nullptr) return result;
  const Given given = given_in(*command, result.arguments_, begin);
  if (given.files.empty()) return result;
  if (given.files.size() > 1) {
    return invalid_input(
        fmt::format("{}: expected one file, found {}", kOption, given.files.size()));
  }
  result.path_ = given.files.front();
  auto document = formats::YamlDocument::read(result.path_);
  WIDEEP_TRY(document.status().at(kOption));
  formats::YamlMap root = document->root();
  const std::vector<std::string> known = keys_of(*command);
  std::set<const OptionFacts*> seen;
  for (const std::string& key : root.keys()) {
    std::string spelled = key;
    std::ranges::replace(spelled, '_', '-');
    const std::string name = "--" + spelled;
    if (std::ranges::find(known, spelled) == known.end()) {
      root.complain(key, fmt::format("no option of {}{}", fmt::join(command->path, " "),
                                     base::did_you_mean(spelled, known)));
      break;
    }
    const OptionFacts* option = find_option(*command, name);
    if (!seen.insert(option).second) root.complain(key, "given twice, under two names");
    const std::vector<std::string> added = arguments_of(root, key, *option, name);
    if (given.options.contains(option)) continue;
    result.names_.push_back(name);
    result.arguments_.insert(result.arguments_.end(), added.begin(), added.end());
  }
  WIDEEP_TRY(document->status());
  return result;
}

std::string OptionsFile::explain(const std::string& message) const {
  for (const std::string& name : names_) {
    // Not of an option whose name begins like it.
    const size_t end = name.size();
    const bool is_of_it = message.starts_with(name) &&
                          (message.size() == end || message[end] == ':' || message[end] == ' ');
    if (is_of_it) return fmt::format("{}: {}", path_, message);
  }
  return message;
}

}  // namespace wideep::command_line
