// SPDX-License-Identifier: Apache-2.0
//
// What `wideep doctor` finds of the places where prompts would be kept: it makes none of them.
//
// Thread safety: for one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "run/advice.h"
#include "run/run_options.h"

namespace wideep::tools {

struct PromptPlace {
  std::string label;                   // as store::Place::label()
  std::string where;                   // path or address; "": this node's memory
  std::optional<uint64_t> bytes;       // that it may have; nullopt: its own affair
  std::optional<uint64_t> free_bytes;  // of the memory or the disk
  std::optional<run::Advice> trouble;
};

// The nearest first; the server is asked.
std::vector<PromptPlace> look_at_places(const run::RunOptions& options,
                                        const base::Machine& machine);

}  // namespace wideep::tools
