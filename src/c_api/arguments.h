// SPDX-License-Identifier: Apache-2.0
//
// Converts and checks C arguments, and converts a Status to the ABI's status codes.
//
// Thread safety: pure, except for the last error, which is thread-local.
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

// Runs a function that returns a Status, converts it to the ABI's status and stores the message.
// Catches exceptions: none may reach C code.
template <typename Function>
int as_c_status(Function function) try {
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

// Refuses a struct that sets members which this version does not have.
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

// Checks load [layers, num_experts] and returns it.
Result<std::span<const double>> to_load(const double* load, int32_t layers, int num_experts);

// Reads and checks a placement of the shape. Allocates only for the check if `placement` had that
// shape before.
Status read_placement(const balance::PlanShape& shape, const int32_t* slot_to_expert,
                      balance::Placement* placement);

}  // namespace wideep::c_api
