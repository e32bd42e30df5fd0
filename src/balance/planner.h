// SPDX-License-Identifier: Apache-2.0
//
// Planners behind one interface: the load of one MoE layer in, its placement and shares out.
//
// A planner is made for a shape and a policy; plan() is deterministic, allocates only on its first
// call, and keeps nothing else between calls.
//
// Thread safety: one thread at a time per planner.
#pragma once

#include <span>

#include "balance/plan.h"

namespace wideep::balance {

struct LayerPlan {
  Placement placement;
  Shares shares;  // for the planner's Split
};

class LayerPlanner {
 public:
  virtual ~LayerPlanner() = default;

  // load: [E] tokens per expert, finite and ≥ 0. Any unit: only ratios matter.
  virtual void plan(std::span<const double> load, LayerPlan* plan) = 0;
};

}  // namespace wideep::balance
