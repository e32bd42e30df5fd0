// SPDX-License-Identifier: Apache-2.0
//
// The slow search that MoveSearch is compared with: in every step it computes the bound of every
// change from every sample, and evaluates 64 candidates of each kind exactly.
//
// Thread safety: one thread at a time.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "online/move_search.h"
#include "online/placement_judge.h"
#include "online/sample_set.h"
#include "wideep/balancer.h"

namespace wideep::online {

using balance::kUnusedSlot;
using balance::Placement;

inline constexpr size_t kEveryTried = 64;

template <typename Candidate>
void apply_change(const Candidate& change, Placement* placement) {
  std::vector<int32_t>& experts = placement->slot_to_expert;
  if (change.expert >= 0) {
    experts[static_cast<size_t>(change.slot)] = change.expert;
  } else {
    std::swap(experts[static_cast<size_t>(change.slot)],
              experts[static_cast<size_t>(change.other)]);
  }
}

class EveryMoveSearch {
 public:
  // The judge must outlive the search.
  EveryMoveSearch(const balance::PlanShape& shape, PlacementJudge* judge);

  // Changes the placement; no rank gets a second replica of an expert. Returns its imbalance.
  double run(const SampleSet& samples, const SearchGoal& goal, balance::Placement* placement);

 private:
  struct Candidate {
    double score;    // an upper bound of its gain per move
    int32_t slot;    // gets `expert`, or exchanges its expert with slot `other`
    int32_t expert;  // -1: exchange
    int32_t other;   // -1: retarget
    int moves() const { return expert >= 0 ? 1 : 2; }
  };

  const Candidate* best_of(const SampleSet& samples, const SearchGoal& goal, int max_moves,
                           double imbalance, const balance::Placement& placement);
  void list(const SampleSet& samples, const balance::Placement& placement);
  void count_holders(const balance::Placement& placement);
  void value_experts(const SampleSet& samples, const balance::Placement& placement);
  void list_retargets(const SampleSet& samples, const balance::Placement& placement);
  void list_exchanges(const SampleSet& samples, const balance::Placement& placement);
  double exchange_score(const SampleSet& samples, int32_t a, int rank_a, int32_t b,
                        int rank_b) const;
  void keep_best(size_t begin);
  bool usable(int slot) const;
  bool holds(int rank, int32_t expert) const;

  balance::PlanShape shape_;
  PlacementJudge* judge_;
  std::vector<PlacementJudge::Sample> state_;
  std::vector<int> replicas_;   // [E]
  std::vector<char> holds_;     // [R, E]
  std::vector<double> leaves_;  // [sample, E] load that can leave the hot ranks with the expert
  std::vector<Candidate> candidates_;
  balance::Placement trial_;
};

inline EveryMoveSearch::EveryMoveSearch(const balance::PlanShape& shape, PlacementJudge* judge)
    : shape_(shape),
      judge_(judge),
      replicas_(static_cast<size_t>(shape.num_experts)),
      holds_(static_cast<size_t>(shape.ep_size) * replicas_.size()) {}

inline bool EveryMoveSearch::usable(int slot) const {
  const int per_rank = shape_.slots_per_rank();
  return slot % per_rank < shape_.usable_slots_of(slot / per_rank);
}

inline bool EveryMoveSearch::holds(int rank, int32_t expert) const {
  return holds_[static_cast<size_t>(rank) * replicas_.size() + static_cast<size_t>(expert)] != 0;
}

inline void EveryMoveSearch::count_holders(const Placement& placement) {
  std::fill(replicas_.begin(), replicas_.end(), 0);
  std::fill(holds_.begin(), holds_.end(), 0);
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    const int32_t expert = placement.slot_to_expert[static_cast<size_t>(slot)];
    if (expert == kUnusedSlot) continue;
    ++replicas_[static_cast<size_t>(expert)];
    holds_[static_cast<size_t>(placement.rank_of_slot(slot)) * replicas_.size() +
           static_cast<size_t>(expert)] = 1;
  }
}

// An expert is stuck in a sample if all its replicas are on hot ranks. leaves_ is its load then,
// and 0 for all others.
inline void EveryMoveSearch::value_experts(const SampleSet& samples, const Placement& placement) {
  const size_t experts = replicas_.size();
  leaves_.assign(state_.size() * experts, 0.0);
  for (size_t i = 0; i < state_.size(); ++i) {
    const PlacementJudge::Sample& sample = state_[i];
    if (sample.num_hot == 0) continue;
    const std::span<const double> load = samples.load(static_cast<int>(i));
    double* leaves = leaves_.data() + i * experts;
    for (size_t e = 0; e < experts; ++e) leaves[e] = load[e];
    for (int slot = 0; slot < placement.num_slots(); ++slot) {
      const int32_t expert = placement.slot_to_expert[static_cast<size_t>(slot)];
      const bool hot = sample.hot[static_cast<size_t>(placement.rank_of_slot(slot))] != 0;
      if (expert != kUnusedSlot && !hot) leaves[static_cast<size_t>(expert)] = 0.0;
    }
  }
}

inline void EveryMoveSearch::keep_best(size_t begin) {
  if (candidates_.size() - begin <= kEveryTried) return;
  const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = first + static_cast<std::ptrdiff_t>(kEveryTried);
  // Ties go to the lower slot: the standard does not fix the order of equal elements, and equal
  // input must give equal plans.
  std::nth_element(first, last, candidates_.end(), [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::pair(a.slot, a.expert + a.other) < std::pair(b.slot, b.expert + b.other);
  });
  candidates_.erase(last, candidates_.end());
}

inline void EveryMoveSearch::list_retargets(const SampleSet& samples, const Placement& placement) {
  const size_t begin = candidates_.size();
  for (int32_t expert = 0; expert < shape_.num_experts; ++expert) {
    for (int rank = 0; rank < shape_.ep_size; ++rank) {
      if (holds(rank, expert)) continue;
      double score = 0.0;
      for (size_t i = 0; i < state_.size(); ++i) {
        const PlacementJudge::Sample& sample = state_[i];
        if (sample.num_hot == 0 || sample.hot[static_cast<size_t>(rank)] != 0) continue;
        const double leaves = leaves_[i * replicas_.size() + static_cast<size_t>(expert)];
        score += samples.weight(static_cast<int>(i)) *
                 std::min(leaves / sample.num_hot, sample.imbalance);
      }
      if (score <= 0.0) continue;
      const int per_rank = shape_.slots_per_rank();
      for (int slot = rank * per_rank; slot < (rank + 1) * per_rank; ++slot) {
        const int32_t present = placement.slot_to_expert[static_cast<size_t>(slot)];
        if (!usable(slot)) continue;
        if (present != kUnusedSlot && replicas_[static_cast<size_t>(present)] < 2) continue;
        candidates_.push_back({score, slot, expert, -1});
      }
    }
  }
  keep_best(begin);
}

inline double EveryMoveSearch::exchange_score(const SampleSet& samples, int32_t a, int rank_a,
                                              int32_t b, int rank_b) const {
  const auto index_a = static_cast<size_t>(a), index_b = static_cast<size_t>(b);
  double score = 0.0;
  for (size_t i = 0; i < state_.size(); ++i) {
    const PlacementJudge::Sample& sample = state_[i];
    if (sample.num_hot == 0) continue;
    const bool hot_a = sample.hot[static_cast<size_t>(rank_a)] != 0;
    const bool hot_b = sample.hot[static_cast<size_t>(rank_b)] != 0;
    if (hot_a == hot_b) continue;
    const std::span<const double> load = samples.load(static_cast<int>(i));
    const double* leaves = leaves_.data() + i * replicas_.size();
    // The load that leaves the hot ranks minus the load that comes to them. The bound must not be
    // too low, so an expert with other replicas is taken to bring nothing.
    const double comes_a = replicas_[index_a] > 1 ? 0.0 : load[index_a];
    const double comes_b = replicas_[index_b] > 1 ? 0.0 : load[index_b];
    const double net = hot_a ? leaves[index_a] - comes_b : leaves[index_b] - comes_a;
    score += samples.weight(static_cast<int>(i)) * std::min(net / sample.num_hot, sample.imbalance);
  }
  // Per move: an exchange makes two.
  return score / 2.0;
}

inline void EveryMoveSearch::list_exchanges(const SampleSet& samples, const Placement& placement) {
  const size_t begin = candidates_.size();
  const int per_rank = shape_.slots_per_rank();
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    const int32_t a = placement.slot_to_expert[static_cast<size_t>(slot)];
    const int rank_a = slot / per_rank;
    if (a == kUnusedSlot) continue;
    for (int other = (rank_a + 1) * per_rank; other < placement.num_slots(); ++other) {
      const int32_t b = placement.slot_to_expert[static_cast<size_t>(other)];
      if (b == kUnusedSlot || holds(rank_a, b) || holds(other / per_rank, a)) continue;
      const double score = exchange_score(samples, a, rank_a, b, other / per_rank);
      if (score > 0.0) candidates_.push_back({score, slot, -1, other});
    }
  }
  keep_best(begin);
}

inline void EveryMoveSearch::list(const SampleSet& samples, const Placement& placement) {
  count_holders(placement);
  value_experts(samples, placement);
  candidates_.clear();
  list_retargets(samples, placement);
  list_exchanges(samples, placement);
  // The best bounds first: then the sums of later candidates end early.
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::pair(a.slot, a.expert + a.other) < std::pair(b.slot, b.expert + b.other);
  });
}

inline const EveryMoveSearch::Candidate* EveryMoveSearch::best_of(const SampleSet& samples,
                                                                  const SearchGoal& goal,
                                                                  int max_moves, double imbalance,
                                                                  const Placement& placement) {
  const Candidate* best = nullptr;
  double best_gain = 0.0;  // per move, after its price
  trial_ = placement;
  for (const Candidate& candidate : candidates_) {
    const int moves = candidate.moves();
    if (candidate.score - goal.price <= best_gain) break;  // the bounds descend
    if (moves > max_moves) continue;
    apply_change(candidate, &trial_);
    // A trial with more imbalance cannot beat the best one, so its sum may stop there.
    const double enough = imbalance - moves * (best_gain + goal.price);
    const double gain =
        (imbalance - judge_->imbalance(samples, trial_, enough)) / moves - goal.price;
    trial_ = placement;
    if (gain <= best_gain) continue;
    best = &candidate;
    best_gain = gain;
  }
  return best;
}

inline double EveryMoveSearch::run(const SampleSet& samples, const SearchGoal& goal,
                                   Placement* placement) {
  double imbalance = judge_->examine(samples, *placement, &state_);
  for (int left = goal.max_moves; left > 0 && imbalance > goal.tolerance;) {
    list(samples, *placement);
    const Candidate* best = best_of(samples, goal, left, imbalance, *placement);
    if (best == nullptr) break;
    apply_change(*best, placement);
    left -= best->moves();
    imbalance = judge_->examine(samples, *placement, &state_);
  }
  return imbalance;
}

}  // namespace wideep::online
