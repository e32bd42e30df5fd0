// SPDX-License-Identifier: Apache-2.0
//
// A plan for every MoE layer of a model, from its statistics.
//
// Thread safety: pure function.
#pragma once

#include <map>
#include <string_view>

#include "balance/statistics.h"
#include "wideep/balancer.h"

namespace wideep::balance {

// Every layer of the statistics, for its load summed over iterations and ranks. The shape's
// num_experts is taken from the statistics.
struct PlannedModel {
  ModelPlacement placement;
  std::map<int, Shares> shares;  // by layer
};
Result<PlannedModel> plan_model(std::string_view planner, const ExpertStatistics& statistics,
                                PlanShape shape, const PlannerOptions& options);

}  // namespace wideep::balance
