// SPDX-License-Identifier: Apache-2.0
//
// Converts a shape with dead ranks to the smaller shape of its live ranks, and plans between the
// two: planners and repair work on the live shape.
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

  // The live ranks alone, each with as many slots as the largest of them; one node. rank_slots is
  // empty if all have equally many: then the shape is an ordinary one.
  const PlanShape& shape() const { return live_; }

  // Writes a plan of shape() into the slots of the full shape; all other slots are unused.
  // Allocates nothing if an earlier call has sized `plan`.
  void expand(const LayerPlan& live_plan, LayerPlan* plan) const;

  // The part of a placement of the full shape that is on the live ranks. Experts may be left
  // without a slot. Needs no shares.
  void contract(const Placement& placement, Placement* live_placement) const;

 private:
  // Calls visit(slot of the full shape, slot of the live shape) for every usable slot.
  template <typename Visit>
  void for_slots(Visit visit) const;

  PlanShape full_;
  PlanShape live_;
  std::vector<int> ranks_;  // [live ranks] their numbers
};

}  // namespace wideep::balance
