// SPDX-License-Identifier: Apache-2.0
//
// In three steps that each keep what the one before kept: ranks give up what does not fit, experts
// that nobody has any more get a slot by the repair with no moves of choice, and slots that are
// still free are filled with replicas. What a rank gives up is what most others have, one at a
// time with new counts, so that two ranks do not give up the last two replicas of the same expert.
#include "plan/regroup.h"

#include <algorithm>

#include "base/check.h"

namespace wideep::balance {
namespace {

// Replicas of each expert in the group.
class Replicas {
 public:
  explicit Replicas(int num_experts) : counts_(static_cast<size_t>(num_experts)) {}
  int of(int32_t expert) const { return counts_[static_cast<size_t>(expert)]; }
  void add(int32_t expert, int count) {
    if (expert != kUnusedSlot) counts_[static_cast<size_t>(expert)] += count;
  }

 private:
  std::vector<int> counts_;
};

// Empties slots until at most `most` hold an expert: the one with the most replicas first, of equal
// ones the last.
void give_up_experts(std::vector<int32_t>& slots, int max, Replicas& replicas) {
  const auto used = [&] {
    return std::count_if(slots.begin(), slots.end(), [](int32_t e) { return e != kUnusedSlot; });
  };
  while (used() > max) {
    auto worst = slots.end();
    for (auto slot = slots.begin(); slot != slots.end(); ++slot) {
      if (*slot == kUnusedSlot) continue;
      if (worst == slots.end() || replicas.of(*slot) >= replicas.of(*worst)) worst = slot;
    }
    replicas.add(*worst, -1);
    *worst = kUnusedSlot;
  }
}

// Brings the experts into the first `count` slots; those there already stay.
void resize_slots(std::vector<int32_t>& slots, int count) {
  const auto size = static_cast<size_t>(count);
  if (slots.size() < size) slots.resize(size, kUnusedSlot);
  for (size_t slot = size; slot < slots.size(); ++slot) {
    if (slots[slot] == kUnusedSlot) continue;
    *std::find(slots.begin(), slots.begin() + count, kUnusedSlot) = slots[slot];
  }
  slots.resize(size);
}

// Fills a rank's empty slot: the expert with the largest load per replica that the rank does not
// have; if it has all, any.
int32_t best_replica(std::span<const int32_t> of_rank, const Replicas& replicas,
                     std::span<const double> load) {
  int32_t best = kUnusedSlot;
  double max = -1.0;
  for (size_t expert = 0; expert < load.size(); ++expert) {
    const auto id = static_cast<int32_t>(expert);
    if (std::find(of_rank.begin(), of_rank.end(), id) != of_rank.end()) continue;
    const double each = load[expert] / replicas.of(id);
    if (each <= max) continue;
    max = each;
    best = id;
  }
  return best == kUnusedSlot ? 0 : best;
}

}  // namespace

int slots_per_rank_for(int num_ranks, int num_experts, int usual) {
  return std::max(usual, (num_experts + num_ranks - 1) / num_ranks);
}

Placement regroup(std::span<const std::vector<int32_t>> held, int num_experts, int slots_per_rank,
                  std::span<const double> load) {
  const auto num_ranks = static_cast<int>(held.size());
  WIDEEP_CHECK_GE(num_ranks * slots_per_rank, num_experts);
  WIDEEP_CHECK_EQ(load.size(), static_cast<size_t>(num_experts));
  Replicas replicas(num_experts);
  for (const std::vector<int32_t>& slots : held) {
    for (const int32_t expert : slots) replicas.add(expert, 1);
  }
  LayerPlan plan{.placement = {num_experts, num_ranks, {}}, .shares = {}};
  std::vector<int32_t>& all = plan.placement.slot_to_expert;
  for (std::vector<int32_t> slots : held) {
    give_up_experts(slots, slots_per_rank, replicas);
    resize_slots(slots, slots_per_rank);
    all.insert(all.end(), slots.begin(), slots.end());
  }
  const PlanShape shape{
      .num_experts = num_experts, .ep_size = num_ranks, .num_slots = num_ranks * slots_per_rank};
  // max_moves 0: only the moves of experts that nobody has.
  auto repairer = make_repairer(shape, {.split = Split::kWeighted, .max_moves = 0});
  WIDEEP_CHECK(repairer.ok());
  LayerPlan repaired;
  (*repairer)->repair(load, plan, &repaired);
  Placement placement = std::move(repaired.placement);
  replicas = Replicas(num_experts);
  for (const int32_t expert : placement.slot_to_expert) replicas.add(expert, 1);
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    int32_t& expert = placement.slot_to_expert[static_cast<size_t>(slot)];
    if (expert != kUnusedSlot) continue;
    expert = best_replica(placement.experts_of_rank(placement.rank_of_slot(slot)), replicas, load);
    replicas.add(expert, 1);
  }
  return placement;
}

}  // namespace wideep::balance
