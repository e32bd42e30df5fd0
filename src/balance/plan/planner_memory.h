// SPDX-License-Identifier: Apache-2.0
//
// wideep's planner for ranks with memory for different numbers of experts: K_r slots on rank r.
//
//   counts  Replica counts as for equal ranks. With unequal ranks these counts may force two
//           replicas of an expert onto one rank: replicas apart exist if and only if, for every j,
//           Σ_e min(r_e, j) ≥ the sum of the j greatest K_r (Gale and Ryser). Where that fails a
//           replica goes from an expert with more than j to one with fewer, which adds 1 to the
//           left side for this j and takes nothing from it for any other.
//   start   The better of two, after swaps: heaviest replica first to the lightest rank, or to the
//           rank whose free slots must carry most each to reach the mean. If neither ends with
//           replicas apart: each expert to the ranks with most free slots, which always does.
//   shares  Of an equal split, or the best for the placement. If no shares balance the placement,
//           it is repaired (repair/weighted_repair.h): moves cost nothing before it is used.
#pragma once

#include <memory>

#include "wideep/balancer.h"

namespace wideep::balance {

// For a shape without dead ranks. Errors (invalid input): as check_plan_shape; a rank with more
// usable slots than there are experts.
Result<std::unique_ptr<LayerPlanner>> make_memory_planner(const PlanShape& shape,
                                                          const PlannerOptions& options);

}  // namespace wideep::balance
