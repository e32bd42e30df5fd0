// SPDX-License-Identifier: Apache-2.0
//
// wideep/communicator.h for Python: module wideep._communicator. Rows are bytes here;
// python/wideep/communicator.py converts them to the caller's dtype.
//
// Invalid input raises ValueError, a failure RuntimeError, a deadline TimeoutError. Calls release
// the interpreter's lock while they wait, so ranks may be Python threads.
#include "wideep/communicator.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstring>
#include <utility>
#include <vector>

#include "raise.h"

namespace nb = nanobind;
using namespace wideep::ep;
using wideep::python::raise_unless_ok;
using wideep::python::value_or_raise;

namespace {

using Rows = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Slots = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

CommunicatorGroup create_group(int num_ranks, int slots_per_rank, int top_k, int max_tokens,
                               size_t row_bytes, size_t result_bytes, int64_t timeout_ms) {
  return value_or_raise(
      CommunicatorGroup::create({.num_ranks = num_ranks,
                                 .slots_per_rank = slots_per_rank,
                                 .top_k = top_k,
                                 .max_tokens = max_tokens,
                                 .row_bytes = row_bytes,
                                 .result_bytes = result_bytes,
                                 .timeout = std::chrono::milliseconds(timeout_ms)}));
}

Communicator join(CommunicatorGroup& group, int rank) {
  wideep::Result<Communicator> joined = [&] {
    const nb::gil_scoped_release free;
    return group.join(rank);
  }();
  return value_or_raise(std::move(joined));
}

void dispatch(Communicator& communicator, Rows rows, Slots slots) {
  const wideep::Status status = [&] {
    const nb::gil_scoped_release free;
    return communicator.dispatch(rows.data(), rows.shape(1), static_cast<int>(rows.shape(0)),
                                 {slots.data(), slots.size()});
  }();
  raise_unless_ok(status);
}

void combine(Communicator& communicator) {
  const wideep::Status status = [&] {
    const nb::gil_scoped_release free;
    return communicator.combine();
  }();
  raise_unless_ok(status);
}

// Returns an array [n, bytes]: a copy, because the library's memory is valid only until the next
// call.
nb::object copy_rows(const std::vector<const std::byte*>& rows, size_t bytes) {
  auto* copy = new uint8_t[rows.size() * bytes + 1];
  const nb::capsule owner(copy, [](void* data) noexcept { delete[] static_cast<uint8_t*>(data); });
  for (size_t i = 0; i < rows.size(); ++i) std::memcpy(copy + i * bytes, rows[i], bytes);
  return nb::cast(nb::ndarray<nb::numpy, uint8_t, nb::ndim<2>>(copy, {rows.size(), bytes}, owner));
}

nb::object received(const Communicator& communicator, int slot, size_t row_bytes) {
  std::vector<const std::byte*> rows;
  for (const ReceivedRow& row : communicator.rows_of_slot(slot)) rows.push_back(row.row);
  return copy_rows(rows, row_bytes);
}

// results: one for each received row of the slot, in the same order.
void give_results(const Communicator& communicator, int slot, Rows results) {
  const auto rows = communicator.rows_of_slot(slot);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(rows[i].result, results.data() + i * results.shape(1), results.shape(1));
  }
}

// Returns an array [num_tokens · top_k, bytes].
nb::object results(const Communicator& communicator, int num_tokens, size_t result_bytes) {
  std::vector<const std::byte*> rows;
  for (int token = 0; token < num_tokens; ++token) {
    const auto each = communicator.results(token);
    rows.insert(rows.end(), each.begin(), each.end());
  }
  return copy_rows(rows, result_bytes);
}

}  // namespace

NB_MODULE(_communicator, module) {
  nb::class_<CommunicatorGroup>(module, "Group");
  nb::class_<Communicator>(module, "Communicator");
  module.def("create_group", &create_group);
  module.def("join", &join);
  module.def("dispatch", &dispatch);
  module.def("received", &received);
  module.def("give_results", &give_results);
  module.def("combine", &combine);
  module.def("results", &results);
  module.def("fail",
             [](Communicator& communicator, const char* message) { communicator.fail(message); });
  module.def("close", [](Communicator& communicator) { communicator.close(); });
}
