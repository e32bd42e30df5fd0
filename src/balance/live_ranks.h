// SPDX-License-Identifier: Apache-2.0
//
// A shape with dead ranks, seen as the smaller one that is left: planners and repair work on that,
// and what they find is put back.
//
// Thread safety: plain value; const functions are pure.
#pragma once

#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

class LiveRanks {
 public:
  // REQUIRES: check_plan_shape(shape).ok().
  explicit LiveRanks(const PlanShape& shape);

  // The live ranks alone, each with as many slots as the one with most; one node. rank_slots is
  // empty where they have equally many: then it is a shape like any other.
  const PlanShape& shape() const { return live_; }

  // Puts a plan of shape() into the slots of the full shape: all others are unused. Allocates
  // nothing when `plan` has been used for it before.
  void expand(const LayerPlan& live_plan, LayerPlan* plan) const;

  // What a plan of the full shape keeps on the live ranks. Experts may be left without a slot.
  // Needs no shares.
  void contract(const Placement& placement, Placement* live_placement) const;

 private:
  // Calls visit(slot of the full shape, slot of the live shape) for all slots usable.
  template <typename Visit>
  void for_slots(Visit visit) const;

  PlanShape full_;
  PlanShape live_;
  std::vector<int> ranks_;  // [live ranks] their numbers
};

}  // namespace wideep::balance
