// SPDX-License-Identifier: Apache-2.0
//
// The placement of a group that has lost or got ranks: as few experts as possible get a new slot.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

// The slots per rank with which `num_ranks` ranks have one for every expert: `usual`, or more if
// that many are too few.
int slots_per_rank_for(int num_ranks, int num_experts, int usual);

// held: [ranks] the experts in the slots of each rank of the new group; a rank may have any number
// of them, kUnusedSlot stands for none. load: [E] of the experts, any unit, for the choice of ranks
// and replicas. An expert keeps its slot where it can. If a rank has fewer slots than it holds
// experts, it gives up those that most others have. Experts that no rank holds get a slot first,
// where that adds least to the load (Repairer); then slots that are left get replicas of the
// experts with the largest load per replica.
// REQUIRES: ranks · slots_per_rank ≥ num_experts; load is finite and ≥ 0. Depends only on the
// arguments: all ranks compute the same.
Placement regroup(std::span<const std::vector<int32_t>> held, int num_experts, int slots_per_rank,
                  std::span<const double> load);

}  // namespace wideep::balance
