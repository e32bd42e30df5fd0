// SPDX-License-Identifier: Apache-2.0
//
// Each lost expert is tried in every slot that it could have, after one pass over the ranks for
// the loads and for the two hottest holders of each expert. Two are enough: taking a replica away
// makes all other holders of its expert hotter by the same amount, so the hottest one that is not
// this rank decides.
#include "plan/repair/rehome.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace wideep::balance {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

Rehomer::Rehomer(const PlanShape& shape)
    : shape_(shape),
      replicas_(at(shape.num_experts)),
      rank_load_(at(shape.ep_size)),
      holders_(at(shape.num_experts)) {
  lost_.reserve(at(shape.num_experts));
}

// Keeps the two hottest ranks, so that max_but() can leave out the rank of the slot itself.
void Rehomer::Holders::add(int rank, double load) {
  if (rank == hottest) return;
  if (hottest < 0 || load > max) {
    second = max;
    max = load;
    hottest = rank;
  } else {
    second = std::max(second, load);
  }
}

int Rehomer::run(std::span<const double> load, Placement* placement) {
  count_replicas(*placement);
  list_lost(load);
  // Each placed expert changes the loads, so they are computed again. Few experts are lost at once.
  for (int32_t expert : lost_) {
    weigh(load, *placement);
    const int slot = best_slot(load, *placement, expert);
    WIDEEP_CHECK(slot >= 0);  // there are as many usable slots as experts, or more
    int32_t& present = placement->slot_to_expert[at(slot)];
    if (present != kUnusedSlot) --replicas_[at(present)];
    present = expert;
    ++replicas_[at(expert)];
  }
  return static_cast<int>(lost_.size());
}

void Rehomer::count_replicas(const Placement& placement) {
  std::fill(replicas_.begin(), replicas_.end(), 0);
  for (int32_t expert : placement.slot_to_expert) {
    if (expert != kUnusedSlot) ++replicas_[at(expert)];
  }
}

void Rehomer::list_lost(std::span<const double> load) {
  lost_.clear();
  for (int32_t expert = 0; expert < shape_.num_experts; ++expert) {
    if (replicas_[at(expert)] == 0) lost_.push_back(expert);
  }
  std::sort(lost_.begin(), lost_.end(), [&](int32_t a, int32_t b) {
    return load[at(a)] != load[at(b)] ? load[at(a)] > load[at(b)] : a < b;
  });
}

// Computes the loads of ranks and the two hottest holders of each expert, so that hottest_after()
// needs no loop over ranks.
void Rehomer::weigh(std::span<const double> load, const Placement& placement) {
  std::fill(rank_load_.begin(), rank_load_.end(), 0.0);
  std::fill(holders_.begin(), holders_.end(), Holders{});
  for (int rank = 0; rank < shape_.ep_size; ++rank) {
    for (int32_t expert : placement.experts_of_rank(rank)) {
      if (expert != kUnusedSlot) rank_load_[at(rank)] += load[at(expert)] / replicas_[at(expert)];
    }
  }
  for (int rank = 0; rank < shape_.ep_size; ++rank) {
    for (int32_t expert : placement.experts_of_rank(rank)) {
      if (expert != kUnusedSlot) holders_[at(expert)].add(rank, rank_load_[at(rank)]);
    }
  }
}

// Ties go to the lower slot.
int Rehomer::best_slot(std::span<const double> load, const Placement& placement,
                       int32_t lost) const {
  int best = -1;
  double min = std::numeric_limits<double>::infinity();
  for (int slot = 0; slot < shape_.num_slots; ++slot) {
    const int rank = placement.rank_of_slot(slot);
    if (slot % shape_.slots_per_rank() >= shape_.usable_slots_of(rank)) continue;
    const int32_t present = placement.slot_to_expert[at(slot)];
    if (present != kUnusedSlot && replicas_[at(present)] == 1) continue;
    const double hottest = hottest_after(load, present, rank, load[at(lost)]);
    if (best >= 0 && hottest >= min) continue;
    best = slot;
    min = hottest;
  }
  return best;
}

// The load of the hottest affected rank if the lost expert replaces `present` in a slot of `rank`.
double Rehomer::hottest_after(std::span<const double> load, int32_t present, int rank,
                              double arriving) const {
  const double here = rank_load_[at(rank)] + arriving;
  if (present == kUnusedSlot) return here;
  const double tokens = load[at(present)];
  const int replicas = replicas_[at(present)];
  const double grown = tokens / (replicas - 1) - tokens / replicas;
  return std::max(here - tokens / replicas, holders_[at(present)].max_but(rank) + grown);
}

}  // namespace wideep::balance
