// SPDX-License-Identifier: Apache-2.0
//
// The commands of a chat: lines that begin with a slash. The table has their names (also those of
// Ollama and llama-cli), what they take, and the lines of /help.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::client {

enum class ChatCommand : uint8_t {
  kSystem,
  kSet,
  kShow,
  kRegen,
  kUndo,
  kClear,
  kRead,
  kSave,
  kLoad,
  kThink,
  kHelp,
  kEnd,
};

struct CommandLine {
  ChatCommand command = ChatCommand::kHelp;
  std::string argument;  // without spaces at its ends
};

inline bool is_command(std::string_view line) { return line.starts_with('/'); }

// Errors (invalid input): an unknown name, with the nearest; an argument that is missing, or that
// the command does not take.
Result<CommandLine> parse_command(std::string_view line);

std::string command_help();  // a line each

}  // namespace wideep::client
