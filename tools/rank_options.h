// SPDX-License-Identifier: Apache-2.0
//
// --dead-ranks and --rank-slots of the `wideep balance ...` commands: ranks that are down, and
// ranks with less memory.
#pragma once

#include <string>
#include <vector>

#include "command_line/command_line.h"
#include "wideep/balancer.h"
#include "wideep/status.h"

namespace wideep::tools {

struct RankOptions {
  std::string dead_ranks;  // "3,7"; empty: none
  std::string rank_slots;  // "9,9,8,9" or "2:8"; empty: all
};

// `options` must outlive the parsing.
void add_dead_ranks_option(command_line::Command command, RankOptions* options);
void add_rank_slots_option(command_line::Command command, RankOptions* options);

// The ranks of --dead-ranks. Errors (invalid input): not a list of ranks; a rank outside 0 …
// ep_size − 1, or given twice.
Result<std::vector<int>> choose_dead_ranks(const RankOptions& options, int ep_size);

// PlanShape::rank_slots from both options together; empty if neither is given.
// Errors (invalid input): as above; a list of another length; a rank in both options. Does not
// check the numbers of slots: check_plan_shape does.
Result<std::vector<int>> choose_rank_slots(const RankOptions& options,
                                           const balance::PlanShape& shape);

// "8 ranks", "7 live ranks of 8"
std::string ranks_text(const balance::PlanShape& shape);
// "40 slots", "40 slots (35 usable)"
std::string slots_text(const balance::PlanShape& shape);

}  // namespace wideep::tools
