// SPDX-License-Identifier: Apache-2.0
//
// Perfect balance by construction, for engines that split by shares: whenever there is one spare
// slot per rank but one (S - E ≥ R - 1), a placement and shares exist that give every rank exactly
// the mean T = total / R, for any load.
//
// Proof and algorithm. With K slots per rank, pad the experts with empty ones to n = R(K - 1) + 1
// items, ascending a_1 ≤ ... ≤ a_n. Let W_i be the K - 1 items from a_i on. Averages give
// sum(W_1) ≤ T, and T ≤ the sum of the K heaviest. So there is a first i with sum(W_i) + a_n ≥ T;
// and sum(W_i) ≤ T, because i = 1 or sum(W_i) ≤ sum(W_{i-1}) + a_n < T. A rank takes W_i whole and
// the missing part of a_n. What is left are (R - 1)(K - 1) + 1 items of total (R - 1)T: go on.
//
// Thread safety: pure functions.
#pragma once

#include <span>

#include "wideep/balancer.h"

namespace wideep::balance {

// Does the shape allow it?
inline bool exact_placement_exists(const PlanShape& shape) {
  return shape.num_slots - shape.num_experts >= shape.ep_size - 1;
}

// Placement and shares. Slots that the construction leaves empty hold one more replica of a hot
// expert, with share 0, so that later shares have more choice. O(E log E + R·E).
// load: [E], finite and ≥ 0. REQUIRES: exact_placement_exists(shape), S ≤ E·R.
void place_exact(std::span<const double> load, const PlanShape& shape, LayerPlan* plan);

}  // namespace wideep::balance
