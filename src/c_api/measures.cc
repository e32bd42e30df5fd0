// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/try.h"
#include "c_api/arguments.h"
#include "wideep/balancer.h"
#include "wideep/c_api.h"

namespace wideep::c_api {
namespace {

using namespace wideep::balance;

Status imbalance_of(const wideep_plan_shape* c_shape, const int32_t* slot_to_expert,
                    const double* shares, const double* c_load, double* out) {
  WIDEEP_TRY(check_pointer(out, "imbalance"));
  WIDEEP_TRY_ASSIGN(const PlanShape shape, to_shape(c_shape));
  Placement placement;
  WIDEEP_TRY(read_placement(shape, slot_to_expert, &placement));
  WIDEEP_TRY_ASSIGN(const std::span<const double> load, to_load(c_load, 1, shape.num_experts));
  const Shares given =
      shares == nullptr ? equal_shares(placement) : Shares(shares, shares + shape.num_slots);
  WIDEEP_TRY(check_shares(placement, given));
  *out = imbalance_ratio(placement, load, given);
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
}  // namespace wideep::c_api

using namespace wideep::c_api;

int wideep_imbalance(const wideep_plan_shape* shape, const int32_t* slot_to_expert,
                     const double* shares, const double* load, double* imbalance) {
  return as_c_status([&] { return imbalance_of(shape, slot_to_expert, shares, load, imbalance); });
}

int wideep_imbalance_lower_bound(const wideep_plan_shape* shape, const double* load, int split,
                                 double* bound) {
  return as_c_status([&] { return bound_of(shape, load, split, bound); });
}
