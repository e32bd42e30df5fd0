// SPDX-License-Identifier: Apache-2.0
#include "wideep/c_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/try.h"
#include "wideep/balancer.h"
#include "wideep/status.h"

using wideep::invalid_input;
using wideep::Result;
using wideep::Status;
using namespace wideep::balance;

struct wideep_planner {
  PlanShape shape;
  std::unique_ptr<LayerPlanner> planner;
  LayerPlan plan;
};

namespace {

thread_local std::string last_error;

// Runs what returns a Status and turns the outcome into the ABI's terms. Nothing is thrown at C.
template <typename Function>
int answer(Function function) try {
  const Status status = function();
  if (status.ok()) return WIDEEP_OK;
  last_error = status.message();
  return status.exit_code();
} catch (const std::exception& error) {  // std::bad_alloc
  last_error = error.what();
  return WIDEEP_FAILED;
}

Status check_pointer(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return invalid_input(fmt::format("{}: expected a pointer, found NULL", name));
}

Result<PlanShape> to_shape(const wideep_plan_shape* shape) {
  WIDEEP_TRY(check_pointer(shape, "shape"));
  const PlanShape result{.num_experts = shape->num_experts,
                         .ep_size = shape->ep_size,
                         .num_slots = shape->num_slots,
                         .num_nodes = shape->num_nodes == 0 ? 1 : shape->num_nodes,
                         .num_groups = shape->num_groups == 0 ? 1 : shape->num_groups};
  WIDEEP_TRY(check_plan_shape(result));
  return result;
}

Result<Split> to_split(int split) {
  if (split == WIDEEP_SPLIT_EQUAL) return Split::kEqual;
  if (split == WIDEEP_SPLIT_WEIGHTED) return Split::kWeighted;
  return invalid_input(fmt::format(
      "split: expected WIDEEP_SPLIT_EQUAL (0) or WIDEEP_SPLIT_WEIGHTED (1), found {}", split));
}

// load: [layers, num_experts]
Result<std::span<const double>> to_load(const double* load, int32_t layers, int num_experts) {
  WIDEEP_TRY(check_pointer(load, "load"));
  const std::span<const double> loads(
      load, static_cast<size_t>(layers) * static_cast<size_t>(num_experts));
  WIDEEP_TRY(check_load(loads, num_experts));
  return loads;
}

Result<Placement> to_placement(const PlanShape& shape, const int32_t* slot_to_expert) {
  WIDEEP_TRY(check_pointer(slot_to_expert, "slot_to_expert"));
  Placement placement{shape.num_experts, shape.ep_size,
                      std::vector<int32_t>(slot_to_expert, slot_to_expert + shape.num_slots)};
  WIDEEP_TRY(check_placement(placement));
  return placement;
}

Status create(const char* name, const wideep_plan_shape* c_shape, int c_split,
              wideep_planner** out) {
  WIDEEP_TRY(check_pointer(name, "name"));
  WIDEEP_TRY(check_pointer(out, "planner"));
  WIDEEP_TRY_ASSIGN(const PlanShape shape, to_shape(c_shape));
  WIDEEP_TRY_ASSIGN(const Split split, to_split(c_split));
  WIDEEP_TRY_ASSIGN(std::unique_ptr<LayerPlanner> planner,
                    make_planner(name, shape, {.split = split}));
  *out = new wideep_planner{shape, std::move(planner), {}};
  return {};
}

Status plan(wideep_planner* planner, int32_t num_layers, const double* c_load,
            int32_t* slot_to_expert, double* shares) {
  WIDEEP_TRY(check_pointer(planner, "planner"));
  WIDEEP_TRY(check_pointer(slot_to_expert, "slot_to_expert"));
  if (num_layers < 0) {
    return invalid_input(fmt::format("num_layers: expected at least 0, found {}", num_layers));
  }
  const auto experts = static_cast<size_t>(planner->shape.num_experts);
  const auto slots = static_cast<size_t>(planner->shape.num_slots);
  WIDEEP_TRY_ASSIGN(const std::span<const double> load,
                    to_load(c_load, num_layers, planner->shape.num_experts));
  for (size_t layer = 0; layer < static_cast<size_t>(num_layers); ++layer) {
    planner->planner->plan(load.subspan(layer * experts, experts), &planner->plan);
    std::ranges::copy(planner->plan.placement.slot_to_expert, slot_to_expert + layer * slots);
    if (shares != nullptr) std::ranges::copy(planner->plan.shares, shares + layer * slots);
  }
  return {};
}

Status resplit_into(const wideep_plan_shape* c_shape, const int32_t* slot_to_expert,
                    const double* c_load, double* shares) {
  WIDEEP_TRY(check_pointer(shares, "shares"));
  WIDEEP_TRY_ASSIGN(const PlanShape shape, to_shape(c_shape));
  WIDEEP_TRY_ASSIGN(const Placement placement, to_placement(shape, slot_to_expert));
  WIDEEP_TRY_ASSIGN(const std::span<const double> load, to_load(c_load, 1, shape.num_experts));
  std::ranges::copy(resplit(placement, load), shares);
  return {};
}

Status imbalance_of(const wideep_plan_shape* c_shape, const int32_t* slot_to_expert,
                    const double* shares, const double* c_load, double* out) {
  WIDEEP_TRY(check_pointer(out, "imbalance"));
  WIDEEP_TRY_ASSIGN(const PlanShape shape, to_shape(c_shape));
  WIDEEP_TRY_ASSIGN(const Placement placement, to_placement(shape, slot_to_expert));
  WIDEEP_TRY_ASSIGN(const std::span<const double> load, to_load(c_load, 1, shape.num_experts));
  const Shares given =
      shares == nullptr ? equal_shares(placement) : Shares(shares, shares + shape.num_slots);
  *out = imbalance_ratio(rank_loads(placement, load, given));
  return {};
}

Status bound_of(const wideep_plan_shape* c_shape, const double* c_load, int c_split, double* out) {
  WIDEEP_TRY(check_pointer(out, "bound"));
  WIDEEP_TRY_ASSIGN(const PlanShape shape, to_shape(c_shape));
  WIDEEP_TRY_ASSIGN(const Split split, to_split(c_split));
  WIDEEP_TRY_ASSIGN(const std::span<const double> load, to_load(c_load, 1, shape.num_experts));
  *out = imbalance_lower_bound(load, shape, split);
  return {};
}

}  // namespace

const char* wideep_version(void) { return WIDEEP_VERSION; }

const char* wideep_last_error(void) { return last_error.c_str(); }

int wideep_planner_create(const char* name, const wideep_plan_shape* shape, int split,
                          wideep_planner** planner) {
  return answer([&] { return create(name, shape, split, planner); });
}

void wideep_planner_destroy(wideep_planner* planner) { delete planner; }

int wideep_planner_plan(wideep_planner* planner, int32_t num_layers, const double* load,
                        int32_t* slot_to_expert, double* shares) {
  return answer([&] { return plan(planner, num_layers, load, slot_to_expert, shares); });
}

int wideep_resplit(const wideep_plan_shape* shape, const int32_t* slot_to_expert,
                   const double* load, double* shares) {
  return answer([&] { return resplit_into(shape, slot_to_expert, load, shares); });
}

int wideep_imbalance(const wideep_plan_shape* shape, const int32_t* slot_to_expert,
                     const double* shares, const double* load, double* imbalance) {
  return answer([&] { return imbalance_of(shape, slot_to_expert, shares, load, imbalance); });
}

int wideep_imbalance_lower_bound(const wideep_plan_shape* shape, const double* load, int split,
                                 double* bound) {
  return answer([&] { return bound_of(shape, load, split, bound); });
}
