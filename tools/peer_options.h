// SPDX-License-Identifier: Apache-2.0
//
// What options and commands of other servers (llama-server, vLLM, SGLang, Ollama) are called here,
// or why there is no need of them: said to whoever gives one. None is accepted silently.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "command_line/facts.h"

namespace wideep::tools {

struct PeerOption {
  std::string_view names;  // "-c,--ctx-size"
  // The hint holds for commands that have this option: the one to use instead, mostly.
  std::string_view needs;
  std::string_view hint;
};
std::span<const PeerOption> peer_options();

// The line for an option or a command that `command` does not have; "" if no peer has it either.
std::string peer_hint(const std::string& word, const command_line::CommandFacts& command);

}  // namespace wideep::tools
