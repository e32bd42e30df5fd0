// SPDX-License-Identifier: Apache-2.0
//
// A name and a shape become a planner in two steps: dead ranks and missing slots are taken out of
// the shape first, and the planner inside sees live ranks only. So each planner is written for
// ranks that are all there, and only wideep's knows ranks of unequal memory. Everything that can
// be refused is refused here, or plan() would need a way to fail while serving.
#include "wideep/balancer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "plan/placement_deepseek.h"
#include "plan/placement_trt.h"
#include "plan/planner_cooccurrence.h"
#include "plan/planner_masked.h"
#include "plan/planner_memory.h"
#include "plan/planner_wideep.h"

namespace wideep::balance {
namespace {

using PlanPlacement = Result<Placement> (*)(std::span<const double> load, const PlanShape& shape);

// A planner that chooses only the placement; the shares follow from it.
class PlacementPlanner : public LayerPlanner {
 public:
  PlacementPlanner(PlanPlacement place, const PlanShape& shape, Split split)
      : place_(place), shape_(shape), split_(split) {}

  void plan(const LayerLoad& load, LayerPlan* plan) override {
    Result<Placement> placement = place_(load.tokens, shape_);
    WIDEEP_CHECK(placement.ok());  // the shape was checked when the planner was made
    plan->placement = std::move(placement).value();
    plan->shares = split_ == Split::kEqual ? equal_shares(plan->placement)
                                           : resplit(plan->placement, load.tokens);
  }

 private:
  PlanPlacement place_;
  PlanShape shape_;
  Split split_;
};

Result<Placement> place_as_trt(std::span<const double> load, const PlanShape& shape) {
  return plan_layer_trt(load, shape.ep_size, shape.num_slots);
}

// Plans once with an arbitrary load, so that a shape the planner refuses is an error here and
// plan() cannot fail.
Result<std::unique_ptr<LayerPlanner>> make_placement_planner(PlanPlacement place,
                                                             const PlanShape& shape,
                                                             const PlannerOptions& options) {
  WIDEEP_TRY(check_plan_shape(shape));
  const std::vector<double> any_load(static_cast<size_t>(shape.num_experts), 1.0);
  WIDEEP_TRY(place(any_load, shape).status());
  return std::unique_ptr<LayerPlanner>(
      std::make_unique<PlacementPlanner>(place, shape, options.split));
}

using Make = Result<std::unique_ptr<LayerPlanner>> (*)(const PlanShape& shape,
                                                       const PlannerOptions& options);

template <PlanPlacement place>
Result<std::unique_ptr<LayerPlanner>> make_of(const PlanShape& shape,
                                              const PlannerOptions& options) {
  return make_placement_planner(place, shape, options);
}

struct Planner {
  const char* name;
  Make make;                    // for shapes whose slots are all usable
  Make make_unequal = nullptr;  // for live ranks with unequal memory; null: it cannot
  bool needs_pair_counts = false;
};

constexpr Planner kPlanners[] = {
    {"wideep", make_wideep_planner, make_memory_planner},
    {"trt", make_of<place_as_trt>},
    {"deepseek", make_of<plan_layer_deepseek>},
    {.name = "cooccurrence", .make = make_cooccurrence_planner, .needs_pair_counts = true},
};

const Planner* planner_named(std::string_view name) {
  const auto* found = std::ranges::find(kPlanners, name, &Planner::name);
  return found == std::end(kPlanners) ? nullptr : found;
}

Result<std::unique_ptr<LayerPlanner>> make_unequal(const Planner& planner, const PlanShape& shape,
                                                   const PlannerOptions& options) {
  if (planner.make_unequal != nullptr) return planner.make_unequal(shape, options);
  return invalid_input(fmt::format(
      "rank_slots: planner {} needs equally many usable slots on each, found {} to {}; use planner "
      "wideep",
      planner.name, *std::min_element(shape.rank_slots.begin(), shape.rank_slots.end()),
      *std::max_element(shape.rank_slots.begin(), shape.rank_slots.end())));
}

Status check_options(const PlannerOptions& options) {
  if (!(options.tolerance >= 0.0)) {
    return invalid_input(fmt::format("tolerance: expected 0 or more, found {}", options.tolerance));
  }
  if (options.max_rounds < 0) {
    return invalid_input(
        fmt::format("max_rounds: expected 0 or more, found {}", options.max_rounds));
  }
  return {};
}

}  // namespace

const std::vector<std::string>& planner_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Planner& each : kPlanners) all.emplace_back(each.name);
    return all;
  }();
  return names;
}

bool needs_pair_counts(std::string_view planner_name) {
  const Planner* planner = planner_named(planner_name);
  return planner != nullptr && planner->needs_pair_counts;
}

Result<std::unique_ptr<LayerPlanner>> make_planner(std::string_view name, const PlanShape& shape,
                                                   const PlannerOptions& options) {
  WIDEEP_TRY(check_options(options));
  const Planner* planner = planner_named(name);
  if (planner == nullptr) {
    return invalid_input(fmt::format("planner: expected one of {}, found \"{}\"",
                                     fmt::join(planner_names(), ", "), name));
  }
  // Only shapes with rank_slots pay for the conversion to live ranks.
  if (shape.rank_slots.empty()) return planner->make(shape, options);
  return make_masked_planner(shape, [&](const PlanShape& live) {
    return live.rank_slots.empty() ? planner->make(live, options)
                                   : make_unequal(*planner, live, options);
  });
}

}  // namespace wideep::balance
