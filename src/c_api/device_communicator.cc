// SPDX-License-Identifier: Apache-2.0
//
// As communicator.cc: checked arguments, C structs with the layout of the C++ ones. Steps that
// take a call of tokens share run(), which checks and converts it once. Pointers to device memory
// are passed on unread.
#include "wideep/device_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/try.h"
#include "c_api/arguments.h"
#include "wideep/c_api.h"

struct wideep_device_communicator {
  wideep::ep::DeviceCommunicator communicator;
  wideep::balance::PlanShape shape;  // of layers, if there are any
};

namespace wideep::c_api {
namespace {

using ep::DeviceCall;
using ep::DeviceReceivedRow;
using ep::DeviceRowFormat;

// C reads the C++ rows in place.
static_assert(sizeof(DeviceReceivedRow) == sizeof(wideep_device_row));
static_assert(offsetof(DeviceReceivedRow, row) == offsetof(wideep_device_row, row));
static_assert(offsetof(DeviceReceivedRow, result) == offsetof(wideep_device_row, result));
static_assert(offsetof(DeviceReceivedRow, weight) == offsetof(wideep_device_row, weight));
static_assert(offsetof(DeviceReceivedRow, source) == offsetof(wideep_device_row, source));
static_assert(offsetof(DeviceReceivedRow, message) == offsetof(wideep_device_row, message));
static_assert(offsetof(DeviceReceivedRow, slot) == offsetof(wideep_device_row, slot));
static_assert(static_cast<int>(DeviceRowFormat::kBf16) == WIDEEP_ROWS_BF16);
static_assert(static_cast<int>(DeviceRowFormat::kF32) == WIDEEP_ROWS_F32);
static_assert(static_cast<int>(DeviceRowFormat::kFp8) == WIDEEP_ROWS_FP8);
static_assert(static_cast<int>(DeviceRowFormat::kNvfp4) == WIDEEP_ROWS_NVFP4);

Result<std::vector<int>> ranks_of(const int32_t* ranks, int64_t count) {
  if (count < 0) {
    return invalid_input(fmt::format("num_inactive_ranks: expected at least 0, found {}", count));
  }
  if (count == 0) return std::vector<int>();
  WIDEEP_TRY(check_pointer(ranks, "inactive_ranks"));
  return std::vector<int>(ranks, ranks + count);
}

Status join(const wideep_device_options* given, wideep_device_communicator** out) {
  WIDEEP_TRY(check_pointer(given, "options"));
  WIDEEP_TRY(check_pointer(static_cast<const void*>(out), "communicator"));
  WIDEEP_TRY(check_pointer(given->group, "options.group"));
  WIDEEP_TRY(check_reserved(*given, "options"));
  ep::DeviceCommunicatorOptions options{
      .group = given->group,
      .rank = given->rank,
      .num_ranks = given->num_ranks,
      .slots_per_rank = given->slots_per_rank,
      .top_k = given->top_k,
      .max_tokens = given->max_tokens,
      .hidden = given->hidden,
      .row_format = static_cast<DeviceRowFormat>(given->row_format),
      .result_format = static_cast<DeviceRowFormat>(given->result_format),
      .device = given->device,
      .num_blocks = given->num_blocks,
      .num_layers = given->num_layers,
      .num_experts = given->num_experts};
  WIDEEP_TRY_ASSIGN(options.inactive_ranks,
                    ranks_of(given->inactive_ranks, given->num_inactive_ranks));
  if (given->join_timeout_ms != 0) {
    options.join_timeout = std::chrono::milliseconds(given->join_timeout_ms);
  }
  if (given->timeout_ms != 0) options.timeout = std::chrono::milliseconds(given->timeout_ms);
  WIDEEP_TRY_ASSIGN(auto joined, ep::DeviceCommunicator::join(options));
  const balance::PlanShape shape{.num_experts = options.num_experts,
                                 .ep_size = options.num_ranks,
                                 .num_slots = options.num_ranks * options.slots_per_rank};
  *out = new wideep_device_communicator{std::move(joined), shape};
  return {};
}

Status set_placement(wideep_device_communicator* communicator, int32_t layer,
                     const int32_t* slot_to_expert, const double* shares, void* stream) {
  WIDEEP_TRY(check_pointer(communicator, "communicator"));
  balance::Placement placement;
  if (communicator->shape.num_experts > 0) {  // else the communicator says what is missing
    WIDEEP_TRY(read_placement(communicator->shape, slot_to_expert, &placement));
  }
  const auto num_slots = static_cast<size_t>(placement.num_slots());
  return communicator->communicator.set_placement(
      layer, placement,
      shares == nullptr ? std::span<const double>() : std::span(shares, num_slots), stream);
}

Status take_loads(wideep_device_communicator* communicator, void* stream, uint64_t* experts,
                  uint64_t* slots, int64_t* first_iteration, int64_t* num_iterations) {
  WIDEEP_TRY(check_pointer(communicator, "communicator"));
  WIDEEP_TRY(check_pointer(experts, "experts"));
  WIDEEP_TRY(check_pointer(slots, "slots"));
  WIDEEP_TRY(check_pointer(first_iteration, "first_iteration"));
  WIDEEP_TRY(check_pointer(num_iterations, "num_iterations"));
  WIDEEP_TRY_ASSIGN(const ep::DeviceLoads loads, communicator->communicator.take_loads(stream));
  *first_iteration = loads.first_iteration;
  *num_iterations = loads.num_iterations;
  std::ranges::copy(loads.experts, experts);
  std::ranges::copy(loads.slots, slots);
  return {};
}

// A call's step: checks both structs, and converts a negative stride to 0, which is refused by
// name.
template <typename Step>
int run(wideep_device_communicator* communicator, const wideep_device_call* call, int64_t stride,
        const Step& step) {
  return as_c_status([&]() -> Status {
    WIDEEP_TRY(check_pointer(communicator, "communicator"));
    WIDEEP_TRY(check_pointer(call, "call"));
    WIDEEP_TRY(check_reserved(*call, "call"));
    const DeviceCall converted{.num_tokens = call->num_tokens,
                               .slots = call->slots,
                               .weights = call->weights,
                               .layer = call->layer,
                               .stream = call->stream};
    return step(communicator->communicator, converted,
                stride < 0 ? size_t{0} : static_cast<size_t>(stride));
  });
}

Status received(const wideep_device_communicator* communicator, const wideep_device_row** rows,
                const int32_t** slot_starts, int64_t* max_rows) {
  WIDEEP_TRY(check_pointer(communicator, "communicator"));
  WIDEEP_TRY(check_pointer(static_cast<const void*>(rows), "rows"));
  WIDEEP_TRY(check_pointer(static_cast<const void*>(slot_starts), "slot_starts"));
  WIDEEP_TRY(check_pointer(max_rows, "max_rows"));
  const ep::DeviceReceived found = communicator->communicator.received();
  *rows = reinterpret_cast<const wideep_device_row*>(found.rows);
  *slot_starts = found.slot_starts;
  *max_rows = found.max_rows;
  return {};
}

}  // namespace
}  // namespace wideep::c_api

using namespace wideep::c_api;

int wideep_device_available(void) {
  return as_c_status([] { return wideep::ep::DeviceCommunicator::available(); });
}

int64_t wideep_device_row_bytes(int32_t format, int32_t hidden) {
  return static_cast<int64_t>(
      wideep::ep::device_row_bytes(static_cast<DeviceRowFormat>(format), hidden));
}

int wideep_device_join(const wideep_device_options* options,
                       wideep_device_communicator** communicator) {
  return as_c_status([&] { return join(options, communicator); });
}

void wideep_device_destroy(wideep_device_communicator* communicator) { delete communicator; }

int wideep_device_set_placement(wideep_device_communicator* communicator, int32_t layer,
                                const int32_t* slot_to_expert, const double* shares, void* stream) {
  return as_c_status(
      [&] { return set_placement(communicator, layer, slot_to_expert, shares, stream); });
}

int wideep_device_choose(wideep_device_communicator* communicator, const wideep_device_call* call,
                         const int32_t* experts, int32_t* slots) {
  return run(communicator, call, 0, [&](auto& mine, const auto& tokens, size_t /*stride*/) {
    return mine.choose(tokens, experts, slots);
  });
}

int wideep_device_end_iteration(wideep_device_communicator* communicator, void* stream) {
  return as_c_status([&]() -> wideep::Status {
    WIDEEP_TRY(check_pointer(communicator, "communicator"));
    return communicator->communicator.end_iteration(stream);
  });
}

int wideep_device_take_loads(wideep_device_communicator* communicator, void* stream,
                             uint64_t* experts, uint64_t* slots, int64_t* first_iteration,
                             int64_t* num_iterations) {
  return as_c_status([&] {
    return take_loads(communicator, stream, experts, slots, first_iteration, num_iterations);
  });
}

int wideep_device_dispatch(wideep_device_communicator* communicator, const wideep_device_call* call,
                           const void* rows, int64_t row_stride) {
  return run(communicator, call, row_stride, [&](auto& mine, const auto& tokens, size_t stride) {
    return mine.dispatch(tokens, rows, stride);
  });
}

int wideep_device_received(const wideep_device_communicator* communicator,
                           const wideep_device_row** rows, const int32_t** slot_starts,
                           int64_t* max_rows) {
  return as_c_status([&] { return received(communicator, rows, slot_starts, max_rows); });
}

int wideep_device_expand(wideep_device_communicator* communicator, const wideep_device_call* call,
                         void* matrix, int64_t stride) {
  return run(communicator, call, stride, [&](auto& mine, const auto& tokens, size_t bytes) {
    return mine.expand(tokens, matrix, bytes);
  });
}

int wideep_device_finalize(wideep_device_communicator* communicator, const wideep_device_call* call,
                           const void* results, int64_t stride) {
  return run(communicator, call, stride, [&](auto& mine, const auto& tokens, size_t bytes) {
    return mine.finalize(tokens, results, bytes);
  });
}

int wideep_device_combine(wideep_device_communicator* communicator, const wideep_device_call* call,
                          void* out, int64_t out_stride, const float* shared_expert) {
  return run(communicator, call, out_stride, [&](auto& mine, const auto& tokens, size_t stride) {
    return mine.combine(tokens, {.out = out, .out_stride = stride, .shared_expert = shared_expert});
  });
}

int wideep_device_status(wideep_device_communicator* communicator, void* stream) {
  return as_c_status([&]() -> wideep::Status {
    WIDEEP_TRY(check_pointer(communicator, "communicator"));
    return communicator->communicator.status(stream);
  });
}

int wideep_device_restart(wideep_device_communicator* communicator, const int32_t* inactive_ranks,
                          int64_t num_inactive_ranks) {
  return as_c_status([&]() -> wideep::Status {
    WIDEEP_TRY(check_pointer(communicator, "communicator"));
    WIDEEP_TRY_ASSIGN(const std::vector<int> ranks, ranks_of(inactive_ranks, num_inactive_ranks));
    return communicator->communicator.restart(ranks);
  });
}

int64_t wideep_device_bytes(const wideep_device_communicator* communicator) {
  return communicator == nullptr ? 0
                                 : static_cast<int64_t>(communicator->communicator.device_bytes());
}
