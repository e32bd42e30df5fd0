// SPDX-License-Identifier: Apache-2.0
//
// The moves that pay: from a placement, step by step, the change that gains most per copy on the
// weighted samples, until none is worth its price.
//
// Two kinds of change, as in balance/repair/cut_search.h, but for many loads at once:
//
//   retarget  a slot that is free, or whose expert has other replicas, gets another expert: 1 copy
//   exchange  two slots exchange their experts: 2 copies
//
// In each sample some ranks are hot: no shares relieve them. A change can only help a sample if an
// expert all of whose replicas are there gets a slot outside, by at most the expert's load / the
// hot ranks, or what the sample exceeds the mean by. By this bound candidates are listed, and the
// best kTried of each kind are judged exactly.
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
  double price = 0.0;      // imbalance that one move has to gain
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
    double score;    // no gain per move is higher
    int32_t slot;    // gets `expert`, or exchanges with slot `other`
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
  std::vector<double> leaves_;  // [sample, E] what a sample gains when the expert gets a way out
  std::vector<Candidate> candidates_;
  balance::Placement trial_;
};

}  // namespace wideep::online
