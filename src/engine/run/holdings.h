// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of an elastic run bring into a group with other members: the experts in their
// slots, the load that they have seen, and the number of their next iteration. All ranks compute
// the same placement from it, so that nobody decides alone and nobody waits for a decision.
//
// Thread safety: as transport::Endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/parts/expert_slots.h"
#include "run/run_plan.h"
#include "transport/endpoint.h"

namespace wideep::run {

// Of one rank.
struct Holdings {
  int64_t iteration = 0;  // its next one
  // [MoE layers] the experts in its slots, kUnusedSlot for none; any number of slots.
  std::vector<std::vector<int32_t>> experts;
  std::vector<double> loads;  // [MoE layers × num_experts] tokens lately, any unit
};

// Collective: the holdings of all ranks of the group, in their order. The segments are used for it,
// and free again afterwards. Errors: as Endpoint::barrier.
Result<std::vector<Holdings>> exchange_holdings(const Holdings& own, const RunPlan& plan,
                                                transport::Endpoint& group);

// The placement of the group (plan/regroup.h).
balance::ModelPlacement regroup_placement(const RunPlan& plan, std::span<const Holdings> ranks);

}  // namespace wideep::run
