// SPDX-License-Identifier: Apache-2.0
//
// The layout of a rank's segment of symmetric memory on GPUs. Only this file computes offsets;
// hosts and kernels share it.
//
//   flags     [channels][ep_size] uint32, a sector each: raised by the source to the call's number
//   failures  [ep_size] uint32, a sector each: not zero: that source has failed
//   counts    [ep_size][num_experts] int32: each source's tokens for each expert (prepare)
//   arrivals  [ep_size][slots_per_rank + 1] int32: each source's rows for each slot of this rank;
//             last, its messages
//   messages  [ep_size][max_tokens]: one area per source. A token is one message per destination
//             rank, written by its source:
//               slots     [top_k] int32: this rank's slots, in the token's order; −1: another
//               rank's ordinals  [top_k] int32: the index of the row among those of its source and
//               slot weights   [top_k] float32 row       [row_bytes], 16-byte aligned, padded with
//               zeros to a multiple of 16
//   results   [ep_size][max_tokens][entries] result rows, in the order of messages and of the slots
//             in a message. Sources read them in place. If they are reduced: one row per message.
//
// entries = min(top_k, slots_per_rank): the most slots that one token can have on one rank.
//
// It differs from the CPU's (ep/buffer_layout.h) in one thing: areas have max_tokens messages each,
// so that no host, and no other rank, has to know the number of tokens before a kernel starts.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/lane.h"
#include "wideep/status.h"

namespace wideep::cuda {

struct ExchangeShape {
  int32_t ep_size = 1;
  int32_t num_experts = 1;
  int32_t slots_per_rank = 1;
  int32_t top_k = 1;
  int32_t max_tokens = 1;     // per rank and call
  uint32_t row_bytes = 0;     // of a dispatched row
  uint32_t result_bytes = 0;  // of a result row
  bool is_reduced = false;  // a rank returns one row per token: its weighted sum (reduce_results.h)

  WIDEEP_HOST_DEVICE int32_t num_slots() const { return ep_size * slots_per_rank; }
};

inline constexpr int kMaxRanks = 128;

// Errors (invalid input): a number that no exchange can have.
Status check_shape(const ExchangeShape& shape);

// What a flag is raised for.
enum class Channel : int32_t { kPrepare, kDispatch, kCombine };
inline constexpr int kNumChannels = 3;

class BufferLayout {
 public:
  BufferLayout() = default;
  // REQUIRES: check_shape.
  explicit BufferLayout(const ExchangeShape& shape);

  WIDEEP_HOST_DEVICE const ExchangeShape& shape() const { return shape_; }
  WIDEEP_HOST_DEVICE int32_t entries() const { return entries_; }
  size_t segment_bytes() const { return segment_bytes_; }
  // The bytes from the start that have to be zero before the first call: flags and failures.
  size_t zeroed_bytes() const { return counts_; }

  // Bytes from one row to the next.
  WIDEEP_HOST_DEVICE size_t result_stride() const { return result_stride_; }

  // In all accessors, segment is the base address of the segment.
  WIDEEP_HOST_DEVICE uint32_t* flag(std::byte* segment, Channel channel, int source) const {
    const int place = static_cast<int>(channel) * shape_.ep_size + source;
    return reinterpret_cast<uint32_t*>(segment + static_cast<size_t>(place) * kSector);
  }
  WIDEEP_HOST_DEVICE uint32_t* failure(std::byte* segment, int source) const {
    const int place = kNumChannels * shape_.ep_size + source;
    return reinterpret_cast<uint32_t*>(segment + static_cast<size_t>(place) * kSector);
  }
  WIDEEP_HOST_DEVICE int32_t* counts(std::byte* segment, int source) const {  // [num_experts]
    return reinterpret_cast<int32_t*>(segment + counts_) +
           static_cast<size_t>(source) * static_cast<size_t>(shape_.num_experts);
  }
  WIDEEP_HOST_DEVICE int32_t* arrivals(std::byte* segment, int source) const {
    return reinterpret_cast<int32_t*>(segment + arrivals_) +
           static_cast<size_t>(source) * static_cast<size_t>(shape_.slots_per_rank + 1);
  }
  WIDEEP_HOST_DEVICE int32_t* slots(std::byte* segment, int source, int message) const {
    return reinterpret_cast<int32_t*>(segment + messages_ + index(source, message) * stride_);
  }
  WIDEEP_HOST_DEVICE int32_t* ordinals(int32_t* slots) const { return slots + shape_.top_k; }
  WIDEEP_HOST_DEVICE float* weights(int32_t* slots) const {
    return reinterpret_cast<float*>(slots + 2 * shape_.top_k);
  }
  WIDEEP_HOST_DEVICE std::byte* row(int32_t* slots) const {
    return reinterpret_cast<std::byte*>(slots) + row_offset_;
  }
  WIDEEP_HOST_DEVICE std::byte* result(std::byte* segment, int source, int message,
                                       int place) const {
    const size_t at = index(source, message) * static_cast<size_t>(results_of_message_);
    return segment + results_ + (at + static_cast<size_t>(place)) * result_stride_;
  }
  size_t messages_offset() const { return messages_; }

 private:
  static constexpr size_t kSector = 32;  // what a GPU reads and writes at once

  WIDEEP_HOST_DEVICE size_t index(int source, int message) const {
    return static_cast<size_t>(source) * static_cast<size_t>(shape_.max_tokens) +
           static_cast<size_t>(message);
  }

  ExchangeShape shape_;
  int32_t entries_ = 0;
  uint32_t row_offset_ = 0;  // in a message
  size_t counts_ = 0, arrivals_ = 0, messages_ = 0, results_ = 0;
  int32_t results_of_message_ = 1;
  size_t stride_ = 0;  // from one message to the next
  size_t result_stride_ = 0;
  size_t segment_bytes_ = 0;
};

}  // namespace wideep::cuda
