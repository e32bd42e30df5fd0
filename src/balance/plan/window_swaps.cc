// SPDX-License-Identifier: Apache-2.0
//
// In rounds: for each window the hottest rank makes its best swap, until no window has one. All
// swaps of a slot with a rank's slots are weighed in one pass, with the slots of a window side by
// side, so that the compiler vectorises it. Squares instead of the maximum: every swap then moves
// towards evenness, also one that leaves the hottest rank as it is.
#include "plan/window_swaps.h"

#include <algorithm>
#include <utility>

#include "plan/windowed_load.h"

namespace wideep::balance {
namespace {

constexpr double kMinGain = 1e-9;  // of a sum of squares whose terms are about 1

class WindowSwaps {
 public:
  WindowSwaps(std::span<const std::vector<double>> windows, const PlanShape& shape, LayerPlan* plan)
      : plan_(*plan),
        num_windows_(windows.size()),
        num_ranks_(static_cast<size_t>(shape.ep_size)),
        num_slots_(plan->placement.slot_to_expert.size()),
        per_rank_(num_slots_ / num_ranks_),
        // Groups stay on nodes only if there are groups; without them all ranks are one node for
        // swaps.
        ranks_per_node_(shape.num_groups > 1 ? num_ranks_ / static_cast<size_t>(shape.num_nodes)
                                             : num_ranks_),
        slot_load_(num_windows_ * num_slots_, 0.0),
        rank_load_(num_windows_ * num_ranks_, 0.0),
        movable_(num_slots_, 0),
        gap_(num_windows_),
        change_(per_rank_) {
    find_movable();
    sum_loads(parts_of_windows(windows));
  }

  void run() {
    // Each round lowers the sum of squares; the limit is for loads on which rounding does not let
    // it end.
    const size_t max_rounds = 4 * num_slots_;
    for (size_t round = 0; round < max_rounds && cool_each_window(); ++round) {
    }
  }

 private:
  struct Best {
    double change = -kMinGain;
    size_t slot = 0, other = 0;
  };

  void find_movable() {
    std::vector<int> replicas(static_cast<size_t>(plan_.placement.num_experts), 0);
    for (const int32_t expert : plan_.placement.slot_to_expert) {
      if (expert >= 0) ++replicas[static_cast<size_t>(expert)];
    }
    for (size_t slot = 0; slot < num_slots_; ++slot) {
      const int32_t expert = plan_.placement.slot_to_expert[slot];
      movable_[slot] = expert >= 0 && replicas[static_cast<size_t>(expert)] == 1;
    }
  }

  // Scaled to a mean rank load of 1 in every window, so that each window counts the same.
  void sum_loads(const Windows& parts) {
    for (size_t w = 0; w < num_windows_; ++w) {
      for (size_t slot = 0; slot < num_slots_; ++slot) {
        const int32_t expert = plan_.placement.slot_to_expert[slot];
        if (expert < 0) continue;
        const double load = parts[w][static_cast<size_t>(expert)] * plan_.shares[slot] *
                            static_cast<double>(num_ranks_);
        slot_load_[w * num_slots_ + slot] = load;
        rank_load_[w * num_ranks_ + slot / per_rank_] += load;
      }
    }
  }

  bool cool_each_window() {
    bool any = false;
    for (size_t w = 0; w < num_windows_; ++w) {
      const auto first = rank_load_.begin() + static_cast<std::ptrdiff_t>(w * num_ranks_);
      const auto hottest = std::max_element(first, first + static_cast<std::ptrdiff_t>(num_ranks_));
      any |= cool(static_cast<size_t>(hottest - first));
    }
    return any;
  }

  // Makes the best swap of the rank with any other of its node. False: no swap lowers the sum.
  bool cool(size_t rank) {
    Best best;
    const size_t node = rank / ranks_per_node_;
    for (size_t other = node * ranks_per_node_; other < (node + 1) * ranks_per_node_; ++other) {
      if (other != rank) try_swaps(rank, other, &best);
    }
    // Strictly lower by more than rounding: otherwise two swaps could undo each other for ever.
    if (best.change >= -kMinGain) return false;
    swap(best.slot, best.other);
    return true;
  }

  void try_swaps(size_t rank, size_t other, Best* best) {
    for (size_t w = 0; w < num_windows_; ++w) {
      gap_[w] = rank_load_[w * num_ranks_ + rank] - rank_load_[w * num_ranks_ + other];
    }
    for (size_t slot = rank * per_rank_; slot < (rank + 1) * per_rank_; ++slot) {
      if (!movable_[slot]) continue;
      weigh_swaps(slot, other);
      for (size_t i = 0; i < per_rank_; ++i) {
        const size_t with = other * per_rank_ + i;
        if (movable_[with] && change_[i] < best->change) *best = {change_[i], slot, with};
      }
    }
  }

  // Half of the change of the sum by a swap with each slot of the other rank. The inner loop runs
  // over slots, which are contiguous, so that the compiler vectorises it.
  void weigh_swaps(size_t slot, size_t other) {
    std::fill(change_.begin(), change_.end(), 0.0);
    for (size_t w = 0; w < num_windows_; ++w) {
      const double load = slot_load_[w * num_slots_ + slot], gap = gap_[w];
      const double* others = &slot_load_[w * num_slots_ + other * per_rank_];
      for (size_t i = 0; i < per_rank_; ++i) {
        const double moved = load - others[i];
        change_[i] += moved * (moved - gap);
      }
    }
  }

  void swap(size_t slot, size_t other) {
    for (size_t w = 0; w < num_windows_; ++w) {
      double* loads = &slot_load_[w * num_slots_];
      double* ranks = &rank_load_[w * num_ranks_];
      const double moved = loads[slot] - loads[other];
      ranks[slot / per_rank_] -= moved;
      ranks[other / per_rank_] += moved;
      std::swap(loads[slot], loads[other]);
    }
    std::swap(plan_.placement.slot_to_expert[slot], plan_.placement.slot_to_expert[other]);
    std::swap(plan_.shares[slot], plan_.shares[other]);
  }

  LayerPlan& plan_;
  size_t num_windows_, num_ranks_, num_slots_, per_rank_, ranks_per_node_;
  std::vector<double> slot_load_;  // [window][S]
  std::vector<double> rank_load_;  // [window][R]
  std::vector<char> movable_;      // [S] its expert has no other replica
  std::vector<double> gap_;        // [window] between two ranks
  std::vector<double> change_;     // [slots per rank]
};

}  // namespace

void swap_for_windows(std::span<const std::vector<double>> windows, const PlanShape& shape,
                      LayerPlan* plan) {
  WindowSwaps(windows, shape, plan).run();
}

}  // namespace wideep::balance
