// SPDX-License-Identifier: Apache-2.0
//
// What a program's command line has, as data: what manual pages, shell completions and hints are
// made from. Program::facts() gives it; hidden options and commands are left out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::command_line {

// What the text of a value stands for.
enum class ValueKind : uint8_t {
  kText,   // anything that is not one of the others
  kPath,   // a file or a directory
  kModel,  // a model: a directory or a GGUF file
};

struct OptionFacts {
  std::vector<std::string> names;  // with their dashes, long ones first; a positional's: its name
  std::string value_name;          // "TEXT", "INT", "PATH", ..., as --help has it; empty: a flag
  std::string description;
  std::string default_text;          // empty: --help shows none
  std::vector<std::string> choices;  // the values that are allowed, in order; empty: many
  std::string range;                 // "1 to 64", "more than 0", ...; empty: not limited
  ValueKind kind = ValueKind::kText;
  bool takes_value = false;    // else a flag
  bool is_required = false;    // of --model: given by its positional as well
  bool is_repeatable = false;  // several values: --x A --x B
};

struct CommandFacts {
  std::vector<std::string> path;     // "wideep", "balance", "plan": the program's name is the first
  std::vector<std::string> aliases;  // other names instead of the path's last
  std::string description;
  std::vector<OptionFacts> options;      // --help included, in the order of --help
  std::vector<OptionFacts> positionals;  // in order; names has one, without dashes: "MODEL"
  std::vector<CommandFacts> commands;    // its subcommands, in the order of --help
  bool needs_command = false;            // one of them must be given
};

// By one of its names; null: there is none.
const OptionFacts* find_option(const CommandFacts& command, std::string_view name);
const CommandFacts* find_command(const CommandFacts& parent, std::string_view name);

}  // namespace wideep::command_line
