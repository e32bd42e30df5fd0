// SPDX-License-Identifier: Apache-2.0
//
// trtllm-bench has options before its sub-command: `trtllm-bench --model NAME --model_path DIR
// throughput ...`. Here each sub-command of `wideep bench` has its options itself, so those before
// it are moved behind it; one that the sub-command does not have is refused there.
#pragma once

#include <string>
#include <vector>

namespace wideep::tools {

// arguments: without the program's name, option names with '-' for '_'. Unchanged unless the first
// is "bench", and where something else than trtllm-bench's own options stands before the
// sub-command.
std::vector<std::string> move_group_options(std::vector<std::string> arguments);

}  // namespace wideep::tools
