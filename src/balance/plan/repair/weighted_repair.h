// SPDX-License-Identifier: Apache-2.0
//
// Repair for engines that split by shares: the fewest moves after which some shares keep every rank
// at or below a level. CutSearch finds the moves; this class chooses the level.
//
// It tries the requested level first. If the moves do not reach it, bisection between it and the
// level of the old placement finds the lowest one that they reach: a lower maximum is always an
// improvement, and moves that do not lower it are not made.
//
// Thread safety: none. Deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/repair/cut_search.h"
#include "plan/repair/share_flow.h"
#include "wideep/balancer.h"

namespace wideep::balance {

// What a repair is to reach.
struct RepairGoal {
  double from_level = 0.0;  // the maximum rank load of the best shares for the placement before
  double level = 0.0;       // the requested one, which is lower
  int max_moves = 0;
};

class WeightedRepair {
 public:
  explicit WeightedRepair(const PlanShape& shape);

  // Allocates what run() needs for placements of the sizes of `from`; nothing when called again.
  void prepare(const Placement& from);

  // If the result is below goal.from_level, writes a placement within goal.max_moves of `from` and
  // its best shares.
  void run(std::span<const double> load, const Placement& from, const RepairGoal& goal,
           LayerPlan* to);

 private:
  bool try_level(double level);
  void halve(double low);

  ShareFlow flow_;
  CutSearch search_;
  Resplitter resplitter_;
  bool prepared_ = false;

  // Of the present run:
  std::span<const double> load_;
  const Placement* from_ = nullptr;
  int max_moves_ = 0;
  LayerPlan trial_;
  LayerPlan best_;
  double best_level_ = 0.0;
  int best_moves_ = 0;
};

}  // namespace wideep::balance
