// SPDX-License-Identifier: Apache-2.0
//
// From equal shares on, 40 sweeps over the experts. In each, neighbouring replicas of an expert
// exchange what a Newton step says, clamped so that no share is negative, and the loads of both
// ranks follow. The 8-norm is smooth enough for Newton; a higher one has curves too sharp for it.
// It is not the goal itself, so the shares that are kept are the best by the sum of the windows'
// maxima.
#include "plan/window_shares.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/windowed_load.h"

namespace wideep::balance {
namespace {

constexpr int kSweeps = 40;

class ShareSearch {
 public:
  ShareSearch(std::span<const std::vector<double>> windows, const Placement& placement)
      : placement_(placement),
        parts_(parts_of_windows(windows)),
        shares_(equal_shares(placement)),
        slots_of_(static_cast<size_t>(placement.num_experts)) {
    const std::vector<int32_t>& experts = placement.slot_to_expert;
    for (size_t slot = 0; slot < experts.size(); ++slot) {
      if (experts[slot] >= 0) slots_of_[static_cast<size_t>(experts[slot])].push_back(slot);
    }
  }

  Shares find() {
    Shares best = shares_;
    double min = refresh();
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      for (size_t expert = 0; expert < slots_of_.size(); ++expert) level(expert);
      const double now = refresh();
      if (now >= min) continue;
      min = now;
      best = shares_;
    }
    return best;
  }

 private:
  size_t rank_of(size_t slot) const {
    return static_cast<size_t>(placement_.rank_of_slot(static_cast<int>(slot)));
  }

  // Loads of all ranks, every window scaled to its hottest rank. Returns the mean over windows of
  // the hottest rank's part of the tokens.
  double refresh() {
    loads_.clear();
    unit_.clear();
    for (const std::vector<double>& window : parts_) {
      loads_.push_back(rank_loads(placement_, window, shares_));
      unit_.push_back(*std::max_element(loads_.back().begin(), loads_.back().end()));
    }
    return std::accumulate(unit_.begin(), unit_.end(), 0.0);
  }

  void level(size_t expert) {
    const std::vector<size_t>& slots = slots_of_[expert];
    for (size_t i = 1; i < slots.size(); ++i) move_share(expert, slots[i - 1], slots[i]);
  }

  // Σ over windows of x^8 of both ranks, x the load by the hottest rank's: first and second
  // derivative by the share that goes from one slot to the other.
  void move_share(size_t expert, size_t from, size_t to) {
    const size_t hot = rank_of(from), cold = rank_of(to);
    double slope = 0.0, curve = 0.0;
    for (size_t w = 0; w < parts_.size(); ++w) {
      if (unit_[w] <= 0.0) continue;
      const double load = parts_[w][expert] / unit_[w];
      const double x = loads_[w][hot] / unit_[w], y = loads_[w][cold] / unit_[w];
      const double x6 = std::pow(x, 6), y6 = std::pow(y, 6);
      slope += load * (y * y6 - x * x6);
      curve += load * load * 7.0 * (y6 + x6);
    }
    if (hot == cold || curve <= 0.0) return;
    const double moved = std::clamp(-slope / curve, -shares_[to], shares_[from]);
    shares_[from] -= moved;
    shares_[to] += moved;
    for (size_t w = 0; w < parts_.size(); ++w) {
      loads_[w][hot] -= moved * parts_[w][expert];
      loads_[w][cold] += moved * parts_[w][expert];
    }
  }

  const Placement& placement_;
  Windows parts_;
  Shares shares_;
  std::vector<std::vector<size_t>> slots_of_;  // [E]
  std::vector<std::vector<double>> loads_;     // [window][R]
  std::vector<double> unit_;                   // [window] load of the hottest rank
};

}  // namespace

Shares shares_for_windows(std::span<const std::vector<double>> windows,
                          const Placement& placement) {
  return ShareSearch(windows, placement).find();
}

}  // namespace wideep::balance
