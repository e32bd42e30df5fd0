// SPDX-License-Identifier: Apache-2.0
#include "balance/plan_model.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "base/try.h"

namespace wideep::balance {

Result<PlannedModel> plan_model(std::string_view name, const ExpertStatistics& statistics,
                                PlanShape shape, const PlannerOptions& options) {
  if (needs_pair_counts(name)) {
    return invalid_input(
        fmt::format("planner {}: needs pair counts, which statistics do not hold", name));
  }
  shape.num_experts = statistics.num_experts;
  WIDEEP_TRY_ASSIGN(const auto planner, make_planner(name, shape, options));
  PlannedModel model;
  model.placement.num_slots = shape.num_slots;
  LayerPlan plan;
  for (int i = 0; i < statistics.num_layers(); ++i) {
    const std::vector<int64_t> tokens = statistics.layer_load(i);
    planner->plan(std::vector<double>(tokens.begin(), tokens.end()), &plan);
    const int layer = statistics.layers[static_cast<size_t>(i)];
    model.placement.layers[layer] = plan.placement;
    model.shares[layer] = plan.shares;
  }
  return model;
}

}  // namespace wideep::balance
