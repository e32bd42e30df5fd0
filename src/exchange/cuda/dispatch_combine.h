// SPDX-License-Identifier: Apache-2.0
//
// Dispatch and combine of one rank on its device: launches the kernels of a call (exchange.h) onto
// the rank's stream. Nothing here waits, and nothing reads what is on the device, except failure().
//
//   auto ranks = DispatchCombine::create_all(devices, shape, options);   // of this process
//   (*ranks)[r].dispatch(tokens, rows, row_stride, layer);
//   (*ranks)[r].receive(layer);        // then received_rows(), slot_starts() on the device
//   // ... launch the experts
//   (*ranks)[r].combine(tokens, {.out = out, .out_stride = …, .hidden = hidden}, layer);
//
// Thread safety: that of its devices.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "cuda/devices.h"
#include "ep/slot_choice.h"

namespace wideep::cuda {

struct DispatchCombineOptions {
  std::chrono::nanoseconds deadline{std::chrono::seconds{10}};  // of every single wait
  // Of dispatch and combine. If ranks share a device, the blocks of all of them have to be resident
  // together, because they wait for each other.
  int num_blocks = 1;
  int num_threads = 256;
  int num_index_threads = 1024;
  int num_receive_blocks = 1;
  // Groups with at most so many tokens per rank (ExchangeShape::max_tokens) do dispatch_and_receive
  // in one kernel, with a block for each rank.
  int small_round_tokens = 8;
  std::vector<int> inactive_ranks = {};
};

// What combine writes.
struct CombineOutput {
  RowFormat result_format = RowFormat::kBf16;
  int hidden = 0;
  const float* shared_expert = nullptr;  // [num_tokens, hidden], or null
  std::byte* out = nullptr;              // [num_tokens] rows of hidden bf16, 16-byte aligned
  size_t out_stride = 0;                 // a multiple of 16
};

// What experts write for reduce: plain results, hidden values each.
struct ResultMatrix {
  const std::byte* rows = nullptr;      // 16-byte aligned
  size_t stride = 0;                    // bytes, a multiple of 16 with room for a row
  RowFormat format = RowFormat::kBf16;  // or f32
  int hidden = 0;
};

class DispatchCombine {
 public:
  // All ranks of the group are in this process. Errors (invalid input): check_shape; a block that
  // is too large; failed: not enough memory.
  static Result<std::vector<DispatchCombine>> create_all(Devices& devices,
                                                         const ExchangeShape& shape,
                                                         const DispatchCombineOptions& options);
  // One rank whose peers may be elsewhere. segments: [ep_size] in this device's address space; the
  // first BufferLayout::zeroed_bytes of its own are zero.
  static Result<DispatchCombine> create(Devices& devices, const ExchangeShape& shape, int rank,
                                        std::span<std::byte* const> segments,
                                        const DispatchCombineOptions& options);

  // All pointers are to the device's memory.
  Status prepare(const int32_t* num_tokens, const int32_t* experts, int layer);
  // A table of replicas on the device, for choose_slots. Its credits change from call to call.
  Result<ReplicaTable> upload(const ep::SlotChooser::ReplicaTable& table);
  // Before dispatch: the slots of all tokens by the shares in the table. experts, slots:
  // [num_tokens, top_k].
  Status choose_slots(const ReplicaTable& replicas, const int32_t* num_tokens,
                      const int32_t* experts, int32_t* slots);
  // The same by the counts of all ranks. REQUIRES: prepare before, with the same tokens;
  // upload_replicas (counted_replicas.h).
  Status choose_slots_by_counts(const CountedReplicas& replicas, const int32_t* num_tokens,
                                const int32_t* experts, int32_t* slots);
  // rows: [num_tokens] rows of row_bytes, row_stride bytes apart.
  Status dispatch(const Tokens& tokens, const std::byte* rows, size_t row_stride, int layer);
  Status receive(int layer);
  // dispatch, then receive.
  Status dispatch_and_receive(const Tokens& tokens, const std::byte* rows, size_t row_stride,
                              int layer);
  // The received rows by slot, and [slots_per_rank + 1] where each slot's rows begin.
  const ReceivedRow* received_rows() const { return received_; }
  const int32_t* slot_starts() const { return slot_starts_; }
  // Between receive and combine, for experts that take matrices: all received rows one after the
  // other into a matrix, and results back. stride: bytes, a multiple of 16 with room for a row;
  // matrix: 16-byte aligned, room for all rows that come.
  Status expand(std::byte* matrix, size_t stride);
  Status finalize(std::byte* matrix, size_t stride);
  // If the shape is reduced, instead of finalize: one row per message goes back, the weighted sum
  // of its results (reduce_results.h). matrix: plain results in the order of received_rows().
  Status reduce(const ResultMatrix& matrix, RowFormat result_format);
  Status combine(const Tokens& tokens, const CombineOutput& output, int layer);

  // The first failure of this rank since it was created. Waits for the stream.
  Status failure();

  // After a failure: forgets it and goes on without some ranks. calls_done: the largest of
  // num_calls_done() of all ranks that go on, plus 1. REQUIRES: all ranks that go on are idle, do
  // it with the same arguments, and begin their next call when all have done it.
  Status restart(std::span<const int> inactive_ranks, uint32_t calls_done);
  Result<uint32_t> num_calls_done();  // waits for the stream

  int rank() const { return x_.rank; }
  const Exchange& exchange() const { return x_; }
  std::byte* segment() const { return segments_[static_cast<size_t>(x_.rank)]; }
  // [ep_size, num_experts] on the device, after prepare.
  const int32_t* counts_of_ranks() const { return x_.layout.counts(segment(), 0); }
  const int32_t* totals() const { return totals_; }  // [num_experts] their sums

 private:
  Status check_matrix(const std::byte* matrix, size_t stride, size_t num_bytes) const;
  DispatchCombine(Devices& devices, const DispatchCombineOptions& options)
      : devices_(&devices), options_(options) {}

  Devices* devices_;
  DispatchCombineOptions options_;
  Exchange x_;
  std::vector<std::byte*> segments_;
  ReceivedRow* received_ = nullptr;
  int32_t* slot_starts_ = nullptr;
  int32_t* totals_ = nullptr;
  int32_t* rows_of_messages_ = nullptr;  // if the shape is reduced
};

}  // namespace wideep::cuda
