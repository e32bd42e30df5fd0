// SPDX-License-Identifier: Apache-2.0
//
// What all planners share: checks of shapes, loads and shares, and the two figures by which plans
// are compared, rank loads and their ratio. Comparisons are written so that NaN fails them.
#include "wideep/balancer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/try.h"

namespace wideep::balance {

namespace {

Status check_rank_slots(const PlanShape& shape) {
  if (shape.rank_slots.size() != static_cast<size_t>(shape.ep_size)) {
    return invalid_input(
        fmt::format("rank_slots: expected a number of usable slots for each of {} ranks, found {}",
                    shape.ep_size, shape.rank_slots.size()));
  }
  for (int rank = 0; rank < shape.ep_size; ++rank) {
    const int slots = shape.usable_slots_of(rank);
    if (slots >= 0 && slots <= shape.slots_per_rank()) continue;
    return invalid_input(
        fmt::format("rank_slots: rank {}: expected 0 to {} usable slots (num_slots {} / {} ranks), "
                    "found {}",
                    rank, shape.slots_per_rank(), shape.num_slots, shape.ep_size, slots));
  }
  if (shape.num_usable_slots() < shape.num_experts) {
    return invalid_input(fmt::format(
        "rank_slots: {} usable slots on {} live ranks cannot hold {} experts; use a greater "
        "num_slots or more ranks",
        shape.num_usable_slots(), shape.num_live_ranks(), shape.num_experts));
  }
  return {};
}

}  // namespace

int PlanShape::num_usable_slots() const {
  return rank_slots.empty() ? num_slots : std::accumulate(rank_slots.begin(), rank_slots.end(), 0);
}

int PlanShape::num_live_ranks() const {
  const auto dead = std::count(rank_slots.begin(), rank_slots.end(), 0);
  return ep_size - static_cast<int>(dead);
}

bool PlanShape::all_slots_usable() const { return num_usable_slots() == num_slots; }

Status check_plan_shape(const PlanShape& shape) {
  WIDEEP_TRY(check_slot_counts(shape.num_experts, shape.ep_size, shape.num_slots));
  if (shape.num_nodes < 1 || shape.ep_size % shape.num_nodes != 0) {
    return invalid_input(fmt::format("nodes: expected a divisor of the {} ranks, found {}",
                                     shape.ep_size, shape.num_nodes));
  }
  if (shape.num_groups < 1 || shape.num_experts % shape.num_groups != 0) {
    return invalid_input(fmt::format("groups: expected a divisor of the {} experts, found {}",
                                     shape.num_experts, shape.num_groups));
  }
  if (shape.rank_slots.empty()) return {};
  WIDEEP_TRY(check_rank_slots(shape));
  // LiveRanks drops nodes: without all ranks, nodes no longer have equally many slots.
  if (!shape.all_slots_usable() && shape.num_nodes > 1 && shape.num_groups > 1) {
    return invalid_input(fmt::format(
        "rank_slots: dead ranks and unequal memory cannot be planned together with {} groups kept "
        "on {} nodes; give one node",
        shape.num_groups, shape.num_nodes));
  }
  return {};
}

Status check_load(std::span<const double> load, int num_experts) {
  double sum = 0.0;
  for (size_t i = 0; i < load.size(); ++i) {
    sum += load[i];
    // Also refuses NaN, for which the comparison is false.
    if (load[i] >= 0.0 && std::isfinite(sum)) continue;
    const auto experts = static_cast<size_t>(num_experts);
    return invalid_input(
        fmt::format("load of layer {}, expert {}: expected tokens that are not negative and have a "
                    "finite sum, found {}",
                    i / experts, i % experts, load[i]));
  }
  return {};
}

Shares equal_shares(const Placement& placement) {
  std::vector<int> replicas(static_cast<size_t>(placement.num_experts), 0);
  for (int32_t expert : placement.slot_to_expert) {
    if (expert != kUnusedSlot) ++replicas[static_cast<size_t>(expert)];
  }
  Shares shares;
  shares.reserve(placement.slot_to_expert.size());
  for (int32_t expert : placement.slot_to_expert) {
    shares.push_back(expert == kUnusedSlot ? 0.0 : 1.0 / replicas[static_cast<size_t>(expert)]);
  }
  return shares;
}

Status check_shares(const Placement& placement, std::span<const double> shares) {
  const std::vector<int32_t>& experts = placement.slot_to_expert;
  if (shares.size() != experts.size()) {
    return invalid_input(fmt::format("shares: expected one for each of {} slots, found {}",
                                     experts.size(), shares.size()));
  }
  std::vector<double> sum(static_cast<size_t>(placement.num_experts), 0.0);
  for (size_t slot = 0; slot < shares.size(); ++slot) {
    // Written so that NaN fails.
    if (!(shares[slot] >= 0.0 && std::isfinite(shares[slot]))) {
      return invalid_input(fmt::format("share of slot {}: expected a number from 0 to 1, found {}",
                                       slot, shares[slot]));
    }
    if (experts[slot] != kUnusedSlot) sum[static_cast<size_t>(experts[slot])] += shares[slot];
  }
  for (size_t expert = 0; expert < sum.size(); ++expert) {
    if (std::abs(sum[expert] - 1.0) <= 1e-6) continue;
    return invalid_input(
        fmt::format("shares of expert {}: expected a sum of 1, found {}", expert, sum[expert]));
  }
  return {};
}

std::vector<double> rank_loads(const Placement& placement, std::span<const double> expert_load,
                               std::span<const double> shares) {
  std::vector<double> loads(static_cast<size_t>(placement.ep_size), 0.0);
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    const auto idx = static_cast<size_t>(slot);
    if (placement.slot_to_expert[idx] == kUnusedSlot) continue;
    loads[static_cast<size_t>(placement.rank_of_slot(slot))] +=
        expert_load[static_cast<size_t>(placement.slot_to_expert[idx])] * shares[idx];
  }
  return loads;
}

double imbalance_ratio(std::span<const double> loads) {
  const double total = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (total <= 0.0) return 0.0;
  const double mean = total / static_cast<double>(loads.size());
  return *std::max_element(loads.begin(), loads.end()) / mean - 1.0;
}

double imbalance_ratio(const Placement& placement, std::span<const double> expert_load,
                       std::span<const double> shares, int num_live_ranks) {
  double total = 0.0, max = 0.0;
  size_t slot = 0;
  for (int rank = 0; rank < placement.ep_size; ++rank) {
    double load = 0.0;
    for (int32_t expert : placement.experts_of_rank(rank)) {
      const double share = shares[slot++];
      if (expert == kUnusedSlot) continue;
      load += expert_load[static_cast<size_t>(expert)] * share;
    }
    total += load;
    max = std::max(max, load);
  }
  // Dead ranks hold no expert and would lower the mean; a live rank without an expert is idle and
  // must lower it.
  const int num_ranks = std::max(placement.num_ranks_in_use(), num_live_ranks);
  return total > 0.0 ? max / (total / num_ranks) - 1.0 : 0.0;
}

}  // namespace wideep::balance
