// SPDX-License-Identifier: Apache-2.0
//
// The layout of a rank's segment of symmetric memory. Only this file computes offsets.
//
//   counts     [2][num_experts] int32: the number of this rank's tokens for each expert. The rank
//              publishes them. Two sets, used in turn.
//   messages   [max_rows]: one area per source rank, one after the other. Sources push messages
//              here; a token is one message per destination rank:
//                local slots   [top_k] int32, in top-k order; unused entries are −1
//                weights       [top_k] float32, in the same order; Combine::kReduced only
//                row           [row_bytes], starts a cache line
//              Strategy::kAllGather: instead, the tokens of this rank itself, published once each:
//              lists of global slots (and weights) [max_tokens], then rows [max_tokens]. The lists
//              are dense, because every rank reads the lists of all tokens to find its own slots.
//   results    [max_rows × entries]: areas as above. Sources read them in place. One row of
//              result_bytes per (token, expert), in the order of messages and of slots in a
//              message; Combine::kReduced: one row per message. The area of this rank's own tokens
//              is unused: their results are in private memory (own_results_bytes), because a cache
//              line that other cores have read is slow to write.
//
// To publish is to write into one's own segment, where all ranks read in place.
//
// entries = min(top_k, local slots): the most slots that one token can have on one rank.
// max_rows = min(ep_size × max_tokens, max_group_tokens): even if all tokens go to one rank, it has
// room. An area is as long as its source has tokens in the call.
//
// If two calls may be in flight (DispatchShape::calls_in_flight), there are two sets of messages
// and results, one after the other. The start of an area includes the offset of its set.
//
// The number of messages from a source is not in the segment: it is the word that accompanies the
// source's dispatch flag (Endpoint::set_word).
//
// Thread safety: immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace wideep::ep {

// The result rows that are sent back for a token.
enum class Combine {
  kExact,    // a row per expert; the source sums them in top-k order
  kReduced,  // a row per rank: the sum over its experts. Not covered by the promise of equal bits,
             // since the order of additions depends on which experts share a rank
};

// How a token's row reaches the ranks of its slots. Does not change any bit.
enum class Strategy {
  kDispatch,   // the source pushes it to each of them
  kAllGather,  // the source publishes it once; all ranks read it in place
};

struct DispatchShape {
  int ep_size = 1;
  int num_experts = 0;
  int slots_per_rank = 0;
  // Local slots after those, without weights of their own: in a call each may stand for an expert
  // whose weights the rank reads elsewhere (row_sharing.h).
  int borrowed_slots = 0;
  int top_k = 0;
  size_t row_bytes = 0;     // of a dispatched row; only the caller interprets them
  size_t result_bytes = 0;  // of a result row
  int max_tokens = 0;       // per rank and call
  int num_nodes = 1;        // divides ep_size; nodes have equally many, consecutive ranks
  // Maximum of the tokens of all ranks together per call, at least ep_size. 0: ep_size ×
  // max_tokens.
  int64_t max_group_tokens = 0;
  Combine combine = Combine::kExact;
  Strategy strategy = Strategy::kDispatch;
  int calls_in_flight = 1;  // 1 or 2; 2: the next call may begin before this one is finished
  // Number of ranks that have the same slots (experts sharded by TP). Each computes a slice of
  // every result, and result_bytes is the size of a slice. Divides ep_size. Rank r has slice r /
  // num_owners() of the slots of owner r % num_owners().
  int num_slices = 1;

  int num_owners() const { return ep_size / num_slices; }
  // Slots as messages number them: slot s is local slot s % local_slots() of owner s /
  // local_slots().
  int local_slots() const { return slots_per_rank + borrowed_slots; }
  int num_slots() const { return num_owners() * local_slots(); }

  int64_t max_rows() const;  // of one call
  // The most result rows that are sent back for one token.
  int max_results_of_token() const { return num_slices * top_k; }

  // All members by name, for check_shapes.h.
  struct Field {
    const char* name;
    uint64_t value;
  };
  static constexpr size_t kNumFields = 14;
  std::array<Field, kNumFields> fields() const;
};

class BufferLayout {
 public:
  explicit BufferLayout(const DispatchShape& shape);

  const DispatchShape& shape() const { return shape_; }
  size_t segment_bytes() const { return segment_bytes_; }

  // In all accessors, segment is the base address of the segment.
  std::span<int32_t> counts(std::byte* segment, uint32_t parity) const;  // [num_experts]
  // area: start of the source's area, from start_areas (messages of kAllGather: published_area).
  // index: of the message, or of the result, in that area.
  int32_t* slots(std::byte* segment, int64_t area, int index) const {  // [top_k]
    return reinterpret_cast<int32_t*>(segment + lists_offset_ +
                                      static_cast<size_t>(area + index) * lists_stride_);
  }
  float* weights(std::byte* segment, int64_t area, int index) const {  // [top_k]; kReduced
    return weights_after(slots(segment, area, index));
  }
  float* weights_after(int32_t* slots) const {  // of the same message
    return reinterpret_cast<float*>(slots + shape_.top_k);
  }
  std::byte* row(std::byte* segment, int64_t area, int index) const {  // [row_bytes]
    return segment + rows_offset_ + static_cast<size_t>(area + index) * rows_stride_;
  }
  std::byte* result(std::byte* segment, int64_t area, int index) const {  // [result_bytes]
    const size_t at = static_cast<size_t>(area * results_per_message_ + index);
    return segment + results_offset_ + at * result_bytes_;
  }
  // What the segment has room for, of all calls in flight: messages (area + index of slots(),
  // weights() and row() is less), and results (area and index of result() are within).
  int64_t num_messages() const { return num_messages_; }
  bool has_results(int64_t area, int64_t count) const {
    return area >= 0 && area <= num_results_ / results_per_message_ && count >= 0 &&
           count <= num_results_ - area * results_per_message_;
  }
  // Bytes from one row to the next. With kDispatch, also from one list of slots to the next.
  size_t row_stride() const { return rows_stride_; }
  size_t result_stride() const { return result_bytes_; }
  // Size of the private memory for results of a rank's own tokens, per call in flight.
  size_t own_results_bytes() const {
    return static_cast<size_t>(max_published() * results_per_message_) * result_bytes_;
  }

  // Computes where each source's area starts in a call, in rows. starts: [ep_size + 1], the last is
  // the end. tokens_of_ranks: [ep_size]; empty: max_tokens each. set: buffer set of the call,
  // 0 … calls_in_flight − 1.
  void start_areas(std::span<const int32_t> tokens_of_ranks, int set,
                   std::span<int64_t> starts) const;
  // kAllGather: start of the area of published messages, the same in every segment.
  int64_t published_area(int set) const { return set * max_published(); }

 private:
  int64_t max_published() const;

  DispatchShape shape_;
  int results_per_message_;  // at most
  int64_t num_messages_;
  int64_t num_results_;
  size_t lists_offset_;  // of the first message's slots
  size_t lists_stride_;  // bytes from one message's slots to the next
  size_t rows_offset_;
  size_t rows_stride_;
  size_t results_offset_;
  size_t result_bytes_;  // with padding
  size_t segment_bytes_;
};

}  // namespace wideep::ep
