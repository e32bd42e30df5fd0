// SPDX-License-Identifier: Apache-2.0
//
// Moves experts across a minimum cut until no rank is above a level.
//
// The ranks that are stuck above the level (share_flow.h) fall into components of ranks that can
// pass load to each other. A component keeps its excess until one of its experts gets a slot
// outside. Two kinds of change:
//
//   retarget  a slot outside that is free, or whose expert has other replicas, becomes a replica of
//             an expert of the component. One copy of weights.
//   exchange  an expert of the component that has one replica changes places with a lighter one
//             outside. Two copies.
//
// A retarget gains min(h, g): h is the load that its expert can take out of the component, at most
// the expert's load, and g the load that its slot can take in; one new edge joins two networks that
// are otherwise closed. So experts and slots are chosen one after the other, not in pairs. Both are
// tried in the order of an estimate; a trial is exact, because it settles the flow after the move.
//
// Thread safety: none. Deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/repair/share_flow.h"

namespace wideep::balance {

class CutSearch {
 public:
  // Experts may also move to free slots that the shape's rank_slots allow.
  explicit CutSearch(const PlanShape& shape);

  // Changes the flow's placement by at most max_moves copies; each step makes the change that gains
  // most per copy. True: no excess is left. False: the budget is spent or no change helps.
  bool lower(ShareFlow& flow, double level, int max_moves);

  int moves() const { return moves_; }  // copies made by the last lower(), or fewer

 private:
  struct Candidate {
    double score;  // the higher, the earlier it is tried
    int32_t a;     // expert, or slot
    int32_t b;     // slot of an exchange
  };
  struct Change {
    double excess;  // that it leaves
    int32_t slot = -1;
    int32_t expert = -1;  // retarget
    int32_t other = -1;   // exchange with this slot
  };

  bool step(int budget);
  void find_component();
  double grow_component(int rank, int label);
  bool inside(int slot) const;
  bool may_take_expert(int slot) const;
  void list_experts();
  void list_slots();
  void list_exchanges();
  void list_exchanges_between(int hot_rank, int cold_rank);
  static void keep_best(std::vector<Candidate>& candidates, size_t count);
  Change best_retarget();
  void try_slots(int32_t expert, double enough, Change* best);
  void try_experts(Change* best);
  Change best_exchange();
  bool try_retarget(int slot, int expert, Change* best);
  double unavoidable(const Candidate& expert) const;
  void make(const Change& change);

  int num_ranks_;
  int slots_per_rank_;
  std::vector<char> usable_;  // [S]

  ShareFlow* flow_ = nullptr;
  double level_ = 0.0;
  double excess_ = 0.0;
  int moves_ = 0;

  std::vector<char> stuck_;     // [R] before any trial
  std::vector<int> component_;  // [R] label, -1: not stuck
  std::vector<int> queue_;
  int worst_ = 0;  // label of the component with the greatest excess
  double worst_excess_ = 0.0;

  std::vector<Candidate> experts_;
  std::vector<Candidate> slots_;
  std::vector<Candidate> exchanges_;
};

}  // namespace wideep::balance
