// SPDX-License-Identifier: Apache-2.0
//
// Each function of the interface checks what C cannot say with types, null pointers and lengths,
// and calls the C++ class. Received rows are not copied: the C struct has the layout of the C++
// one, which static_assert holds. An answer that is empty in C++ for a wrong argument is an error
// here, for in C it would look like nothing received.
#include "wideep/communicator.h"

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/try.h"
#include "c_api/arguments.h"
#include "wideep/c_api.h"

struct wideep_group {
  wideep::ep::CommunicatorGroup group;
  wideep::ep::CommunicatorOptions options;
};

struct wideep_communicator {
  wideep::ep::Communicator communicator;
  wideep::ep::CommunicatorOptions options;
};

namespace wideep::c_api {
namespace {

using ep::CommunicatorOptions;
using ep::ReceivedRow;

// C reads the C++ rows in place, without a copy.
static_assert(sizeof(ReceivedRow) == sizeof(wideep_received_row));
static_assert(offsetof(ReceivedRow, row) == offsetof(wideep_received_row, row));
static_assert(offsetof(ReceivedRow, result) == offsetof(wideep_received_row, result));

// Converts a negative size to 0, which CommunicatorGroup::create refuses by name.
size_t to_size(int64_t bytes) { return bytes < 0 ? 0 : static_cast<size_t>(bytes); }

Status create(const wideep_group_options* given, wideep_group** out) {
  WIDEEP_TRY(check_pointer(given, "options"));
  WIDEEP_TRY(check_pointer(static_cast<const void*>(out), "group"));
  WIDEEP_TRY(check_reserved(*given, "options"));
  CommunicatorOptions options{.num_ranks = given->num_ranks,
                              .slots_per_rank = given->slots_per_rank,
                              .top_k = given->top_k,
                              .max_tokens = given->max_tokens,
                              .row_bytes = to_size(given->row_bytes),
                              .result_bytes = to_size(given->result_bytes)};
  if (given->timeout_ms != 0) options.timeout = std::chrono::milliseconds(given->timeout_ms);
  WIDEEP_TRY_ASSIGN(auto group, ep::CommunicatorGroup::create(options));
  *out = new wideep_group{std::move(group), options};
  return {};
}

Status join(wideep_group* group, int32_t rank, wideep_communicator** out) {
  WIDEEP_TRY(check_pointer(group, "group"));
  WIDEEP_TRY(check_pointer(static_cast<const void*>(out), "communicator"));
  WIDEEP_TRY_ASSIGN(auto communicator, group->group.join(rank));
  *out = new wideep_communicator{std::move(communicator), group->options};
  return {};
}

Status dispatch(wideep_communicator* communicator, const void* rows, int64_t row_stride,
                int32_t num_tokens, const int32_t* slots) {
  WIDEEP_TRY(check_pointer(communicator, "communicator"));
  std::span<const int32_t> chosen;
  if (num_tokens > 0) {
    WIDEEP_TRY(check_pointer(slots, "slots"));
    // The C array has no length; num_tokens and top_k define it. dispatch() checks num_tokens.
    chosen = {slots,
              static_cast<size_t>(num_tokens) * static_cast<size_t>(communicator->options.top_k)};
  }
  if (row_stride < 0) {
    return invalid_input(fmt::format("row_stride: expected at least 0, found {}", row_stride));
  }
  return communicator->communicator.dispatch(rows, static_cast<size_t>(row_stride), num_tokens,
                                             chosen);
}

Status received(const wideep_communicator* communicator, int32_t slot,
                const wideep_received_row** rows, int32_t* num_rows) {
  WIDEEP_TRY(check_pointer(communicator, "communicator"));
  WIDEEP_TRY(check_pointer(static_cast<const void*>(rows), "rows"));
  WIDEEP_TRY(check_pointer(num_rows, "num_rows"));
  // rows_of_slot() returns nothing for a wrong slot; in C that would look like no rows.
  const int slots = communicator->options.slots_per_rank;
  if (slot < 0 || slot >= slots) {
    return invalid_input(fmt::format("slot: expected 0 to {}, found {}", slots - 1, slot));
  }
  const std::span<const ReceivedRow> found = communicator->communicator.rows_of_slot(slot);
  *rows = reinterpret_cast<const wideep_received_row*>(found.data());
  *num_rows = static_cast<int32_t>(found.size());
  return {};
}

Status results(const wideep_communicator* communicator, int32_t token, const void* const** out) {
  WIDEEP_TRY(check_pointer(communicator, "communicator"));
  WIDEEP_TRY(check_pointer(static_cast<const void*>(out), "results"));
  const auto found = communicator->communicator.results(token);
  if (found.empty()) {
    return invalid_input(fmt::format(
        "token: expected one of the last dispatch, after its combine, found {}", token));
  }
  *out = reinterpret_cast<const void* const*>(found.data());
  return {};
}

Status own_result(const wideep_communicator* communicator, int32_t token, void** out) {
  WIDEEP_TRY(check_pointer(static_cast<const void*>(out), "result"));
  const void* const* all = nullptr;
  WIDEEP_TRY(results(communicator, token, &all));
  *out = communicator->communicator.own_result(token);
  return {};
}

template <typename Handle>
Status fail(Handle* handle, const char* name, const char* message) {
  WIDEEP_TRY(check_pointer(handle, name));
  WIDEEP_TRY(check_pointer(message, "message"));
  if constexpr (requires { handle->group; }) {
    handle->group.fail(message);
  } else {
    handle->communicator.fail(message);
  }
  return {};
}

}  // namespace
}  // namespace wideep::c_api

using namespace wideep::c_api;

int wideep_group_create(const wideep_group_options* options, wideep_group** group) {
  return as_c_status([&] { return create(options, group); });
}

void wideep_group_destroy(wideep_group* group) { delete group; }

int wideep_group_fail(wideep_group* group, const char* message) {
  return as_c_status([&] { return fail(group, "group", message); });
}

int wideep_communicator_join(wideep_group* group, int32_t rank,
                             wideep_communicator** communicator) {
  return as_c_status([&] { return join(group, rank, communicator); });
}

void wideep_communicator_destroy(wideep_communicator* communicator) { delete communicator; }

int wideep_communicator_dispatch(wideep_communicator* communicator, const void* rows,
                                 int64_t row_stride, int32_t num_tokens, const int32_t* slots) {
  return as_c_status([&] { return dispatch(communicator, rows, row_stride, num_tokens, slots); });
}

int wideep_communicator_received(const wideep_communicator* communicator, int32_t slot,
                                 const wideep_received_row** rows, int32_t* num_rows) {
  return as_c_status([&] { return received(communicator, slot, rows, num_rows); });
}

int wideep_communicator_combine(wideep_communicator* communicator) {
  return as_c_status([&]() -> wideep::Status {
    WIDEEP_TRY(check_pointer(communicator, "communicator"));
    return communicator->communicator.combine();
  });
}

int wideep_communicator_results(const wideep_communicator* communicator, int32_t token,
                                const void* const** results_of_token) {
  return as_c_status([&] { return results(communicator, token, results_of_token); });
}

int wideep_communicator_own_result(const wideep_communicator* communicator, int32_t token,
                                   void** result) {
  return as_c_status([&] { return own_result(communicator, token, result); });
}

int wideep_communicator_fail(wideep_communicator* communicator, const char* message) {
  return as_c_status([&] { return fail(communicator, "communicator", message); });
}
