// SPDX-License-Identifier: Apache-2.0
#include "c_api/arguments.h"

#include <string>

#include "base/try.h"

namespace wideep::c_api {

using namespace wideep::balance;

namespace {

// Per thread, so that a failing call in one thread does not change the text that another reads.
thread_local std::string last_error;

}  // namespace

void set_last_error(std::string_view message) { last_error = message; }

Status check_pointer(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return invalid_input(fmt::format("{}: expected a pointer, found NULL", name));
}

Status check_num_layers(int32_t num_layers) {
  if (num_layers >= 0) return {};
  return invalid_input(fmt::format("num_layers: expected at least 0, found {}", num_layers));
}

Result<PlanShape> to_shape(const wideep_plan_shape* shape) {
  WIDEEP_TRY(check_pointer(shape, "shape"));
  WIDEEP_TRY(check_reserved(*shape, "shape"));
  PlanShape result{.num_experts = shape->num_experts,
                   .ep_size = shape->ep_size,
                   .num_slots = shape->num_slots,
                   .num_nodes = shape->num_nodes == 0 ? 1 : shape->num_nodes,
                   .num_groups = shape->num_groups == 0 ? 1 : shape->num_groups};
  // Before rank_slots is read: ep_size is its length.
  WIDEEP_TRY(check_slot_counts(result.num_experts, result.ep_size, result.num_slots));
  if (shape->rank_slots != nullptr) {
    result.rank_slots.assign(shape->rank_slots, shape->rank_slots + result.ep_size);
  }
  WIDEEP_TRY(check_plan_shape(result));
  return result;
}

Result<Split> to_split(int split) {
  if (split == WIDEEP_SPLIT_EQUAL) return Split::kEqual;
  if (split == WIDEEP_SPLIT_WEIGHTED) return Split::kWeighted;
  return invalid_input(fmt::format(
      "split: expected WIDEEP_SPLIT_EQUAL (0) or WIDEEP_SPLIT_WEIGHTED (1), found {}", split));
}

Result<std::span<const double>> to_load(const double* load, int32_t layers, int num_experts) {
  WIDEEP_TRY(check_pointer(load, "load"));
  const std::span<const double> loads(
      load, static_cast<size_t>(layers) * static_cast<size_t>(num_experts));
  WIDEEP_TRY(check_load(loads, num_experts));
  return loads;
}

Status read_placement(const PlanShape& shape, const int32_t* slot_to_expert, Placement* placement) {
  WIDEEP_TRY(check_pointer(slot_to_expert, "slot_to_expert"));
  placement->num_experts = shape.num_experts;
  placement->ep_size = shape.ep_size;
  placement->slot_to_expert.assign(slot_to_expert, slot_to_expert + shape.num_slots);
  return check_placement(*placement);
}

}  // namespace wideep::c_api

const char* wideep_version(void) { return WIDEEP_VERSION; }

const char* wideep_last_error(void) { return wideep::c_api::last_error.c_str(); }
