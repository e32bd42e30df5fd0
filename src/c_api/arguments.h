// SPDX-License-Identifier: Apache-2.0
//
// From C's arguments to C++'s values, checked, and from a Status to the ABI's answer.
//
// Thread safety: pure but for the last error, which each thread has of its own.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>
#include <string_view>

#include "wideep/balancer.h"
#include "wideep/c_api.h"
#include "wideep/placement.h"
#include "wideep/status.h"

namespace wideep::c_api {

void set_last_error(std::string_view message);

// Runs what returns a Status and turns the outcome into the ABI's terms. Nothing is thrown at C.
template <typename Function>
int answer(Function function) try {
  const Status status = function();
  if (status.ok()) return WIDEEP_OK;
  set_last_error(status.message());
  return status.exit_code();
} catch (const std::exception& error) {  // std::bad_alloc
  set_last_error(error.what());
  return WIDEEP_FAILED;
}

Status check_pointer(const void* pointer, const char* name);
Status check_num_layers(int32_t num_layers);

// What a member to come would say, which this version does not know.
template <typename Struct>
Status check_reserved(const Struct& given, const char* name) {
  if (std::ranges::all_of(given.reserved, [](auto value) { return value == 0; })) return {};
  return invalid_input(fmt::format(
      "{}: expected zeros in the reserved members; zero the struct before filling it, or use "
      "libwideep of the version of its header (this is {})",
      name, wideep_version()));
}

Result<balance::PlanShape> to_shape(const wideep_plan_shape* shape);
Result<balance::Split> to_split(int split);

// load: [layers, num_experts], checked.
Result<std::span<const double>> to_load(const double* load, int32_t layers, int num_experts);

// A valid placement of the shape; allocates nothing but for the check when `placement` had that
// shape before.
Status read_placement(const balance::PlanShape& shape, const int32_t* slot_to_expert,
                      balance::Placement* placement);

}  // namespace wideep::c_api
