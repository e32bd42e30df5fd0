// SPDX-License-Identifier: Apache-2.0
//
// Dispatch and combine of tensors: module wideep._tensor_communicator, which
// python/wideep/tensors.py wraps. Tensors come by DLPack, without a copy, and are checked here:
// dtype, device, shape, contiguity, one line for each mistake. On CPUs the ranks are those of
// wideep/communicator.h, on GPUs those of wideep/device_communicator.h; both have the same methods
// and the same bits.
//
// Errors as raise.h says. Calls release the interpreter's lock while they wait.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ep/slot_choice.h"
#include "raise.h"
#include "wideep/balancer.h"
#include "wideep/communicator.h"
#include "wideep/device_communicator.h"

namespace nb = nanobind;
using namespace wideep::ep;
using wideep::balance::Placement;
using wideep::python::raise_unless_ok;
using wideep::python::value_or_raise;

namespace {

using Tensor = nb::ndarray<nb::ro>;

enum class Type { kBf16, kF32, kI32 };

struct Expected {
  Type type;
  std::vector<int64_t> shape;  // −1: any number
  bool is_gpu = false;
  int device = 0;
  bool is_written = false;
};
constexpr bool kWritten = true;

nb::dlpack::dtype dtype_of(Type type) {
  using nb::dlpack::dtype_code;
  const auto of = [](dtype_code code, uint8_t bits) {
    nb::dlpack::dtype made{};
    made.code = static_cast<uint8_t>(code);
    made.bits = bits;
    made.lanes = 1;
    return made;
  };
  if (type == Type::kI32) return of(dtype_code::Int, 32);
  return type == Type::kF32 ? of(dtype_code::Float, 32) : of(dtype_code::Bfloat, 16);
}

std::string name_of(nb::dlpack::dtype dtype) {
  using nb::dlpack::dtype_code;
  std::string name = "a type of " + std::to_string(dtype.bits) + " bits";
  const std::string bits = std::to_string(dtype.bits);
  if (dtype.code == static_cast<uint8_t>(dtype_code::Int)) name = "int" + bits;
  if (dtype.code == static_cast<uint8_t>(dtype_code::UInt)) name = "uint" + bits;
  if (dtype.code == static_cast<uint8_t>(dtype_code::Float)) name = "float" + bits;
  if (dtype.code == static_cast<uint8_t>(dtype_code::Bfloat)) name = "bfloat" + bits;
  if (dtype.code == static_cast<uint8_t>(dtype_code::Bool)) name = "bool";
  return name;
}

std::string name_of(int device_type, int device) {
  if (device_type == nb::device::cpu::value) return "cpu";
  if (device_type == nb::device::cuda::value) return "cuda:" + std::to_string(device);
  return "device type " + std::to_string(device_type);
}

std::string list(const std::vector<int64_t>& numbers, const char* any) {
  std::string text = "[";
  for (const int64_t number : numbers) {
    if (text.size() > 1) text += ", ";
    text += number < 0 ? any : std::to_string(number);
  }
  return text + "]";
}

std::string describe(const Tensor& tensor) {
  std::vector<int64_t> shape, strides;
  for (size_t i = 0; i < tensor.ndim(); ++i) {
    shape.push_back(static_cast<int64_t>(tensor.shape(i)));
    strides.push_back(tensor.stride(i));
  }
  return name_of(tensor.dtype()) + " " + list(shape, "?") + " on " +
         name_of(tensor.device_type(), tensor.device_id()) + " with strides " + list(strides, "?");
}

bool is_dense(const Tensor& tensor) {
  int64_t stride = 1;
  for (size_t i = tensor.ndim(); i-- > 0;) {
    if (tensor.shape(i) > 1 && tensor.stride(i) != stride) return false;
    stride *= static_cast<int64_t>(tensor.shape(i));
  }
  return true;
}

// The tensor's memory, which the caller keeps alive. Throws what is wrong with it.
Tensor check(const char* name, const nb::handle& given, const Expected& expected) {
  const std::string wanted =
      "a contiguous tensor " + list(expected.shape, "tokens") + " of " +
      name_of(dtype_of(expected.type)) + " on " +
      name_of(expected.is_gpu ? nb::device::cuda::value : nb::device::cpu::value, expected.device);
  const auto refuse = [&](const std::string& found) {
    const std::string line = std::string(name) + ": expected " + wanted + ", found " + found;
    throw nb::value_error(line.c_str());
  };
  if (nb::cast<bool>(nb::getattr(given, "requires_grad", nb::bool_(false)))) {
    refuse(
        "one that requires a gradient, which dispatch and combine do not have: call them under "
        "torch.no_grad(), or with .detach()");
  }
  Tensor tensor;
  if (!nb::try_cast<Tensor>(given, tensor, false) || !tensor.is_valid()) {
    refuse("'" + nb::cast<std::string>(given.type().attr("__name__")) +
           "', which does not give its memory by DLPack");
  }
  const nb::dlpack::dtype dtype = dtype_of(expected.type);
  const bool on_device = expected.is_gpu ? tensor.device_type() == nb::device::cuda::value &&
                                               tensor.device_id() == expected.device
                                         : tensor.device_type() == nb::device::cpu::value;
  bool has_shape = tensor.ndim() == expected.shape.size();
  for (size_t i = 0; has_shape && i < tensor.ndim(); ++i) {
    has_shape = expected.shape[i] < 0 || static_cast<int64_t>(tensor.shape(i)) == expected.shape[i];
  }
  if (tensor.dtype() != dtype || !on_device || !has_shape || !is_dense(tensor)) {
    refuse(describe(tensor));
  }
  nb::ndarray<> writable;
  if (expected.is_written &&
      (!nb::try_cast<nb::ndarray<>>(given, writable, false) || !writable.is_valid())) {
    refuse("one that may only be read, and the call writes it: give it a copy");
  }
  return tensor;
}

void* data_of(const Tensor& tensor) { return const_cast<void*>(tensor.data()); }

// What all ranks have equal.
struct Shape {
  int num_ranks, slots_per_rank, top_k, max_tokens, hidden;
  bool is_f32;
  int num_layers, num_experts;  // 0: slots are the caller's choice

  int num_slots() const { return num_ranks * slots_per_rank; }
  Type type() const { return is_f32 ? Type::kF32 : Type::kBf16; }
  size_t row_bytes() const { return static_cast<size_t>(hidden) * (is_f32 ? 4 : 2); }
  int64_t max_rows() const {
    return int64_t{num_ranks} * max_tokens * std::min(top_k, slots_per_rank);
  }
};

// The tensors of a call, checked.
struct Call {
  Tensor rows, slots, weights;
  int num_tokens = 0;
};

void check_max_tokens(const char* name, const Shape& shape, int64_t num_tokens) {
  if (num_tokens <= shape.max_tokens) return;
  const std::string line = std::string(name) +
                           ": expected at most max_tokens = " + std::to_string(shape.max_tokens) +
                           " tokens, found " + std::to_string(num_tokens);
  throw nb::value_error(line.c_str());
}

// Of choose; experts and slots: [num_tokens, top_k] int32.
struct Choice {
  Tensor experts, slots;
};

Choice check_choice(const Shape& shape, bool is_gpu, int device, const nb::handle& experts,
                    const nb::handle& slots) {
  Choice choice;
  choice.experts = check("experts", experts, {Type::kI32, {-1, shape.top_k}, is_gpu, device});
  const auto num_tokens = static_cast<int64_t>(choice.experts.shape(0));
  check_max_tokens("experts", shape, num_tokens);
  choice.slots =
      check("slots", slots, {Type::kI32, {num_tokens, shape.top_k}, is_gpu, device, kWritten});
  if (num_tokens > 0 && choice.slots.data() == choice.experts.data()) {
    throw nb::value_error("slots: expected other memory than that of experts");
  }
  return choice;
}

Call check_call(const Shape& shape, bool is_gpu, int device, const nb::handle& rows,
                const nb::handle& slots, const nb::handle& weights) {
  Call call;
  call.rows = check("rows", rows, {shape.type(), {-1, shape.hidden}, is_gpu, device});
  const auto num_tokens = static_cast<int64_t>(call.rows.shape(0));
  check_max_tokens("rows", shape, num_tokens);
  call.num_tokens = static_cast<int>(num_tokens);
  call.slots = check("slots", slots, {Type::kI32, {num_tokens, shape.top_k}, is_gpu, device});
  call.weights = check("weights", weights, {Type::kF32, {num_tokens, shape.top_k}, is_gpu, device});
  return call;
}

// Where each slot's rows begin: the communicator's own memory, by DLPack. owner: keeps it.
nb::object starts_by_dlpack(const Shape& shape, const int32_t* starts, nb::handle owner,
                            int device_type, int device) {
  const size_t size[] = {static_cast<size_t>(shape.slots_per_rank) + 1};
  // Not const, because torch knows no tensors that are only read.
  return nb::cast(nb::ndarray<int32_t>(const_cast<int32_t*>(starts), 1, size, owner, nullptr,
                                       dtype_of(Type::kI32), device_type, device));
}

// Which expert is in each slot of a layer, and the part of its expert's tokens that it gets.
using Experts = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Shares = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Placement placement_of(const Shape& shape, const Experts& slot_to_expert) {
  return {shape.num_experts,
          shape.num_ranks,
          {slot_to_expert.data(), slot_to_expert.data() + slot_to_expert.size()}};
}

// first_iteration, num_iterations, tokens of experts and of slots
using Loads = std::tuple<int64_t, int64_t, std::vector<uint64_t>, std::vector<uint64_t>>;

Loads loads_of(DeviceLoads loads) {
  return {loads.first_iteration, loads.num_iterations, std::move(loads.experts),
          std::move(loads.slots)};
}

// ---- on a CPU ----

// What a device's choose, end_iteration and take_loads do, with the same slots and sums; a take
// gets all iterations that have ended, and an expert that does not exist is an error at once.
class CpuChoice {
 public:
  CpuChoice(const Shape& shape, int rank)
      : shape_(shape),
        chooser_({.ep_size = shape.num_ranks,
                  .num_experts = std::max(1, shape.num_experts),
                  .slots_per_rank = shape.slots_per_rank,
                  .top_k = shape.top_k,
                  .max_tokens = shape.max_tokens},
                 rank),
        has_placement_(static_cast<size_t>(shape.num_layers)) {
    clear(running_);
    clear(ended_);
  }

  wideep::Status set_placement(int layer, const Placement& placement,
                               std::span<const double> shares);
  wideep::Status choose(int layer, std::span<const int32_t> experts, std::span<int32_t> slots);
  void end_iteration();
  DeviceLoads take_loads();

 private:
  wideep::Status check_layer(int layer) const;
  void clear(DeviceLoads& loads) const;

  Shape shape_;
  SlotChooser chooser_;
  std::vector<char> has_placement_;  // [num_layers]
  DeviceLoads running_, ended_;
};

wideep::Status CpuChoice::check_layer(int layer) const {
  if (layer >= 0 && layer < shape_.num_layers) return {};
  return wideep::invalid_input("layer: expected 0 to " + std::to_string(shape_.num_layers - 1) +
                               ", found " + std::to_string(layer));
}

void CpuChoice::clear(DeviceLoads& loads) const {
  const auto layers = static_cast<size_t>(shape_.num_layers);
  loads.num_iterations = 0;
  loads.experts.assign(layers * static_cast<size_t>(shape_.num_experts), 0);
  loads.slots.assign(layers * static_cast<size_t>(shape_.num_slots()), 0);
}

wideep::Status CpuChoice::set_placement(int layer, const Placement& placement,
                                        std::span<const double> shares) {
  wideep::Status status = check_layer(layer);
  if (status.ok() && placement.num_slots() != shape_.num_slots()) {
    status =
        wideep::invalid_input("slot_to_expert: expected " + std::to_string(shape_.num_slots()) +
                              " slots, found " + std::to_string(placement.num_slots()));
  }
  if (status.ok()) status = wideep::balance::check_placement(placement);
  if (status.ok() && !shares.empty()) status = wideep::balance::check_shares(placement, shares);
  if (!status.ok()) return status;
  chooser_.set_placement(layer, placement, shares);
  has_placement_[static_cast<size_t>(layer)] = 1;
  return {};
}

wideep::Status CpuChoice::choose(int layer, std::span<const int32_t> experts,
                                 std::span<int32_t> slots) {
  const wideep::Status status = check_layer(layer);
  if (!status.ok()) return status;
  const auto at = static_cast<size_t>(layer);
  if (!has_placement_[at]) {
    return wideep::invalid_input("layer " + std::to_string(layer) +
                                 " has no placement yet: expected set_placement before its first "
                                 "choose");
  }
  std::vector<int32_t> counts(static_cast<size_t>(shape_.num_experts));
  for (const int32_t expert : experts) {
    if (expert < 0 || expert >= shape_.num_experts) {
      return wideep::invalid_input("experts: expected 0 to " +
                                   std::to_string(shape_.num_experts - 1) + ", found " +
                                   std::to_string(expert));
    }
    ++counts[static_cast<size_t>(expert)];
  }
  chooser_.split_by_given_shares(layer, counts);
  chooser_.choose(layer, experts, slots);
  uint64_t* const of_slots = running_.slots.data() + at * static_cast<size_t>(shape_.num_slots());
  for (const int32_t slot : slots) ++of_slots[slot];
  uint64_t* const of_experts = running_.experts.data() + at * counts.size();
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    of_experts[expert] += static_cast<uint64_t>(counts[expert]);
  }
  return {};
}

void CpuChoice::end_iteration() {
  const auto add = [](std::vector<uint64_t>& from, std::vector<uint64_t>& to) {
    std::transform(from.begin(), from.end(), to.begin(), to.begin(), std::plus<>());
  };
  add(running_.experts, ended_.experts);
  add(running_.slots, ended_.slots);
  clear(running_);
  ++ended_.num_iterations;
}

DeviceLoads CpuChoice::take_loads() {
  DeviceLoads taken = ended_;
  ended_.first_iteration += ended_.num_iterations;
  clear(ended_);
  return taken;
}

struct CpuRank {
  Shape shape;
  Communicator communicator;
  std::vector<int32_t> slot_starts;  // [slots_per_rank + 1]
  CpuChoice choice;
  Call call = {};

  void dispatch(const nb::handle& rows, const nb::handle& slots, const nb::handle& weights,
                const nb::handle& matrix);
  void combine(const nb::handle& results, const nb::handle& shared, const nb::handle& out);
  void set_placement(int layer, const Experts& slot_to_expert, const Shares& shares);
  void choose(const nb::handle& experts, const nb::handle& slots, int layer);
};

void CpuRank::set_placement(int layer, const Experts& slot_to_expert, const Shares& shares) {
  raise_unless_ok(choice.set_placement(layer, placement_of(shape, slot_to_expert),
                                       {shares.data(), shares.size()}));
}

void CpuRank::choose(const nb::handle& experts, const nb::handle& slots, int layer) {
  const Choice given = check_choice(shape, false, 0, experts, slots);
  raise_unless_ok(choice.choose(
      layer, {static_cast<const int32_t*>(given.experts.data()), given.experts.size()},
      {static_cast<int32_t*>(data_of(given.slots)), given.slots.size()}));
}

// Received rows are copied into the matrix, as `expand` does on a GPU.
void CpuRank::dispatch(const nb::handle& rows, const nb::handle& slots, const nb::handle& weights,
                       const nb::handle& matrix) {
  Call next = check_call(shape, false, 0, rows, slots, weights);
  const Tensor to =
      check("matrix", matrix, {shape.type(), {shape.max_rows(), shape.hidden}, false, 0, kWritten});
  const wideep::Status status = [&]() -> wideep::Status {
    const nb::gil_scoped_release free;
    const wideep::Status sent =
        communicator.dispatch(next.rows.data(), shape.row_bytes(), next.num_tokens,
                              {static_cast<const int32_t*>(next.slots.data()), next.slots.size()});
    if (!sent.ok()) return sent;
    int32_t* const begin = slot_starts.data();
    auto* row = static_cast<std::byte*>(data_of(to));
    for (int slot = 0; slot < shape.slots_per_rank; ++slot) {
      const auto received = communicator.rows_of_slot(slot);
      for (const ReceivedRow& from : received) {
        std::memcpy(row, from.row, shape.row_bytes());
        row += shape.row_bytes();
      }
      begin[slot + 1] = begin[slot] + static_cast<int32_t>(received.size());
    }
    return {};
  }();
  raise_unless_ok(status);
  call = std::move(next);  // its tensors must not go away before combine
}

void CpuRank::combine(const nb::handle& results, const nb::handle& shared, const nb::handle& out) {
  const Tensor from = check("results", results, {shape.type(), {shape.max_rows(), shape.hidden}});
  const Tensor to =
      check("out", out, {Type::kBf16, {call.num_tokens, shape.hidden}, false, 0, kWritten});
  Tensor added;
  if (!shared.is_none()) {
    added = check("shared", shared, {Type::kF32, {call.num_tokens, shape.hidden}});
  }
  const wideep::Status status = [&]() -> wideep::Status {
    const nb::gil_scoped_release free;
    const auto* row = static_cast<const std::byte*>(from.data());
    for (int slot = 0; slot < shape.slots_per_rank; ++slot) {
      for (const ReceivedRow& received : communicator.rows_of_slot(slot)) {
        std::memcpy(received.result, row, shape.row_bytes());
        row += shape.row_bytes();
      }
    }
    const wideep::Status combined = communicator.combine();
    if (!combined.ok()) return combined;
    const auto* weights = static_cast<const float*>(call.weights.data());
    const auto hidden = static_cast<size_t>(shape.hidden);
    for (size_t token = 0; token < static_cast<size_t>(call.num_tokens); ++token) {
      const wideep::Status summed = communicator.sum_results(
          static_cast<int>(token), shape.is_f32 ? ResultType::kF32 : ResultType::kBf16,
          weights + token * static_cast<size_t>(shape.top_k),
          shared.is_none() ? nullptr : static_cast<const float*>(added.data()) + token * hidden,
          static_cast<uint16_t*>(data_of(to)) + token * hidden);
      if (!summed.ok()) return summed;
    }
    return {};
  }();
  raise_unless_ok(status);
}

struct CpuGroup {
  Shape shape;
  CommunicatorGroup group;
};

CpuGroup create_cpu_group(const Shape& shape, int64_t timeout_ms) {
  return {shape, value_or_raise(CommunicatorGroup::create(
                     {.num_ranks = shape.num_ranks,
                      .slots_per_rank = shape.slots_per_rank,
                      .top_k = shape.top_k,
                      .max_tokens = shape.max_tokens,
                      .row_bytes = shape.row_bytes(),
                      .result_bytes = shape.row_bytes(),
                      .timeout = std::chrono::milliseconds(timeout_ms)}))};
}

CpuRank join_cpu(CpuGroup& group, int rank) {
  wideep::Result<Communicator> joined = [&] {
    const nb::gil_scoped_release free;
    return group.group.join(rank);
  }();
  return {group.shape, value_or_raise(std::move(joined)),
          std::vector<int32_t>(static_cast<size_t>(group.shape.slots_per_rank) + 1),
          CpuChoice(group.shape, rank)};
}

// ---- on a GPU ----

struct GpuRank {
  Shape shape;
  DeviceCommunicator communicator;
  DeviceCall call = {};
  int num_tokens = 0;

  void dispatch(const nb::handle& rows, const nb::handle& slots, const nb::handle& weights,
                const nb::handle& matrix, const nb::handle& count, int layer, uintptr_t stream);
  void combine(const nb::handle& results, const nb::handle& shared, const nb::handle& out,
               uintptr_t stream);
  void set_placement(int layer, const Experts& slot_to_expert, const Shares& shares,
                     uintptr_t stream);
  void choose(const nb::handle& experts, const nb::handle& slots, const nb::handle& count,
              int layer, uintptr_t stream);
  Loads take_loads(uintptr_t stream);
};

void GpuRank::set_placement(int layer, const Experts& slot_to_expert, const Shares& shares,
                            uintptr_t stream) {
  const Placement placement = placement_of(shape, slot_to_expert);
  const wideep::Status status = [&] {
    const nb::gil_scoped_release free;  // waits for kernels, and they for ranks of other threads
    return communicator.set_placement(layer, placement, {shares.data(), shares.size()},
                                      reinterpret_cast<void*>(stream));
  }();
  raise_unless_ok(status);
}

// count: the number of tokens, on the device. Nothing here waits.
void GpuRank::choose(const nb::handle& experts, const nb::handle& slots, const nb::handle& count,
                     int layer, uintptr_t stream) {
  const int device = communicator.device();
  const Choice given = check_choice(shape, true, device, experts, slots);
  const Tensor n = check("count", count, {Type::kI32, {1}, true, device});
  // Tensors without elements may have no memory; no kernel looks at it then.
  const auto* some = static_cast<const int32_t*>(n.data());
  const bool is_empty = given.experts.size() == 0;
  raise_unless_ok(communicator.choose(
      {.num_tokens = some, .layer = layer, .stream = reinterpret_cast<void*>(stream)},
      is_empty ? some : static_cast<const int32_t*>(given.experts.data()),
      is_empty ? const_cast<int32_t*>(some) + 1 : static_cast<int32_t*>(data_of(given.slots))));
}

Loads GpuRank::take_loads(uintptr_t stream) {
  wideep::Result<DeviceLoads> taken = [&] {
    const nb::gil_scoped_release free;
    return communicator.take_loads(reinterpret_cast<void*>(stream));
  }();
  return loads_of(value_or_raise(std::move(taken)));
}

// count: the number of tokens, on the device. Nothing here waits.
void GpuRank::dispatch(const nb::handle& rows, const nb::handle& slots, const nb::handle& weights,
                       const nb::handle& matrix, const nb::handle& count, int layer,
                       uintptr_t stream) {
  const int device = communicator.device();
  const Call next = check_call(shape, true, device, rows, slots, weights);
  const Tensor to = check("matrix", matrix,
                          {shape.type(), {shape.max_rows(), shape.hidden}, true, device, kWritten});
  const Tensor n = check("count", count, {Type::kI32, {1}, true, device});
  // Tensors without elements may have no memory; no kernel looks at it then.
  const void* const some = n.data();
  const auto or_some = [&](const Tensor& tensor) {
    return tensor.data() == nullptr ? some : tensor.data();
  };
  const DeviceCall made{.num_tokens = static_cast<const int32_t*>(n.data()),
                        .slots = static_cast<const int32_t*>(or_some(next.slots)),
                        .weights = static_cast<const float*>(or_some(next.weights)),
                        .layer = layer,
                        .stream = reinterpret_cast<void*>(stream)};
  raise_unless_ok(communicator.dispatch(made, or_some(next.rows), shape.row_bytes()));
  raise_unless_ok(communicator.expand(made, data_of(to), shape.row_bytes()));
  call = made;
  num_tokens = next.num_tokens;
}

void GpuRank::combine(const nb::handle& results, const nb::handle& shared, const nb::handle& out,
                      uintptr_t stream) {
  const int device = communicator.device();
  const Tensor from =
      check("results", results, {shape.type(), {shape.max_rows(), shape.hidden}, true, device});
  const Tensor to =
      check("out", out, {Type::kBf16, {num_tokens, shape.hidden}, true, device, kWritten});
  Tensor added;
  if (!shared.is_none()) {
    added = check("shared", shared, {Type::kF32, {num_tokens, shape.hidden}, true, device});
  }
  call.stream = reinterpret_cast<void*>(stream);
  raise_unless_ok(communicator.finalize(call, from.data(), shape.row_bytes()));
  void* const written = to.data() == nullptr ? data_of(from) : data_of(to);
  raise_unless_ok(communicator.combine(
      call,
      {.out = written,
       .out_stride = static_cast<size_t>(shape.hidden) * 2,
       .shared_expert = shared.is_none() ? nullptr : static_cast<const float*>(added.data())}));
}

GpuRank join_gpu(const Shape& shape, const std::string& name, int rank, int device, int num_blocks,
                 int64_t timeout_ms, int64_t join_timeout_ms) {
  const DeviceRowFormat format = shape.is_f32 ? DeviceRowFormat::kF32 : DeviceRowFormat::kBf16;
  wideep::Result<DeviceCommunicator> joined = [&] {
    const nb::gil_scoped_release free;
    return DeviceCommunicator::join({.group = name,
                                     .rank = rank,
                                     .num_ranks = shape.num_ranks,
                                     .slots_per_rank = shape.slots_per_rank,
                                     .top_k = shape.top_k,
                                     .max_tokens = shape.max_tokens,
                                     .hidden = shape.hidden,
                                     .row_format = format,
                                     .result_format = format,
                                     .device = device,
                                     .num_blocks = num_blocks,
                                     .join_timeout = std::chrono::milliseconds(join_timeout_ms),
                                     .timeout = std::chrono::milliseconds(timeout_ms),
                                     .num_layers = shape.num_layers,
                                     .num_experts = shape.num_experts});
  }();
  return {shape, value_or_raise(std::move(joined))};
}

}  // namespace

NB_MODULE(_tensor_communicator, module) {
  nb::class_<Shape>(module, "Shape")
      .def("__init__",
           [](Shape* made, int num_ranks, int slots_per_rank, int top_k, int max_tokens, int hidden,
              bool is_f32, int num_layers, int num_experts) {
             new (made) Shape{num_ranks, slots_per_rank, top_k,      max_tokens,
                              hidden,    is_f32,         num_layers, num_experts};
           })
      .def_prop_ro("max_rows", &Shape::max_rows);
  nb::class_<CpuGroup>(module, "CpuGroup");
  nb::class_<CpuRank>(module, "CpuRank")
      .def("dispatch", &CpuRank::dispatch)
      .def("combine", &CpuRank::combine, nb::arg(), nb::arg().none(), nb::arg())
      .def("starts",
           [](nb::handle self) {
             const CpuRank& rank = nb::cast<CpuRank&>(self);
             return starts_by_dlpack(rank.shape, rank.slot_starts.data(), self,
                                     nb::device::cpu::value, 0);
           })
      .def("set_placement", &CpuRank::set_placement)
      .def("choose", &CpuRank::choose)
      .def("end_iteration", [](CpuRank& rank) { rank.choice.end_iteration(); })
      .def("take_loads", [](CpuRank& rank) { return loads_of(rank.choice.take_loads()); })
      .def("fail", [](CpuRank& rank, const char* message) { rank.communicator.fail(message); })
      .def("close", [](CpuRank& rank) { rank.communicator.close(); });
  nb::class_<GpuRank>(module, "GpuRank")
      .def("dispatch", &GpuRank::dispatch)
      .def("combine", &GpuRank::combine, nb::arg(), nb::arg().none(), nb::arg(), nb::arg())
      .def("starts",
           [](nb::handle self) {
             const GpuRank& rank = nb::cast<GpuRank&>(self);
             return starts_by_dlpack(rank.shape, rank.communicator.received().slot_starts, self,
                                     nb::device::cuda::value, rank.communicator.device());
           })
      .def_prop_ro("device", [](const GpuRank& rank) { return rank.communicator.device(); })
      .def_prop_ro("device_bytes",
                   [](const GpuRank& rank) { return rank.communicator.device_bytes(); })
      .def("status",
           [](GpuRank& rank) {
             const wideep::Status status = [&] {
               const nb::gil_scoped_release free;
               return rank.communicator.status(rank.call.stream);
             }();
             raise_unless_ok(status);
           })
      .def("set_placement", &GpuRank::set_placement)
      .def("choose", &GpuRank::choose)
      .def("end_iteration",
           [](GpuRank& rank, uintptr_t stream) {
             raise_unless_ok(rank.communicator.end_iteration(reinterpret_cast<void*>(stream)));
           })
      .def("take_loads", &GpuRank::take_loads)
      .def("restart",
           [](GpuRank& rank, const std::vector<int>& inactive_ranks) {
             const wideep::Status status = [&] {
               const nb::gil_scoped_release free;
               return rank.communicator.restart(inactive_ranks);
             }();
             raise_unless_ok(status);
           })
      .def("close", [](GpuRank& rank) { rank.communicator.close(); });
  module.def("create_cpu_group", &create_cpu_group);
  module.def("join_cpu", &join_cpu);
  module.def("join_gpu", &join_gpu);
  module.def("available", [] { raise_unless_ok(DeviceCommunicator::available()); });
}
