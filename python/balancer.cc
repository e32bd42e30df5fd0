// SPDX-License-Identifier: Apache-2.0
//
// wideep/balancer.h for Python: module wideep._balancer, for several layers at a time.
// python/wideep/__init__.py makes the arrays contiguous, checks that their shapes match and
// allocates the results: load [L, E], pair counts [L, E · E] (or [0, 0]), placements and shares [L,
// S].
//
// Invalid input raises ValueError. Planning releases the interpreter's lock.
#include "wideep/balancer.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <utility>

#include "raise.h"

namespace nb = nanobind;
using namespace wideep::balance;
using wideep::python::raise_unless_ok;
using wideep::python::value_or_raise;

namespace {

template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::span<T> row(const Matrix<T>& matrix, size_t layer) {
  return {matrix.data() + layer * matrix.shape(1), matrix.shape(1)};
}

Split to_split(bool weighted) { return weighted ? Split::kWeighted : Split::kEqual; }

void check_all_loads(const Matrix<const double>& load) {
  raise_unless_ok(check_load({load.data(), load.size()}, static_cast<int>(load.shape(1))));
}

Placement to_placement(const PlanShape& shape, std::span<const int32_t> experts, size_t layer) {
  Placement placement{shape.num_experts, shape.ep_size, {experts.begin(), experts.end()}};
  raise_unless_ok(check_placement(placement).at("layer " + std::to_string(layer)));
  return placement;
}

// Reads plans [L, S]; without shares, equal ones.
std::vector<LayerPlan> to_plans(const PlanShape& shape, const Matrix<const int32_t>& placements,
                                const Matrix<const double>* shares) {
  std::vector<LayerPlan> plans(placements.shape(0));
  for (size_t layer = 0; layer < plans.size(); ++layer) {
    LayerPlan& plan = plans[layer];
    plan.placement = to_placement(shape, row(placements, layer), layer);
    if (shares == nullptr) {
      plan.shares = equal_shares(plan.placement);
      continue;
    }
    const std::span<const double> given = row(*shares, layer);
    raise_unless_ok(check_shares(plan.placement, given).at("layer " + std::to_string(layer)));
    plan.shares.assign(given.begin(), given.end());
  }
  return plans;
}

PlanShape make_shape(int num_experts, int ep_size, int num_slots, int num_nodes, int num_groups,
                     std::vector<int> rank_slots) {
  PlanShape shape{.num_experts = num_experts,
                  .ep_size = ep_size,
                  .num_slots = num_slots,
                  .num_nodes = num_nodes,
                  .num_groups = num_groups,
                  .rank_slots = std::move(rank_slots)};
  raise_unless_ok(check_plan_shape(shape));
  return shape;
}

void plan(const PlanShape& shape, const std::string& planner_name, bool weighted, double tolerance,
          const Matrix<const double>& load, const Matrix<const int64_t>& pair_counts,
          const Matrix<int32_t>& placement, const Matrix<double>& shares) {
  check_all_loads(load);
  if (needs_pair_counts(planner_name) && pair_counts.shape(0) == 0) {
    throw nb::value_error(("planner " + planner_name + " needs pair_counts").c_str());
  }
  const auto planner = value_or_raise(
      make_planner(planner_name, shape, {.split = to_split(weighted), .tolerance = tolerance}));
  const nb::gil_scoped_release free_interpreter;
  LayerPlan plan;
  for (size_t layer = 0; layer < load.shape(0); ++layer) {
    const bool has_pairs = pair_counts.shape(0) != 0;
    const auto pairs = has_pairs ? row(pair_counts, layer) : std::span<const int64_t>();
    planner->plan({row(load, layer), pairs}, &plan);
    std::ranges::copy(plan.placement.slot_to_expert, row(placement, layer).begin());
    std::ranges::copy(plan.shares, row(shares, layer).begin());
  }
}

void resplit_layers(const PlanShape& shape, const Matrix<const int32_t>& placement,
                    const Matrix<const double>& load, const Matrix<double>& shares) {
  check_all_loads(load);
  const std::vector<LayerPlan> plans = to_plans(shape, placement, nullptr);
  const nb::gil_scoped_release free_interpreter;
  Resplitter resplitter;
  for (size_t layer = 0; layer < plans.size(); ++layer) {
    resplitter.reset(plans[layer].placement);
    resplitter.resplit(row(load, layer), row(shares, layer));
  }
}

// figures: [L, 3] imbalance before, with new shares, after; counts: [L, 3] moves, forced moves,
// bytes.
void repair(const PlanShape& shape, bool weighted, double tolerance, int max_moves,
            int64_t bytes_per_expert, const Matrix<const double>& load,
            const Matrix<const int32_t>& from, const Matrix<const double>& from_shares,
            const Matrix<int32_t>& to, const Matrix<double>& to_shares,
            const Matrix<double>& figures, const Matrix<int64_t>& counts) {
  check_all_loads(load);
  const auto repairer =
      value_or_raise(make_repairer(shape, {.split = to_split(weighted),
                                           .tolerance = tolerance,
                                           .max_moves = max_moves,
                                           .bytes_per_expert = bytes_per_expert}));
  std::vector<LayerPlan> plans = to_plans(shape, from, &from_shares);
  const nb::gil_scoped_release free_interpreter;
  for (size_t layer = 0; layer < plans.size(); ++layer) {
    LayerPlan& plan = plans[layer];
    const RepairReport report = repairer->repair(row(load, layer), plan, &plan);
    std::ranges::copy(plan.placement.slot_to_expert, row(to, layer).begin());
    std::ranges::copy(plan.shares, row(to_shares, layer).begin());
    const double imbalances[] = {report.imbalance_before, report.imbalance_resplit,
                                 report.imbalance_after};
    const int64_t costs[] = {report.moves, report.forced_moves, report.bytes};
    std::ranges::copy(imbalances, row(figures, layer).begin());
    std::ranges::copy(costs, row(counts, layer).begin());
  }
}

void write_equal_shares(const PlanShape& shape, const Matrix<const int32_t>& placement,
                        const Matrix<double>& shares) {
  const std::vector<LayerPlan> plans = to_plans(shape, placement, nullptr);
  for (size_t layer = 0; layer < plans.size(); ++layer) {
    std::ranges::copy(plans[layer].shares, row(shares, layer).begin());
  }
}

void imbalance(const PlanShape& shape, const Matrix<const int32_t>& placement,
               const Matrix<const double>& load, const Matrix<const double>& shares,
               const Vector<double>& result) {
  check_all_loads(load);
  const std::vector<LayerPlan> plans = to_plans(shape, placement, &shares);
  for (size_t layer = 0; layer < plans.size(); ++layer) {
    result(layer) = imbalance_ratio(plans[layer].placement, row(load, layer), plans[layer].shares);
  }
}

void lower_bound(const PlanShape& shape, bool weighted, const Matrix<const double>& load,
                 const Vector<double>& result) {
  check_all_loads(load);
  const nb::gil_scoped_release free_interpreter;
  for (size_t layer = 0; layer < load.shape(0); ++layer) {
    result(layer) = imbalance_lower_bound(row(load, layer), shape, to_split(weighted));
  }
}

}  // namespace

NB_MODULE(_balancer, module) {
  nb::class_<PlanShape>(module, "PlanShape");
  module.def("make_shape", &make_shape);
  module.def("plan", &plan);
  module.def("resplit", &resplit_layers);
  module.def("repair", &repair);
  module.def("equal_shares", &write_equal_shares);
  module.def("imbalance", &imbalance);
  module.def("lower_bound", &lower_bound);
}
