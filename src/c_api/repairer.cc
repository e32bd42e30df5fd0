// SPDX-License-Identifier: Apache-2.0
//
// Every layer is checked before the first one is repaired, so an error leaves the arrays as they
// were; and every layer is read once more right before its repair, because the results may go to
// the arrays that the old plans come from.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/try.h"
#include "c_api/arguments.h"
#include "wideep/balancer.h"
#include "wideep/c_api.h"

struct wideep_repairer {
  wideep::balance::PlanShape shape;
  std::unique_ptr<wideep::balance::Repairer> repairer;
  wideep::balance::LayerPlan from;
  wideep::balance::LayerPlan to;
};

namespace wideep::c_api {
namespace {

using namespace wideep::balance;

Result<RepairOptions> to_repair_options(const wideep_repair_options* given) {
  RepairOptions options;
  if (given == nullptr) return options;
  WIDEEP_TRY(check_reserved(*given, "options"));
  WIDEEP_TRY_ASSIGN(options.split, to_split(given->split));
  if (given->max_moves != 0) options.max_moves = given->max_moves;
  if (given->tolerance != 0.0) options.tolerance = given->tolerance;
  options.bytes_per_expert = given->bytes_per_expert;
  return options;
}

wideep_repair_report to_c(const RepairReport& report) {
  return {.imbalance_before = report.imbalance_before,
          .imbalance_resplit = report.imbalance_resplit,
          .imbalance_after = report.imbalance_after,
          .bytes = report.bytes,
          .moves = report.moves,
          .forced_moves = report.forced_moves,
          .reserved = {}};
}

Status create(const wideep_plan_shape* c_shape, const wideep_repair_options* c_options,
              wideep_repairer** out) {
  WIDEEP_TRY(check_pointer(out, "repairer"));
  WIDEEP_TRY_ASSIGN(const PlanShape shape, to_shape(c_shape));
  WIDEEP_TRY_ASSIGN(const RepairOptions options, to_repair_options(c_options));
  WIDEEP_TRY_ASSIGN(std::unique_ptr<Repairer> repairer, make_repairer(shape, options));
  *out = new wideep_repairer{shape, std::move(repairer), {}, {}};
  return {};
}

// The inputs and outputs of a repair, [num_layers, E or S] each.
struct RepairArrays {
  size_t num_layers;
  const double* load;
  const int32_t* from;
  const double* from_shares;
  int32_t* to;
  double* to_shares;
  wideep_repair_report* reports;
};

// Reads the plan of one layer before the repair.
Status read_from(const RepairArrays& arrays, size_t layer, wideep_repairer* repairer) {
  const auto slots = static_cast<size_t>(repairer->shape.num_slots);
  LayerPlan& from = repairer->from;
  const auto where = [&](const Status& status) {
    return status.at(fmt::format("from, layer {}", layer));
  };
  const Status placed =
      read_placement(repairer->shape, arrays.from + layer * slots, &from.placement);
  if (!placed.ok()) return where(placed);
  from.shares.clear();
  if (arrays.from_shares == nullptr) return {};
  from.shares.assign(arrays.from_shares + layer * slots, arrays.from_shares + (layer + 1) * slots);
  const Status shared = check_shares(from.placement, from.shares);
  return shared.ok() ? shared : where(shared);
}

void repair_layer(const RepairArrays& arrays, size_t layer, wideep_repairer* repairer) {
  const auto experts = static_cast<size_t>(repairer->shape.num_experts);
  const auto slots = static_cast<size_t>(repairer->shape.num_slots);
  LayerPlan& to = repairer->to;
  const RepairReport report =
      repairer->repairer->repair({arrays.load + layer * experts, experts}, repairer->from, &to);
  std::ranges::copy(to.placement.slot_to_expert, arrays.to + layer * slots);
  if (arrays.to_shares != nullptr) std::ranges::copy(to.shares, arrays.to_shares + layer * slots);
  if (arrays.reports != nullptr) arrays.reports[layer] = to_c(report);
}

Status repair(wideep_repairer* repairer, int32_t num_layers, const RepairArrays& arrays) {
  WIDEEP_TRY(check_pointer(repairer, "repairer"));
  WIDEEP_TRY(check_pointer(arrays.from, "from"));
  WIDEEP_TRY(check_pointer(arrays.to, "to"));
  WIDEEP_TRY(check_num_layers(num_layers));
  WIDEEP_TRY(to_load(arrays.load, num_layers, repairer->shape.num_experts).status());
  // Checks every layer before anything is written, so that outputs are unchanged after an error.
  // Each layer is read again before its repair: `to` may be the arrays of `from`, but layers do not
  // overlap.
  for (size_t layer = 0; layer < arrays.num_layers; ++layer) {
    WIDEEP_TRY(read_from(arrays, layer, repairer));
  }
  for (size_t layer = 0; layer < arrays.num_layers; ++layer) {
    WIDEEP_TRY(read_from(arrays, layer, repairer));
    repair_layer(arrays, layer, repairer);
  }
  return {};
}

}  // namespace
}  // namespace wideep::c_api

using namespace wideep::c_api;

int wideep_repairer_create(const wideep_plan_shape* shape, const wideep_repair_options* options,
                           wideep_repairer** repairer) {
  return as_c_status([&] { return create(shape, options, repairer); });
}

void wideep_repairer_destroy(wideep_repairer* repairer) { delete repairer; }

int wideep_repairer_repair(wideep_repairer* repairer, int32_t num_layers, const double* load,
                           const int32_t* from, const double* from_shares, int32_t* to,
                           double* to_shares, wideep_repair_report* reports) {
  const RepairArrays arrays = {.num_layers = static_cast<size_t>(num_layers),
                               .load = load,
                               .from = from,
                               .from_shares = from_shares,
                               .to = to,
                               .to_shares = to_shares,
                               .reports = reports};
  return as_c_status([&] { return repair(repairer, num_layers, arrays); });
}
