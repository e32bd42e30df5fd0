// SPDX-License-Identifier: Apache-2.0
//
// wideep/online_repairer.h for Python: module wideep._online_repairer. python/wideep/repairer.py
// makes the arrays contiguous and checks that their shapes match: counts [L, E], placements [L, S].
//
// Invalid input raises ValueError. Planning releases the interpreter's lock.
#include "wideep/online_repairer.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "raise.h"

namespace nb = nanobind;
using namespace wideep::balance;
using namespace wideep::online;
using wideep::python::raise_unless_ok;
using wideep::python::value_or_raise;

namespace {

template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// layer, (slot, expert) of each move, shares, imbalance before and after, bytes, urgent
using Update = std::tuple<int, std::vector<std::pair<int, int>>, std::vector<double>, double,
                          double, int64_t, bool>;

// The shape tells how a row is read.
struct PythonRepairer {
  PlanShape shape;
  OnlineRepairer repairer;
};

Placement to_placement(const PlanShape& shape, const int32_t* row) {
  return {shape.num_experts, shape.ep_size, {row, row + shape.num_slots}};
}

PythonRepairer* create(int num_experts, int ep_size, std::vector<int> rank_slots, int top_k,
                       bool weighted, bool by_window, double tolerance, int max_moves,
                       double rows_per_move, int64_t horizon_tokens, double false_alarm_rate,
                       int64_t sample_tokens, int num_samples, double turn_ms,
                       int64_t bytes_per_expert, const Matrix<const int32_t>& placements) {
  const PlanShape shape{.num_experts = num_experts,
                        .ep_size = ep_size,
                        .num_slots = static_cast<int>(placements.shape(1)),
                        .rank_slots = std::move(rank_slots)};
  raise_unless_ok(check_plan_shape(shape));
  std::vector<Placement> from;
  for (size_t layer = 0; layer < placements.shape(0); ++layer) {
    from.push_back(to_placement(shape, placements.data() + layer * placements.shape(1)));
  }
  const RepairerOptions options{
      .split = weighted ? Split::kWeighted : Split::kEqual,
      .share_update = by_window ? ShareUpdate::kWindow : ShareUpdate::kIteration,
      .tolerance = tolerance,
      .max_moves = max_moves,
      .rows_per_move = rows_per_move,
      .horizon_tokens = horizon_tokens,
      .false_alarm_rate = false_alarm_rate,
      .sample_tokens = sample_tokens,
      .num_samples = num_samples,
      .turn_ms = turn_ms,
      .bytes_per_expert = bytes_per_expert};
  const RepairerShape all{shape, static_cast<int>(placements.shape(0)), top_k};
  return new PythonRepairer{shape,
                            value_or_raise(OnlineRepairer::create(all, options, std::move(from)))};
}

std::vector<Update> step(PythonRepairer& repairer, const Matrix<const int64_t>& counts,
                         const Vector<const uint8_t>& busy) {
  std::vector<Update> result;
  wideep::Status status;
  {
    const nb::gil_scoped_release free_interpreter;
    const auto updates =
        repairer.repairer.step({counts.data(), counts.size()}, {busy.data(), busy.size()});
    status = updates.status();
    for (const LayerUpdate& update : updates.ok() ? *updates : std::span<const LayerUpdate>()) {
      std::vector<std::pair<int, int>> moves;
      for (const SlotMove& move : update.moves) moves.emplace_back(move.slot, move.expert);
      result.emplace_back(update.layer_idx, std::move(moves), update.plan.shares,
                          update.imbalance_before, update.imbalance_after, update.bytes,
                          update.urgent);
    }
  }
  raise_unless_ok(status);
  return result;
}

void write_placements(const PythonRepairer& repairer, const Matrix<int32_t>& result) {
  int32_t* row = result.data();
  for (const Placement& placement : repairer.repairer.placements()) {
    row = std::ranges::copy(placement.slot_to_expert, row).out;
  }
}

void set_placement(PythonRepairer& repairer, int layer, const Vector<const int32_t>& placement) {
  raise_unless_ok(
      repairer.repairer.set_placement(layer, to_placement(repairer.shape, placement.data())));
}

}  // namespace

NB_MODULE(_online_repairer, module) {
  nb::class_<PythonRepairer>(module, "Repairer");
  module.def("create", &create, nb::rv_policy::take_ownership);
  module.def("step", &step);
  module.def("write_placements", &write_placements);
  module.def("set_placement", &set_placement);
}
