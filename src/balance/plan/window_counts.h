// SPDX-License-Identifier: Apache-2.0
//
// Balances a placement in several windows at once, replica counts included.
//
// With two to four slots on a rank, swaps of experts (window_swaps.h) are not enough: a window is
// uneven because an expert that is hot in it has too few replicas, and the mean over windows does
// not show that. So here a slot may also change its expert. The search is simulated annealing over
// two kinds of moves, from a rank that is hot in some window: a swap of two slots, and a slot of an
// expert with several replicas that becomes a replica of one of the hot rank's experts.
//
// It minimises the mean over windows of the hottest rank, all windows scaled to the same load and
// split equally. Instead of the maximum, which most moves leave as it is, it sees the 32-norm of
// the ranks' loads; the placement that is kept is the best by the maximum itself. 7 windows, of
// which the eighth is served (DeepSeek-V3's recordings): the 16-norm and the 64-norm reach the
// same, the 8-norm less.
//
// What did not help loads that are not among the windows: windows pulled towards their mean or
// pushed away from it, one more window of the largest loads, windows with noise.
//
// Thread safety: one thread at a time per CountSearch; pure function.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

struct CountSearchOptions {
  int tries_per_slot = 2000;
  int min_tries = 20000;    // so few take no time, and few slots need them
  int times = 1;            // anneals so many times, each time from the best so far
  double tolerance = 1e-3;  // the mean imbalance over windows at which the search ends
};

// Keeps its work space.
class CountSearch {
 public:
  CountSearch(const PlanShape& shape, size_t num_windows);
  ~CountSearch();
  CountSearch(CountSearch&&) noexcept;
  CountSearch& operator=(CountSearch&&) noexcept;

  // windows: [num_windows][E], finite and ≥ 0, at least one. plan: a valid placement of the shape
  // without two replicas of an expert on a rank; gets another one and equal shares. Its mean over
  // windows of the imbalance with equal split never rises. Experts stay on their node where the
  // shape keeps groups on nodes, unused slots stay unused. Deterministic, whatever was searched
  // before.
  void run(std::span<const std::vector<double>> windows, const CountSearchOptions& options,
           LayerPlan* plan);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// A single CountSearch::run.
void search_counts_for_windows(std::span<const std::vector<double>> windows, const PlanShape& shape,
                               const CountSearchOptions& options, LayerPlan* plan);

}  // namespace wideep::balance
