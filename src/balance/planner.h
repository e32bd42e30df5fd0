// SPDX-License-Identifier: Apache-2.0
//
// Planners behind one interface: the load of one MoE layer in, its placement and shares out.
//
// A planner is made for a shape and a policy; plan() is deterministic, allocates only on its first
// call, and keeps nothing else between calls.
//
// Thread safety: one thread at a time per planner.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "balance/plan.h"
#include "balance/statistics.h"
#include "wideep/status.h"

namespace wideep::balance {

struct LayerPlan {
  Placement placement;
  Shares shares;  // for the planner's Split
};

struct PlannerOptions {
  Split split = Split::kEqual;
  // Of planner wideep: the imbalance ratio at which the search stops, and its longest duration.
  double tolerance = 1e-3;
  int max_rounds = 100;  // of swaps, per layer
};

class LayerPlanner {
 public:
  virtual ~LayerPlanner() = default;

  // load: [E] tokens per expert, finite and ≥ 0. Any unit: only ratios matter.
  virtual void plan(std::span<const double> load, LayerPlan* plan) = 0;
};

// The planners by name:
//   wideep    balance first, replicas on a ring, never two of an expert on one rank
//             (planner_wideep.h); with kWeighted exact where exact_placement_exists
//   trt       TensorRT-LLM's greedy (placement_trt.h)
//   deepseek  DeepSeek's, hierarchical where groups divide among nodes (placement_deepseek.h)
// trt and deepseek may put two replicas of an expert on one rank. With kWeighted they get the best
// shares for their placement (resplit.h).
const std::vector<std::string>& planner_names();

// Errors (invalid input): an unknown name; a shape that the planner cannot serve.
Result<std::unique_ptr<LayerPlanner>> make_planner(std::string_view name, const PlanShape& shape,
                                                   const PlannerOptions& options);

// Every layer of the statistics, for its load summed over iterations and ranks. The shape's
// num_experts is taken from the statistics.
struct PlannedModel {
  ModelPlacement placement;
  std::map<int, Shares> shares;  // by layer
};
Result<PlannedModel> plan_model(std::string_view planner, const ExpertStatistics& statistics,
                                PlanShape shape, const PlannerOptions& options);

}  // namespace wideep::balance
