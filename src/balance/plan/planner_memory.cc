// SPDX-License-Identifier: Apache-2.0
//
// Counts, layout, shares, in this order, because each is free to repair what the one before left:
// counts are made placeable before anything is placed (CountFitter), two layouts compete after
// swaps, and a construction that always works stands behind both. The first layout ends the search
// if it is within the tolerance.
#include "plan/planner_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/try.h"
#include "plan/repair/weighted_repair.h"
#include "plan/search/search.h"

namespace wideep::balance {
namespace {

using search::Board;

size_t at(int i) { return static_cast<size_t>(i); }

// Changes replica counts so that no rank must hold an expert twice (Gale and Ryser,
// planner_memory.h).
class CountFitter {
 public:
  explicit CountFitter(const std::vector<int>& rank_slots)
      : slots_(rank_slots), at_least_(rank_slots.size() + 2) {
    std::sort(slots_.begin(), slots_.end(), std::greater<>());
  }

  // The counts are from 1 to the number of ranks, and their sum is that of the slots.
  void fit(Board& board) {
    count_experts(board);
    int placeable = 0, wanted = 0;
    for (int j = 1; j <= board.num_ranks; ++j) {
      placeable += at_least_[at(j)];  // Σ min(r_e, j)
      wanted += slots_[at(j - 1)];
      for (; placeable < wanted; ++placeable) move_replica(board, j);
    }
  }

 private:
  void count_experts(const Board& board) {
    std::fill(at_least_.begin(), at_least_.end(), 0);
    for (int e = 0; e < board.num_experts; ++e) {
      for (int r = 1; r <= board.replicas[at(e)]; ++r) ++at_least_[at(r)];
    }
  }

  // Takes a replica from the expert that grows least without it, and gives it to the expert with
  // the heaviest replicas. Both exist: the counts sum to all slots, and all experts on j ranks
  // would fill them.
  void move_replica(Board& board, int j) {
    int giver = -1, taker = -1;
    float min = 0.0f, max = 0.0f;
    for (int e = 0; e < board.num_experts; ++e) {
      const int count = board.replicas[at(e)];
      const float without = board.load[at(e)] / static_cast<float>(count - (count > j));
      if (count > j && (giver < 0 || without < min)) giver = e, min = without;
      if (count < j && (taker < 0 || without > max)) taker = e, max = without;
    }
    WIDEEP_CHECK(giver >= 0 && taker >= 0);
    --at_least_[at(board.replicas[at(giver)]--)];
    ++at_least_[at(++board.replicas[at(taker)])];
  }

  std::vector<int> slots_;     // descending
  std::vector<int> at_least_;  // [R + 2] experts with as many replicas or more
};

class MemoryPlanner : public LayerPlanner {
 public:
  MemoryPlanner(const PlanShape& shape, const PlannerOptions& options)
      : shape_(shape),
        options_(options),
        search_(search::best_search()),
        fitter_(shape.rank_slots),
        lightest_(shape.num_experts, shape.ep_size, shape.slots_per_rank()),
        neediest_(lightest_),
        order_(at(shape.ep_size)),
        repair_(shape) {
    lightest_.capacity = neediest_.capacity = shape.rank_slots;
  }

  void plan(const LayerLoad& layer, LayerPlan* plan) override {
    WIDEEP_CHECK_EQ(layer.tokens.size(), at(shape_.num_experts));
    lightest_.set_load(layer.tokens);
    search_.replicate(lightest_, shape_.num_usable_slots());
    fitter_.fit(lightest_);
    neediest_.load = lightest_.load;
    neediest_.replicas = lightest_.replicas;
    write(best_layout(), plan);
    if (options_.split == Split::kWeighted) choose_shares(layer.tokens, plan);
  }

 private:
  const Board& best_layout() {
    const float lightest = lay_out(lightest_, search::fill_lightest_first);
    if (lightest <= static_cast<float>(options_.tolerance)) return lightest_;
    const float neediest = lay_out(neediest_, search::fill_neediest_first);
    if (std::isinf(std::min(lightest, neediest))) fill_emptiest_ranks(lightest_);
    return lightest <= neediest ? lightest_ : neediest_;
  }

  // Returns the imbalance; infinite if two replicas of an expert share a rank.
  float lay_out(Board& board, void (*fill)(Board&)) {
    board.clear_slots();
    fill(board);
    if (!search::separate_replicas(board)) return std::numeric_limits<float>::infinity();
    return improve(board);
  }

  float improve(Board& board) {
    return search_.improve(board, {static_cast<float>(options_.tolerance), options_.max_rounds});
  }

  // Puts each expert on the ranks with most free slots, lighter ones first among equals. Ryser's
  // construction: it ends with replicas apart for all counts that CountFitter accepts.
  void fill_emptiest_ranks(Board& board) {
    board.clear_slots();
    const auto earlier = [&](int a, int b) {
      const int free_a = board.capacity[at(a)] - board.filled[at(a)];
      const int free_b = board.capacity[at(b)] - board.filled[at(b)];
      if (free_a != free_b) return free_a > free_b;
      const float load_a = board.rank_load[at(a)], load_b = board.rank_load[at(b)];
      return load_a != load_b ? load_a < load_b : a < b;
    };
    for (int expert = 0; expert < board.num_experts; ++expert) {
      const int replicas = board.replicas[at(expert)];
      std::iota(order_.begin(), order_.end(), 0);
      std::partial_sort(order_.begin(), order_.begin() + replicas, order_.end(), earlier);
      for (int i = 0; i < replicas; ++i) board.put(order_[at(i)], expert);
    }
    improve(board);
  }

  void write(const Board& board, LayerPlan* plan) const {
    plan->placement.num_experts = shape_.num_experts;
    plan->placement.ep_size = shape_.ep_size;
    plan->placement.slot_to_expert.assign(at(shape_.num_slots), kUnusedSlot);
    plan->shares.assign(at(shape_.num_slots), 0.0);
    for (int rank = 0; rank < shape_.ep_size; ++rank) {
      for (int i = 0; i < board.filled[at(rank)]; ++i) {
        const size_t slot = at(rank * shape_.slots_per_rank() + i);
        const int32_t expert = board.experts_of(rank)[i];
        plan->placement.slot_to_expert[slot] = expert;
        plan->shares[slot] = 1.0 / board.replicas[at(expert)];
      }
    }
  }

  // Shares come first because they cost nothing; the repair changes the placement only if they are
  // not enough.
  void choose_shares(std::span<const double> load, LayerPlan* plan) {
    resplitter_.reset(plan->placement);
    const double reached = resplitter_.resplit(load, plan->shares);
    const double mean = std::accumulate(load.begin(), load.end(), 0.0) / shape_.ep_size;
    const double level = mean * (1.0 + options_.tolerance);
    if (reached <= level) return;
    start_ = plan->placement;
    repair_.run(
        load, start_,
        {.from_level = reached, .level = level, .max_moves = std::numeric_limits<int>::max()},
        plan);
  }

  PlanShape shape_;
  PlannerOptions options_;
  const search::Search& search_;
  CountFitter fitter_;
  Board lightest_;
  Board neediest_;
  std::vector<int> order_;  // [R] scratch
  Resplitter resplitter_;
  WeightedRepair repair_;
  Placement start_;
};

}  // namespace

Result<std::unique_ptr<LayerPlanner>> make_memory_planner(const PlanShape& shape,
                                                          const PlannerOptions& options) {
  WIDEEP_TRY(check_plan_shape(shape));
  for (int rank = 0; rank < shape.ep_size; ++rank) {
    if (shape.usable_slots_of(rank) <= shape.num_experts) continue;
    return invalid_input(fmt::format(
        "rank_slots: {} usable slots for {} experts would put two replicas of an expert on one "
        "rank, which gains nothing; expected at most {}",
        shape.usable_slots_of(rank), shape.num_experts, shape.num_experts));
  }
  return std::unique_ptr<LayerPlanner>(std::make_unique<MemoryPlanner>(shape, options));
}

}  // namespace wideep::balance
