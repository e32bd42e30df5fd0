// SPDX-License-Identifier: Apache-2.0
//
// Adapts any planner to shapes with dead ranks: it plans the live ranks, and the slots of the
// others stay unused.
#pragma once

#include <functional>
#include <memory>

#include "wideep/balancer.h"

namespace wideep::balance {

// make_inside makes the planner for a shape without dead ranks, whose rank_slots are empty or
// unequal. Errors (invalid input): as check_plan_shape and make_inside.
using MakePlanner = std::function<Result<std::unique_ptr<LayerPlanner>>(const PlanShape& shape)>;
Result<std::unique_ptr<LayerPlanner>> make_masked_planner(const PlanShape& shape,
                                                          const MakePlanner& make_inside);

}  // namespace wideep::balance
