// SPDX-License-Identifier: Apache-2.0
//
// The placement is read and checked when it is given, and only loads are checked in each run: that
// is what an engine calls in every layer.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/try.h"
#include "c_api/arguments.h"
#include "wideep/balancer.h"
#include "wideep/c_api.h"

struct wideep_resplitter {
  wideep::balance::PlanShape shape;
  wideep::balance::Resplitter resplitter;
  wideep::balance::Placement placement;
};

namespace wideep::c_api {
namespace {

using namespace wideep::balance;

Status create(const wideep_plan_shape* c_shape, const int32_t* slot_to_expert,
              wideep_resplitter** out) {
  WIDEEP_TRY(check_pointer(out, "resplitter"));
  WIDEEP_TRY_ASSIGN(const PlanShape shape, to_shape(c_shape));
  Placement placement;
  WIDEEP_TRY(read_placement(shape, slot_to_expert, &placement));
  Resplitter resplitter(placement);
  // Assigned last, so that *out is unchanged after an error.
  *out = new wideep_resplitter{shape, std::move(resplitter), std::move(placement)};
  return {};
}

Status reset(wideep_resplitter* resplitter, const int32_t* slot_to_expert) {
  WIDEEP_TRY(check_pointer(resplitter, "resplitter"));
  WIDEEP_TRY(read_placement(resplitter->shape, slot_to_expert, &resplitter->placement));
  resplitter->resplitter.reset(resplitter->placement);
  return {};
}

Status run(wideep_resplitter* resplitter, const double* c_load, double* shares, double* max_load) {
  WIDEEP_TRY(check_pointer(resplitter, "resplitter"));
  WIDEEP_TRY(check_pointer(shares, "shares"));
  WIDEEP_TRY_ASSIGN(const std::span<const double> load,
                    to_load(c_load, 1, resplitter->shape.num_experts));
  const double max = resplitter->resplitter.resplit(
      load, std::span<double>(shares, static_cast<size_t>(resplitter->shape.num_slots)));
  if (max_load != nullptr) *max_load = max;
  return {};
}

Status bottleneck(const wideep_resplitter* resplitter, const int32_t** ranks, int32_t* num_ranks) {
  WIDEEP_TRY(check_pointer(resplitter, "resplitter"));
  WIDEEP_TRY(check_pointer(static_cast<const void*>(ranks), "ranks"));
  WIDEEP_TRY(check_pointer(num_ranks, "num_ranks"));
  const std::span<const int32_t> found = resplitter->resplitter.bottleneck_ranks();
  *ranks = found.data();
  *num_ranks = static_cast<int32_t>(found.size());
  return {};
}

Status resplit_into(const wideep_plan_shape* c_shape, const int32_t* slot_to_expert,
                    const double* c_load, double* shares) {
  WIDEEP_TRY(check_pointer(shares, "shares"));
  WIDEEP_TRY_ASSIGN(const PlanShape shape, to_shape(c_shape));
  Placement placement;
  WIDEEP_TRY(read_placement(shape, slot_to_expert, &placement));
  WIDEEP_TRY_ASSIGN(const std::span<const double> load, to_load(c_load, 1, shape.num_experts));
  std::ranges::copy(resplit(placement, load), shares);
  return {};
}

}  // namespace
}  // namespace wideep::c_api

using namespace wideep::c_api;

int wideep_resplit(const wideep_plan_shape* shape, const int32_t* slot_to_expert,
                   const double* load, double* shares) {
  return as_c_status([&] { return resplit_into(shape, slot_to_expert, load, shares); });
}

int wideep_resplitter_create(const wideep_plan_shape* shape, const int32_t* slot_to_expert,
                             wideep_resplitter** resplitter) {
  return as_c_status([&] { return create(shape, slot_to_expert, resplitter); });
}

void wideep_resplitter_destroy(wideep_resplitter* resplitter) { delete resplitter; }

int wideep_resplitter_reset(wideep_resplitter* resplitter, const int32_t* slot_to_expert) {
  return as_c_status([&] { return reset(resplitter, slot_to_expert); });
}

int wideep_resplitter_run(wideep_resplitter* resplitter, const double* load, double* shares,
                          double* max_load) {
  return as_c_status([&] { return run(resplitter, load, shares, max_load); });
}

int wideep_resplitter_bottleneck(const wideep_resplitter* resplitter, const int32_t** ranks,
                                 int32_t* num_ranks) {
  return as_c_status([&] { return bottleneck(resplitter, ranks, num_ranks); });
}
