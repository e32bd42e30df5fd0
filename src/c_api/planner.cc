// SPDX-License-Identifier: Apache-2.0
//
// A model is planned layer by layer into the caller's arrays, with one plan as work space. All
// arguments are checked before the first layer is planned, so an error leaves the arrays as they
// were.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/try.h"
#include "c_api/arguments.h"
#include "wideep/balancer.h"
#include "wideep/c_api.h"

struct wideep_planner {
  wideep::balance::PlanShape shape;
  bool needs_pair_counts;
  std::unique_ptr<wideep::balance::LayerPlanner> planner;
  wideep::balance::LayerPlan plan;
};

namespace wideep::c_api {
namespace {

using namespace wideep::balance;

Result<PlannerOptions> to_planner_options(const wideep_planner_options* given) {
  PlannerOptions options;
  if (given == nullptr) return options;
  WIDEEP_TRY(check_reserved(*given, "options"));
  WIDEEP_TRY_ASSIGN(options.split, to_split(given->split));
  if (given->max_rounds != 0) options.max_rounds = given->max_rounds;
  if (given->tolerance != 0.0) options.tolerance = given->tolerance;
  return options;
}

Status create(const char* name, const wideep_plan_shape* c_shape,
              const wideep_planner_options* c_options, wideep_planner** out) {
  WIDEEP_TRY(check_pointer(name, "name"));
  WIDEEP_TRY(check_pointer(out, "planner"));
  WIDEEP_TRY_ASSIGN(const PlanShape shape, to_shape(c_shape));
  WIDEEP_TRY_ASSIGN(const PlannerOptions options, to_planner_options(c_options));
  WIDEEP_TRY_ASSIGN(std::unique_ptr<LayerPlanner> planner, make_planner(name, shape, options));
  *out = new wideep_planner{shape, needs_pair_counts(name), std::move(planner), {}};
  return {};
}

// Checks counts [num_layers, E, E]. Returns none if they are absent and not needed.
Result<std::span<const int64_t>> to_pair_counts(const wideep_planner& planner, int32_t num_layers,
                                                const int64_t* counts) {
  if (counts == nullptr) {
    if (!planner.needs_pair_counts) return std::span<const int64_t>();
    return invalid_input(
        "pair_counts: this planner needs them; call wideep_planner_plan_pairs with counts of the "
        "tokens that chose both experts of each pair");
  }
  const auto experts = static_cast<size_t>(planner.shape.num_experts);
  const std::span all(counts, static_cast<size_t>(num_layers) * experts * experts);
  const auto negative = std::ranges::find_if(all, [](int64_t count) { return count < 0; });
  if (negative == all.end()) return all;
  return invalid_input(fmt::format("pair_counts: expected 0 or more, found {} at index {}",
                                   *negative, negative - all.begin()));
}

Status plan(wideep_planner* planner, int32_t num_layers, const double* c_load,
            const int64_t* c_pair_counts, int32_t* slot_to_expert, double* shares) {
  WIDEEP_TRY(check_pointer(planner, "planner"));
  WIDEEP_TRY(check_pointer(slot_to_expert, "slot_to_expert"));
  WIDEEP_TRY(check_num_layers(num_layers));
  const auto experts = static_cast<size_t>(planner->shape.num_experts);
  const auto slots = static_cast<size_t>(planner->shape.num_slots);
  WIDEEP_TRY_ASSIGN(const std::span<const double> load,
                    to_load(c_load, num_layers, planner->shape.num_experts));
  WIDEEP_TRY_ASSIGN(const std::span<const int64_t> pairs,
                    to_pair_counts(*planner, num_layers, c_pair_counts));
  // Without pair counts every layer gets an empty span.
  const size_t pairs_per_layer = pairs.empty() ? 0 : experts * experts;
  for (size_t layer = 0; layer < static_cast<size_t>(num_layers); ++layer) {
    planner->planner->plan({load.subspan(layer * experts, experts),
                            pairs.subspan(layer * pairs_per_layer, pairs_per_layer)},
                           &planner->plan);
    std::ranges::copy(planner->plan.placement.slot_to_expert, slot_to_expert + layer * slots);
    if (shares != nullptr) std::ranges::copy(planner->plan.shares, shares + layer * slots);
  }
  return {};
}

}  // namespace
}  // namespace wideep::c_api

using namespace wideep::c_api;

int wideep_planner_create(const char* name, const wideep_plan_shape* shape,
                          const wideep_planner_options* options, wideep_planner** planner) {
  return as_c_status([&] { return create(name, shape, options, planner); });
}

void wideep_planner_destroy(wideep_planner* planner) { delete planner; }

int wideep_planner_plan(wideep_planner* planner, int32_t num_layers, const double* load,
                        int32_t* slot_to_expert, double* shares) {
  return as_c_status(
      [&] { return plan(planner, num_layers, load, nullptr, slot_to_expert, shares); });
}

int wideep_planner_plan_pairs(wideep_planner* planner, int32_t num_layers, const double* load,
                              const int64_t* pair_counts, int32_t* slot_to_expert, double* shares) {
  return as_c_status(
      [&] { return plan(planner, num_layers, load, pair_counts, slot_to_expert, shares); });
}
