// SPDX-License-Identifier: Apache-2.0
//
// Items stay in one sorted list. Each rank takes a run of whole items out of it and a part of the
// last, heaviest one, whose rest goes back to its place: one insertion instead of another sort.
// The run slides up from the lightest items and its sum is updated, so a rank costs one pass.
#include "plan/placement_exact.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace wideep::balance {
namespace {

constexpr int32_t kEmpty = -1;

bool lighter(const ExactPlacer::Item& a, const ExactPlacer::Item& b) {
  // The id breaks ties, so that the plan does not depend on the sort's implementation.
  return a.load != b.load ? a.load < b.load : a.expert < b.expert;
}

}  // namespace

ExactPlacer::ExactPlacer(const PlanShape& shape) { set_shape(shape); }

void ExactPlacer::set_shape(const PlanShape& shape) {
  WIDEEP_CHECK(exact_placement_exists(shape));
  shape_ = shape;
  const auto slots = static_cast<size_t>(shape.num_slots);
  const auto experts = static_cast<size_t>(shape.num_experts);
  items_.reserve(slots + 1);
  parts_.reserve(slots);
  by_load_.resize(experts);
  replicas_.resize(experts);
}

void ExactPlacer::place(std::span<const double> load, LayerPlan* plan) {
  split(load);
  fill_empty_slots(load);
  plan->placement.num_experts = shape_.num_experts;
  plan->placement.ep_size = shape_.ep_size;
  plan->placement.slot_to_expert.resize(parts_.size());
  plan->shares.resize(parts_.size());
  std::fill(replicas_.begin(), replicas_.end(), 0);
  for (const Item& part : parts_) ++replicas_[static_cast<size_t>(part.expert)];
  for (size_t slot = 0; slot < parts_.size(); ++slot) {
    const auto expert = static_cast<size_t>(parts_[slot].expert);
    plan->placement.slot_to_expert[slot] = parts_[slot].expert;
    // Without load any shares balance; equal ones keep their sum at 1.
    plan->shares[slot] =
        load[expert] > 0.0 ? parts_[slot].load / load[expert] : 1.0 / replicas_[expert];
  }
}

// The last rank takes what is left: K items, whose total is T.
void ExactPlacer::split(std::span<const double> load) {
  const auto ranks = static_cast<size_t>(shape_.ep_size);
  const auto whole = static_cast<size_t>(shape_.slots_per_rank() - 1);
  const double total = std::accumulate(load.begin(), load.end(), 0.0);
  items_.assign(ranks * whole + 1, Item{0.0, kEmpty});
  for (size_t e = 0; e < load.size(); ++e) items_[e] = {load[e], static_cast<int32_t>(e)};
  std::sort(items_.begin(), items_.end(), lighter);
  parts_.clear();
  for (size_t rank = 0; rank + 1 < ranks; ++rank) {
    fill_rank(whole, total / static_cast<double>(ranks));
  }
  parts_.insert(parts_.end(), items_.begin(), items_.end());
}

// `whole` whole items and a part of the heaviest.
void ExactPlacer::fill_rank(size_t whole, double target) {
  const size_t first = window(whole, target);
  double sum = 0;
  for (size_t i = first; i < first + whole; ++i) {
    parts_.push_back(items_[i]);
    sum += items_[i].load;
  }
  Item heaviest = items_.back();
  // Exact arithmetic needs no clamp (see the proof); rounding may.
  const double part = std::clamp(target - sum, 0.0, heaviest.load);
  parts_.push_back({part, heaviest.expert});
  items_.pop_back();
  items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(first),
               items_.begin() + static_cast<std::ptrdiff_t>(first + whole));
  heaviest.load -= part;
  items_.insert(std::upper_bound(items_.begin(), items_.end(), heaviest, lighter), heaviest);
}

// The first run of `whole` items that reaches the target together with the heaviest.
size_t ExactPlacer::window(size_t whole, double target) const {
  const double wanted = target - items_.back().load;
  double sum = 0;
  for (size_t i = 0; i < whole; ++i) sum += items_[i].load;
  size_t first = 0;
  while (sum < wanted && first + whole + 1 < items_.size()) {
    sum += items_[first + whole].load - items_[first].load;
    ++first;
  }
  return first;
}

// A replica without a share costs no balance now, and gives a later re-split a choice. Each empty
// slot gets the heaviest expert that its rank lacks. One exists because S ≤ E·R.
void ExactPlacer::fill_empty_slots(std::span<const double> load) {
  std::iota(by_load_.begin(), by_load_.end(), 0);
  std::sort(by_load_.begin(), by_load_.end(), [&](int32_t a, int32_t b) {
    const double load_a = load[static_cast<size_t>(a)], load_b = load[static_cast<size_t>(b)];
    return load_a != load_b ? load_a > load_b : a < b;
  });
  const auto per_rank = static_cast<size_t>(shape_.slots_per_rank());
  for (size_t slot = 0; slot < parts_.size(); ++slot) {
    if (parts_[slot].expert != kEmpty) continue;
    const auto rank = std::span(parts_).subspan(slot / per_rank * per_rank, per_rank);
    const auto lacks = [&](int32_t expert) {
      return std::none_of(rank.begin(), rank.end(),
                          [&](const Item& part) { return part.expert == expert; });
    };
    parts_[slot].expert = *std::find_if(by_load_.begin(), by_load_.end(), lacks);
  }
}

void place_exact(std::span<const double> load, const PlanShape& shape, LayerPlan* plan) {
  ExactPlacer(shape).place(load, plan);
}

}  // namespace wideep::balance
