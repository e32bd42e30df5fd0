// SPDX-License-Identifier: Apache-2.0
//
// Which rank each replica goes to: TRT's greedy (doPlacement). Planner `trt` of planner.h.
//
// Thread safety: pure functions.
#pragma once

#include <span>
#include <vector>

#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::balance {

// load: [E] tokens per expert, finite and ≥ 0; replicas: [E] counts ≥ 1 that sum to S, a multiple
// of ep_size.
//
// Places replicas by descending load (ties: lower expert id first), each on the least loaded rank
// that has a free slot (ties: lower rank); a rank's slots fill in that order. Two replicas of an
// expert may share a rank.
Placement place_trt(std::span<const double> load, std::span<const int> replicas, int ep_size);

// replicate_trt, then place_trt. Errors (invalid input): as check_slot_counts.
Result<Placement> plan_layer_trt(std::span<const double> load, int ep_size, int num_slots);

}  // namespace wideep::balance
