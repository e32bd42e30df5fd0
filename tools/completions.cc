// SPDX-License-Identifier: Apache-2.0
//
// Each script has the tables of all commands, and a few functions that are the same for every
// program but for its name. What a description says to a person (quotes, brackets, colons) is
// escaped or left out where the shell would read it.
#include "completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace wideep::tools {
namespace {

using command_line::CommandFacts;
using command_line::OptionFacts;
using command_line::ValueKind;

constexpr size_t kMaxSummary = 72;

// The command and all below it, parents first.
void collect(const CommandFacts& command, std::vector<const CommandFacts*>* all) {
  all->push_back(&command);
  for (const CommandFacts& each : command.commands) collect(each, all);
}

std::vector<const CommandFacts*> all_commands(const CommandFacts& program) {
  std::vector<const CommandFacts*> all;
  collect(program, &all);
  return all;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  return fmt::format("{}", fmt::join(words, between));
}

// The first part of a description, short enough for one line of a list, without `refused`.
std::string summary(std::string_view text, std::string_view refused) {
  text = text.substr(0, std::min({text.find(": "), text.find("; "), text.find(" ("),
                                  text.find(". "), text.size()}));
  if (text.size() > kMaxSummary) text = text.substr(0, text.rfind(' ', kMaxSummary));
  std::string result;
  for (const char each : text) {
    if (refused.find(each) == std::string_view::npos) result += each;
  }
  return result;
}

std::vector<std::string> names_of(const CommandFacts& command) {
  std::vector<std::string> names = {command.path.back()};
  names.insert(names.end(), command.aliases.begin(), command.aliases.end());
  return names;
}

std::vector<std::string> command_words(const CommandFacts& command) {
  std::vector<std::string> words;
  for (const CommandFacts& each : command.commands) {
    for (std::string& name : names_of(each)) words.push_back(std::move(name));
  }
  return words;
}

bool takes_model(const CommandFacts& command) {
  return std::ranges::any_of(command.positionals, [](const OptionFacts& option) {
    return option.kind == ValueKind::kModel;
  });
}

// The text with the program's name for NAME.
std::string named(std::string_view text, const std::string& name) {
  std::string result;
  while (!text.empty()) {
    const size_t at = text.find("NAME");
    result += text.substr(0, at);
    if (at == std::string_view::npos) break;
    result += name;
    text.remove_prefix(at + 4);
  }
  return result;
}

constexpr std::string_view kMadeBy =
    "# SPDX-License-Identifier: Apache-2.0\n"
    "# Written by wideep completions from the option tables.\n";

// ---- bash

constexpr std::string_view kBashFunctions = R"script(
# Folders with config.json, folders on the way to one, and *.gguf.
_NAME_model() {
  local current=$1 folder inside
  while IFS= read -r folder; do
    for inside in "${folder/#\~/$HOME}"/config.json "${folder/#\~/$HOME}"/*/ \
      "${folder/#\~/$HOME}"/*.gguf; do
      if [[ -e $inside ]]; then COMPREPLY+=("$folder"); break; fi
    done
  done < <(compgen -d -- "$current")
  while IFS= read -r folder; do
    [[ $folder == *.gguf ]] && COMPREPLY+=("$folder")
  done < <(compgen -f -- "$current")
  compopt -o filenames 2>/dev/null
}

_NAME_path() {
  local each
  while IFS= read -r each; do COMPREPLY+=("$each"); done < <(compgen -f -- "$1")
  compopt -o filenames 2>/dev/null
}

_NAME() {
  local current=${COMP_WORDS[COMP_CWORD]} command=NAME option= words= kind= index
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; ++index)); do
    if _NAME_is_command "$command ${COMP_WORDS[index]}"; then
      command+=" ${COMP_WORDS[index]}"
    fi
  done
  # bash takes --option=value apart at "=".
  option=${COMP_WORDS[COMP_CWORD - 1]}
  if [[ $current == "=" ]]; then
    current=
  elif [[ $option == "=" ]]; then
    option=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  [[ $option == --* ]] && option=${option//_/-}
  _NAME_value "$command $option"
  [[ -n $kind ]] || _NAME_words "$command"
  [[ $kind == either && $current == -* ]] && kind=words
  case $kind in
    model | either) _NAME_model "$current" ;;
    path) _NAME_path "$current" ;;
    words) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
  esac
}
complete -F _NAME NAME
)script";

std::string bash_kind(const OptionFacts& option) {
  if (!option.choices.empty()) {
    return fmt::format("kind=words words='{}'", joined(option.choices, " "));
  }
  if (option.kind == ValueKind::kModel) return "kind=model";
  return option.kind == ValueKind::kPath ? "kind=path" : "kind=text";
}

std::string bash_values(const CommandFacts& command) {
  std::string text;
  for (const OptionFacts& option : command.options) {
    if (!option.takes_value) continue;
    std::vector<std::string> cases;
    for (const std::string& each : option.names) {
      cases.push_back(fmt::format("\"{} {}\"", joined(command.path, " "), each));
    }
    text += fmt::format("    {}) {} ;;\n", joined(cases, " | "), bash_kind(option));
  }
  return text;
}

std::string bash_words(const CommandFacts& command) {
  std::vector<std::string> words = command_words(command);
  for (const OptionFacts& option : command.options) {
    words.insert(words.end(), option.names.begin(), option.names.end());
  }
  return fmt::format("    \"{}\") words='{}' kind={} ;;\n", joined(command.path, " "),
                     joined(words, " "), takes_model(command) ? "either" : "words");
}

// ---- zsh

constexpr std::string_view kZshFunctions = R"script(
_NAME_is_model_folder() {
  local -a inside
  inside=($REPLY/config.json(N) $REPLY/*(N-/) $REPLY/*.gguf(N))
  (( $#inside ))
}

# Folders with config.json, folders on the way to one, and *.gguf.
_NAME_model() {
  _alternative 'files:GGUF file:_path_files -g "*.gguf(-.)"' \
    'folders:folder:_path_files -g "*(-/e,_NAME_is_model_folder,)"'
}
)script";

std::string function_name(const CommandFacts& command) {
  std::string name = "_" + joined(command.path, "_");
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string zsh_summary(const std::string& description) { return summary(description, "'[]\\:`$"); }

std::string zsh_action(const OptionFacts& option, const std::string& program) {
  if (!option.choices.empty()) return fmt::format("value:({})", joined(option.choices, " "));
  if (option.kind == ValueKind::kModel) return fmt::format("model:_{}_model", program);
  return option.kind == ValueKind::kPath ? "path:_files" : "value: ";
}

std::string zsh_option(const OptionFacts& option, const std::string& program) {
  std::string lines;
  const std::string others =
      option.is_repeatable ? "*" : fmt::format("({})", joined(option.names, " "));
  for (const std::string& name : option.names) {
    lines += fmt::format(" \\\n    '{}{}{}[{}]{}'", others, name,
                         option.takes_value && name.starts_with("--") ? "=" : "",
                         zsh_summary(option.description),
                         option.takes_value ? ":" + zsh_action(option, program) : "");
  }
  return lines;
}

// Completes the first word of a group, and lets the command's function do the rest.
std::string zsh_choice(const CommandFacts& command) {
  std::string text =
      " \\\n    '1:command:->command' '*::argument:->argument'\n  case $state in\n"
      "    command)\n      commands=(\n";
  for (const CommandFacts& each : command.commands) {
    text += fmt::format("        '{}:{}'\n", each.path.back(), zsh_summary(each.description));
  }
  text +=
      "      )\n      _describe command commands\n      ;;\n    argument)\n"
      "      case $line[1] in\n";
  for (const CommandFacts& each : command.commands) {
    text += fmt::format("        {}) {} ;;\n", joined(names_of(each), "|"), function_name(each));
  }
  return text + "      esac\n      ;;\n  esac\n}\n";
}

std::string zsh_function(const CommandFacts& command) {
  const std::string& program = command.path[0];
  const bool is_group = !command.commands.empty();
  std::string text = fmt::format("\n{}() {{\n", function_name(command));
  if (is_group) text += "  local context state state_descr line\n  local -a commands\n";
  text += is_group ? "  _arguments -C" : "  _arguments";
  for (const OptionFacts& option : command.options) text += zsh_option(option, program);
  if (is_group) return text + zsh_choice(command);
  int position = 0;
  for (const OptionFacts& option : command.positionals) {
    text += fmt::format(" \\\n    '{}::{}'", ++position, zsh_action(option, program));
  }
  return text + "\n}\n";
}

// ---- fish

constexpr std::string_view kFishFunctions = R"script(
# True if the commands on the line so far are these.
function __NAME_at
    set -l path
    for word in (commandline -opc)[2..-1]
        if contains -- (string join -- ' ' $path $word) $__NAME_commands
            set -a path $word
        end
    end
    test "$path" = "$argv"
end

# Folders with config.json, folders on the way to one, and *.gguf.
function __NAME_models
    set -l token (commandline -ct | string replace -r '^--[^=]*=' '')
    set -l typed (string replace -r '^~' $HOME -- $token)
    for folder in $typed*/
        set -l inside $folder*/ $folder*.gguf
        if test -e $folder'config.json'; or set -q inside[1]
            echo $folder
        end
    end
    for file in $typed*.gguf
        echo $file
    end
end
)script";

std::string fish_summary(const std::string& description) {
  std::string result;
  for (const char each : summary(description, "\\")) {
    if (each == '\'') result += '\\';
    result += each;
  }
  return result;
}

std::string fish_value(const OptionFacts& option, const std::string& program) {
  if (!option.takes_value) return "";
  if (!option.choices.empty()) return fmt::format(" -x -a '{}'", joined(option.choices, " "));
  if (option.kind == ValueKind::kModel) return fmt::format(" -x -a '(__{}_models)'", program);
  return option.kind == ValueKind::kPath ? " -r -F" : " -x";
}

// The path without the program: "balance plan".
std::string below(const CommandFacts& command) {
  return fmt::format("{}", fmt::join(command.path.begin() + 1, command.path.end(), " "));
}

std::string fish_command(const CommandFacts& command) {
  const std::string& program = command.path[0];
  const std::string path = below(command);
  const std::string at = fmt::format("complete -c {} -n '__{}_at{}{}'", program, program,
                                     path.empty() ? "" : " ", path);
  std::string text;
  for (const CommandFacts& each : command.commands) {
    text += fmt::format("{} -a {} -d '{}'\n", at, each.path.back(), fish_summary(each.description));
  }
  if (takes_model(command)) text += fmt::format("{} -a '(__{}_models)'\n", at, program);
  for (const OptionFacts& option : command.options) {
    text += at;
    for (const std::string& each : option.names) {
      text += each.starts_with("--") ? " -l " + each.substr(2) : " -s " + each.substr(1);
    }
    text +=
        fmt::format("{} -d '{}'\n", fish_value(option, program), fish_summary(option.description));
  }
  return text;
}

}  // namespace

std::string bash_completion(const CommandFacts& program) {
  const std::string& name = program.path[0];
  std::vector<std::string> paths;
  std::string values, words;
  for (const CommandFacts* command : all_commands(program)) {
    for (const std::string& word : command_words(*command)) {
      paths.push_back(fmt::format("\"{} {}\"", joined(command->path, " "), word));
    }
    values += bash_values(*command);
    words += bash_words(*command);
  }
  std::string text(kMadeBy);
  text += fmt::format(
      "\n_{}_is_command() {{\n  case $1 in\n    {}) return 0 ;;\n  esac\n  return 1\n}}\n", name,
      joined(paths, " | \\\n      "));
  text += "\n# Sets kind (text, words, path, model) and words of an option's value.\n";
  text += fmt::format("_{}_value() {{\n  case $1 in\n{}  esac\n}}\n", name, values);
  text += "\n# The same of any other word.\n";
  text += fmt::format("_{}_words() {{\n  case $1 in\n{}  esac\n}}\n", name, words);
  return text + named(kBashFunctions, name);
}

std::string zsh_completion(const CommandFacts& program) {
  const std::string& name = program.path[0];
  std::string text = fmt::format("#compdef {}\n", name);
  text += kMadeBy;
  text += named(kZshFunctions, name);
  for (const CommandFacts* command : all_commands(program)) text += zsh_function(*command);
  return text + fmt::format("\n{} \"$@\"\n", function_name(program));
}

std::string fish_completion(const CommandFacts& program) {
  const std::string& name = program.path[0];
  std::vector<std::string> paths;
  std::string commands;
  for (const CommandFacts* command : all_commands(program)) {
    if (command->path.size() > 1) paths.push_back(fmt::format("'{}'", below(*command)));
    commands += fish_command(*command);
  }
  std::string text(kMadeBy);
  text += fmt::format("\nset -g __{}_commands {}\n", name, joined(paths, " \\\n    "));
  text += named(kFishFunctions, name);
  return text + fmt::format("\ncomplete -c {} -f\n", name) + commands;
}

}  // namespace wideep::tools
