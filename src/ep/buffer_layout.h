// SPDX-License-Identifier: Apache-2.0
//
// Where everything lies in a rank's segment of symmetric memory. No offset is computed anywhere
// else.
//
//   counts     [2][num_experts] int32
//                  published: tokens that this rank routes to each expert; two sets used in turn
//   messages   [max_rows], one area per source, one behind the other
//                  pushed by the sources (rank-major): a token travels at most once per destination
//                  rank, as
//                    local slots   [top_k] int32, in top-k order; −1 fills what is not used
//                    weights       [top_k] float32, the same; Combine::kReduced only
//                    row           row_bytes, on a cache line of its own
//              Strategy::kAllGather: this rank's own tokens, published once each: global slots (and
//              weights) [max_tokens], then rows [max_tokens]. A rank looks for its slots in the
//              lists of all tokens, so these are short and side by side
//   results    [max_rows × entries], areas as above
//                  read in place by the sources: one row of result_bytes per (token, expert), in
//                  the order of the messages and within one in the order of its slots;
//                  Combine::kReduced: one per message. The area of this rank's own tokens stays
//                  untouched: their results lie in memory of its own (own_results_bytes), because a
//                  cache line that caches of other cores once had stays slow to write for long
//
// To publish is to write into one's own segment, where all ranks read it in place.
//
// Where two calls may be in flight at once (DispatchShape::calls_in_flight), there are two sets of
// messages and of results, one behind the other: an area says in which set it is.
//
// How many messages a source has sent stands beside its flag of dispatch (Endpoint::set_word).
// entries = min(top_k, slots_per_rank): the most slots of one rank that one token can need.
// max_rows = ep_size × max_tokens, or max_group_tokens where that is less. The areas of a call are
// just as long as the sources' tokens, so that even a rank to which all tokens go has room for
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace wideep::ep {

// What comes back for a token.
enum class Combine {
  kExact,    // a row per expert, summed by its own rank in top-k order
  kReduced,  // a row per rank: the sum over its experts. Outside promise 1: the sums, and with them
             // the bits, depend on which experts share a rank
};

// How a token gets to the ranks of its slots: the same rows, the same bits.
enum class Strategy {
  kDispatch,   // pushed to each of them
  kAllGather,  // published once, read in place by all
};

struct DispatchShape {
  int ep_size = 1;
  int num_experts = 0;
  int slots_per_rank = 0;
  int top_k = 0;
  size_t row_bytes = 0;     // of a dispatched row; their meaning is the caller's affair
  size_t result_bytes = 0;  // of a row that comes back
  int max_tokens = 0;       // per rank and layer call
  int num_nodes = 1;        // divides ep_size; every node has as many consecutive ranks
  // Of all ranks together per layer call, at least ep_size; 0: ep_size × max_tokens.
  int64_t max_group_tokens = 0;
  Combine combine = Combine::kExact;
  Strategy strategy = Strategy::kDispatch;
  // 1 or 2: whether rows of the next call may travel before this one's results are reduced.
  int calls_in_flight = 1;
  // So many ranks share the same slots; each computes a slice of every result, and result_bytes is
  // the size of a slice. Divides ep_size: rank r has slice r / num_owners() of the slots of owner
  // r % num_owners().
  int num_slices = 1;

  int num_owners() const { return ep_size / num_slices; }
  int num_slots() const { return num_owners() * slots_per_rank; }

  int64_t max_rows() const;  // of one call
  // Result rows that can come back for one token.
  int max_results_of_token() const { return num_slices * top_k; }

  // Everything above by name, for ranks to compare (check_shapes.h).
  struct Field {
    const char* name;
    uint64_t value;
  };
  static constexpr size_t kNumFields = 13;
  std::array<Field, kNumFields> fields() const;
};

class BufferLayout {
 public:
  explicit BufferLayout(const DispatchShape& shape);

  const DispatchShape& shape() const { return shape_; }
  size_t segment_bytes() const { return segment_bytes_; }

  // segment: the base of the segment that is looked into.
  std::span<int32_t> counts(std::byte* segment, uint32_t parity) const;  // [num_experts]
  // area: of the source, as start_areas gives it (messages of kAllGather: published_area); index:
  // of the message, or of the result, in that area.
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
  // Bytes from one row to the next; with kDispatch also from one message's list of slots to the
  // next.
  size_t row_stride() const { return rows_stride_; }
  size_t result_stride() const { return result_bytes_; }
  // The results of a rank's own tokens in one call.
  size_t own_results_bytes() const {
    return static_cast<size_t>(max_published() * results_per_message_) * result_bytes_;
  }

  // Where the area of each source starts in a call, in rows: [ep_size + 1], the last is the end.
  // tokens_of_ranks: [ep_size]; empty: max_tokens each. set: of buffers, 0 … calls_in_flight − 1.
  void start_areas(std::span<const int32_t> tokens_of_ranks, int set,
                   std::span<int64_t> starts) const;
  // kAllGather: the area of every source's messages, in its own segment.
  int64_t published_area(int set) const { return set * max_published(); }

 private:
  int64_t max_published() const;

  DispatchShape shape_;
  int results_per_message_;  // at most
  size_t lists_offset_;      // of the first message's slots
  size_t lists_stride_;      // from message to message
  size_t rows_offset_;
  size_t rows_stride_;
  size_t results_offset_;
  size_t result_bytes_;  // with the padding behind it
  size_t segment_bytes_;
};

}  // namespace wideep::ep
