// SPDX-License-Identifier: Apache-2.0
//
// The options of `wideep balance ...` commands that say how large an expert is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command_line/command_line.h"
#include "wideep/status.h"

namespace wideep::tools {

struct ExpertBytesOptions {
  std::optional<double> bytes_per_expert;
  std::string model_dir;
};

// Adds --model-bytes-per-expert, whose bytes are for what `use` says, and --model. `options` must
// outlive the parsing.
void add_expert_bytes_options(command_line::Command command, ExpertBytesOptions* options,
                              const std::string& use);

// The bytes of an expert's weights in one layer, of a model in bf16; nothing if neither option is
// given. Errors (invalid input): bytes out of range; a model that cannot be read, or whose layers
// and experts are not those of the statistics.
Result<std::optional<double>> choose_expert_bytes(const ExpertBytesOptions& options,
                                                  int num_experts, const std::vector<int>& layers);

}  // namespace wideep::tools
