// SPDX-License-Identifier: Apache-2.0
//
// Finds the moves that pay: starts from a placement and repeats the change that gains most per copy
// on the weighted samples, until no change gains its price.
//
// Two kinds of change, as in plan/repair/cut_search.h, but for many loads at once:
//
//   retarget  a slot that is free, or whose expert has other replicas, gets another expert: 1 copy
//   exchange  two slots exchange their experts: 2 copies
//
// In each sample some ranks are hot: no shares can lower their load. A change helps a sample only
// if an expert whose replicas are all on hot ranks (it is stuck) gets a slot outside. It gains at
// most the expert's load / the number of hot ranks, and at most the sample's imbalance. The sum of
// these bounds over the samples bounds every change with the expert, so only stuck experts are
// looked at, the most promising first, and only some candidates are evaluated exactly
// (SearchEffort): those with the best bounds, and among equal ones those that take the slot whose
// load is least, and leave the other rank coolest.
//
// Thread safety: one thread at a time. Deterministic. Allocates on the first calls only.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "online/placement_judge.h"
#include "online/sample_set.h"
#include "wideep/balancer.h"

namespace wideep::online {

struct SearchGoal {
  double tolerance = 0.0;  // imbalance at which to stop
  double price = 0.0;      // imbalance that each move must gain
  int max_moves = 0;
  // No step, list or trial begins after this much work (MoveSearch::work()), but for the first one
  // of each: a run makes a move if its first trial gains. What has been tried is made.
  double max_work = std::numeric_limits<double>::infinity();
};

// How many candidates a step looks at.
struct SearchEffort {
  size_t listed = 0;            // of each kind
  size_t listed_of_expert = 0;  // retargets of one stuck expert
  size_t exchanged = 0;         // slots, the most promising first, whose exchanges are looked at
  bool all_slots = false;       // of a rank, for a retarget; false: the one that is missed least
  // A step evaluates so many exactly, and more only as long as none gains and the imbalance is
  // large, where a search that ends too early costs most.
  int tried = 0;
  // Changes of one list are made while they gain at least this part of the best one; 1: only it.
  double nearly_as_much = 1.0;
};

// For layers of at most 128 slots, where it takes about a millisecond, and for larger ones.
inline constexpr int kMaxSlotsForThorough = 128;
inline constexpr SearchEffort kThorough{.listed = 64,
                                        .listed_of_expert = 64,
                                        .exchanged = 1000,
                                        .all_slots = true,
                                        .tried = 128,
                                        .nearly_as_much = 1.0};
inline constexpr SearchEffort kQuick{.listed = 32,
                                     .listed_of_expert = 8,
                                     .exchanged = 12,
                                     .all_slots = false,
                                     .tried = 16,
                                     .nearly_as_much = 0.5};
inline SearchEffort effort_for(const balance::PlanShape& shape) {
  return shape.num_slots <= kMaxSlotsForThorough ? kThorough : kQuick;
}

class MoveSearch {
 public:
  // The judge must outlive the search.
  MoveSearch(const balance::PlanShape& shape, PlacementJudge* judge, const SearchEffort& effort);
  MoveSearch(const balance::PlanShape& shape, PlacementJudge* judge)
      : MoveSearch(shape, judge, effort_for(shape)) {}

  // Changes the placement; no rank gets a second replica of an expert. Returns its imbalance.
  double run(const SampleSet& samples, const SearchGoal& goal, balance::Placement* placement);

  // Whether the last run() ended for goal.max_work alone: more moves may pay.
  bool cut_short() const { return cut_short_; }
  // Of all runs: an estimate of their time in nanoseconds on one present-day core, from what they
  // counted and not from a clock, so that equal input gives equal plans.
  double work() const { return work_ + judge_->work(); }

 private:
  struct Candidate {
    double score;    // an estimate of its gain per move, by which candidates are ordered
    double bound;    // its gain per move is at most this
    double gain;     // evaluated, after its price
    int32_t slot;    // gets `expert`, or exchanges its expert with slot `other`
    int32_t expert;  // -1: exchange
    int32_t other;   // -1: retarget
    int moves() const { return expert >= 0 ? 1 : 2; }
  };
  // An expert that is stuck in a sample, and what its leaving gains there at most.
  struct Stuck {
    int sample;
    double gain;
  };

  bool out_of_time() const { return work() >= end_of_run_; }
  int make_best(const SampleSet& samples, const SearchGoal& goal, int max_moves, double imbalance,
                balance::Placement* placement);
  double gain_of(const SampleSet& samples, const SearchGoal& goal, const Candidate& candidate,
                 double imbalance, double at_least);
  bool touches_changed(const Candidate& candidate, const balance::Placement& placement) const;
  void note_changed(const Candidate& candidate, const balance::Placement& before);
  void list(const SampleSet& samples, const SearchGoal& goal, const balance::Placement& placement);
  void count_holders(const balance::Placement& placement);
  void find_stuck(const SampleSet& samples, const balance::Placement& placement);
  void measure_slots(const SampleSet& samples, const balance::Placement& placement);
  void list_retargets(const balance::Placement& placement, double price);
  void add_retargets(int32_t expert, int rank, double gain, const balance::Placement& placement);
  void list_exchanges(const SampleSet& samples, const balance::Placement& placement, double price);
  void add_exchange(const SampleSet& samples, int slot, int other,
                    const balance::Placement& placement, double price);
  void keep_best(size_t begin, size_t max);
  static bool is_better(const Candidate& a, const Candidate& b);
  bool usable(int slot) const;
  bool holds(int rank, int32_t expert) const;
  bool is_hot(size_t sample, int rank) const {
    return state_[sample].hot[static_cast<size_t>(rank)] != 0;
  }

  balance::PlanShape shape_;
  SearchEffort effort_;
  PlacementJudge* judge_;
  std::vector<PlacementJudge::Sample> state_;
  std::vector<int> replicas_;              // [E]
  std::vector<char> holds_;                // [R, E]
  std::vector<int> outside_;               // [E] scratch: replicas on ranks that are not hot
  std::vector<std::vector<Stuck>> stuck_;  // [E] the samples in which an expert is stuck
  std::vector<double> max_;                // [E] sum of stuck_'s gains
  std::vector<int32_t> stuck_experts_;     // the greatest max_ first
  std::vector<double> leaves_;             // [sample, E] load of the experts that are stuck
  std::vector<double> slot_load_;          // [S] load of a slot, mean over samples
  std::vector<int> order_;                 // scratch
  std::vector<Candidate> candidates_;
  std::vector<char> changed_;          // [S] by an earlier change of the same list
  std::vector<char> changed_experts_;  // [E] moved by one
  balance::Placement trial_;
  double work_ = 0.0;
  double end_of_run_ = 0.0;  // work() at which the present run() ends
  bool cut_short_ = false;
};

}  // namespace wideep::online
