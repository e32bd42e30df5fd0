// SPDX-License-Identifier: Apache-2.0
#include "command_line/facts.h"

#include <algorithm>

namespace wideep::command_line {

const OptionFacts* find_option(const CommandFacts& command, std::string_view name) {
  for (const OptionFacts& each : command.options) {
    if (std::ranges::find(each.names, name) != each.names.end()) return &each;
  }
  return nullptr;
}

const CommandFacts* find_command(const CommandFacts& parent, std::string_view name) {
  for (const CommandFacts& each : parent.commands) {
    const bool is_alias = std::ranges::find(each.aliases, name) != each.aliases.end();
    if (each.path.back() == name || is_alias) return &each;
  }
  return nullptr;
}

}  // namespace wideep::command_line
