// SPDX-License-Identifier: Apache-2.0
//
// Finds the moves that pay: starts from a placement and repeats the change that gains most per copy
// on the weighted samples, until no change gains its price.
//
// Two kinds of change, as in balance/repair/cut_search.h, but for many loads at once:
//
//   retarget  a slot that is free, or whose expert has other replicas, gets another expert: 1 copy
//   exchange  two slots exchange their experts: 2 copies
//
// In each sample some ranks are hot: no shares can lower their load. A change helps a sample only
// if an expert whose replicas are all on hot ranks gets a slot outside. It gains at most the
// expert's load / the number of hot ranks, and at most the sample's imbalance. Candidates are
// sorted by this bound, and the best kTried of each kind are evaluated exactly.
//
// Thread safety: one thread at a time. Deterministic. Allocates on the first calls only.
#pragma once

#include <cstdint>
#include <vector>

#include "online/placement_judge.h"
#include "online/sample_set.h"
#include "wideep/balancer.h"

namespace wideep::online {

struct SearchGoal {
  double tolerance = 0.0;  // imbalance at which to stop
  double price = 0.0;      // imbalance that each move must gain
  int max_moves = 0;
};

class MoveSearch {
 public:
  // The judge must outlive the search.
  MoveSearch(const balance::PlanShape& shape, PlacementJudge* judge);

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

}  // namespace wideep::online
