// SPDX-License-Identifier: Apache-2.0
//
// Perfect balance by construction, for engines that split by shares: if all ranks except one have a
// spare slot (S - E ≥ R - 1), a placement and shares exist that give every rank exactly the mean T
// = total / R, for any load.
//
// Proof and algorithm. With K slots per rank, pad the experts with empty ones to n = R(K - 1) + 1
// items, ascending a_1 ≤ ... ≤ a_n. Let W_i be the K - 1 items from a_i on. Averages give sum(W_1)
// ≤ T, and T ≤ the sum of the K heaviest. So there is a first i with sum(W_i) + a_n ≥ T; and
// sum(W_i) ≤ T, because i = 1 or sum(W_i) ≤ sum(W_{i-1}) + a_n < T. A rank takes all items of W_i
// and the missing part of a_n. There remain (R - 1)(K - 1) + 1 items of total (R - 1)T: repeat for
// the next rank.
//
// Thread safety: one thread at a time per ExactPlacer; functions are pure.
#pragma once

#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

// True if the construction is possible for the shape.
inline bool exact_placement_exists(const PlanShape& shape) {
  return shape.num_slots - shape.num_experts >= shape.ep_size - 1;
}

// Placement and shares. Slots that the construction leaves empty hold one more replica of a hot
// expert, with share 0, so that later shares have more choice. O(E log E + R·E).
// Keeps its work space: place() allocates for the plan only.
class ExactPlacer {
 public:
  // REQUIRES: exact_placement_exists(shape), S ≤ E·R.
  explicit ExactPlacer(const PlanShape& shape);

  // For another shape from now on. Allocates nothing if an earlier one was as large.
  void set_shape(const PlanShape& shape);

  // load: [E], finite and ≥ 0.
  void place(std::span<const double> load, LayerPlan* plan);

  struct Item {
    double load;     // the rest of the expert's load that no rank has taken, or the load of a slot
    int32_t expert;  // -1: an empty one
  };

 private:
  void split(std::span<const double> load);
  void fill_rank(size_t whole, double target);
  size_t window(size_t whole, double target) const;
  void fill_empty_slots(std::span<const double> load);

  PlanShape shape_;
  std::vector<Item> items_;  // not taken by a rank yet, ascending
  std::vector<Item> parts_;  // [S]
  std::vector<int32_t> by_load_;
  std::vector<int> replicas_;  // [E]
};

// A single call of ExactPlacer::place.
void place_exact(std::span<const double> load, const PlanShape& shape, LayerPlan* plan);

}  // namespace wideep::balance
