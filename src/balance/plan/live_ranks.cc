// SPDX-License-Identifier: Apache-2.0
#include "plan/live_ranks.h"

#include <algorithm>

namespace wideep::balance {

LiveRanks::LiveRanks(const PlanShape& shape) : full_(shape) {
  std::vector<int> slots;
  for (int rank = 0; rank < shape.ep_size; ++rank) {
    if (shape.usable_slots_of(rank) == 0) continue;
    ranks_.push_back(rank);
    slots.push_back(shape.usable_slots_of(rank));
  }
  const auto [min, max] = std::minmax_element(slots.begin(), slots.end());
  live_ = {.num_experts = shape.num_experts,
           .ep_size = static_cast<int>(slots.size()),
           .num_slots = static_cast<int>(slots.size()) * *max,
           .num_groups = shape.num_groups};
  if (*min < *max) live_.rank_slots = std::move(slots);
}

template <typename Visit>
void LiveRanks::for_slots(Visit visit) const {
  for (int i = 0; i < live_.ep_size; ++i) {
    const int rank = ranks_[static_cast<size_t>(i)];
    const int from = i * live_.slots_per_rank(), to = rank * full_.slots_per_rank();
    for (int slot = 0; slot < live_.usable_slots_of(i); ++slot) {
      visit(static_cast<size_t>(to + slot), static_cast<size_t>(from + slot));
    }
  }
}

void LiveRanks::expand(const LayerPlan& live_plan, LayerPlan* plan) const {
  const auto num_slots = static_cast<size_t>(full_.num_slots);
  plan->placement.num_experts = full_.num_experts;
  plan->placement.ep_size = full_.ep_size;
  plan->placement.slot_to_expert.assign(num_slots, kUnusedSlot);
  plan->shares.assign(num_slots, 0.0);
  for_slots([&](size_t slot, size_t live_slot) {
    plan->placement.slot_to_expert[slot] = live_plan.placement.slot_to_expert[live_slot];
    plan->shares[slot] = live_plan.shares[live_slot];
  });
}

void LiveRanks::contract(const Placement& placement, Placement* live_placement) const {
  live_placement->num_experts = live_.num_experts;
  live_placement->ep_size = live_.ep_size;
  live_placement->slot_to_expert.assign(static_cast<size_t>(live_.num_slots), kUnusedSlot);
  for_slots([&](size_t slot, size_t live_slot) {
    live_placement->slot_to_expert[live_slot] = placement.slot_to_expert[slot];
  });
}

}  // namespace wideep::balance
