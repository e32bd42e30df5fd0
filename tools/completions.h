// SPDX-License-Identifier: Apache-2.0
//
// Completions of the command for shells, made from the option tables: commands, options, their
// values; for models folders with config.json, folders on the way to one, and *.gguf.
//
// Thread safety: functions of their arguments.
#pragma once

#include <string>

#include "command_line/facts.h"

namespace wideep::tools {

std::string bash_completion(const command_line::CommandFacts& program);
std::string zsh_completion(const command_line::CommandFacts& program);
std::string fish_completion(const command_line::CommandFacts& program);

}  // namespace wideep::tools
