// SPDX-License-Identifier: Apache-2.0
#include "plan/repair/weighted_repair.h"

#include <algorithm>
#include <utility>

#include "plan/moves.h"

namespace wideep::balance {
namespace {

constexpr int kHalvings = 6;
constexpr double kSlack = 1e-9;  // relative: levels that differ by less are equal

}  // namespace

WeightedRepair::WeightedRepair(const PlanShape& shape)
    : flow_(shape.num_experts, shape.ep_size, shape.slots_per_rank()), search_(shape) {}

void WeightedRepair::prepare(const Placement& from) {
  if (prepared_) return;
  prepared_ = true;
  best_.placement = from;
  best_.shares.resize(from.slot_to_expert.size());
  trial_ = best_;
  resplitter_.reset(from);
}

void WeightedRepair::run(std::span<const double> load, const Placement& from,
                         const RepairGoal& goal, LayerPlan* to) {
  load_ = load;
  from_ = &from;
  max_moves_ = goal.max_moves;
  best_.placement = from;
  best_.shares.resize(from.slot_to_expert.size());
  trial_ = best_;
  best_level_ = goal.from_level;
  best_moves_ = 0;
  if (!try_level(goal.level)) halve(goal.level);
  if (best_moves_ > 0) *to = best_;
}

// False: the level was not reached. The result may still be the best so far, so it is compared by
// the level that the best shares give it, then by its moves.
bool WeightedRepair::try_level(double level) {
  flow_.assign(from_->slot_to_expert, load_);
  const bool reached = search_.lower(flow_, level, max_moves_);
  std::copy(flow_.slot_to_expert().begin(), flow_.slot_to_expert().end(),
            trial_.placement.slot_to_expert.begin());
  resplitter_.reset(trial_.placement);
  const double trial_level = resplitter_.resplit(load_, trial_.shares);
  const int moves = count_moves(*from_, trial_.placement);
  const bool lower = trial_level < best_level_ * (1.0 - kSlack);
  const bool as_low = trial_level <= best_level_ * (1.0 + kSlack);
  if (lower || (as_low && moves < best_moves_)) {
    std::swap(trial_, best_);
    best_level_ = trial_level;
    best_moves_ = moves;
  }
  return reached;
}

// Bisects between a level that was not reached and the best one. The last trial aims at the best
// level itself: a higher goal often takes fewer moves for the same result.
void WeightedRepair::halve(double low) {
  for (int i = 0; i < kHalvings && low < best_level_ * (1.0 - kSlack); ++i) {
    const double middle = 0.5 * (low + best_level_);
    if (!try_level(middle)) low = middle;
  }
  if (best_moves_ > 0) try_level(best_level_);
}

}  // namespace wideep::balance
