// SPDX-License-Identifier: Apache-2.0
//
// Where everything lies in a rank's segment of symmetric memory. No offset is computed anywhere
// else.
//
//   counts     [2][num_experts] int32
//                  tokens that this rank routes to each expert, for the others to read in place;
//                  two sets used in turn
//   messages   [max_rows], an area of each source behind the other
//                  pushed by the sources (rank-major): a token travels at most once per destination
//                  rank, as
//                    local slots   [top_k] int32, in top-k order; −1 fills what is not used
//                    weights       [top_k] float32, likewise; Combine::kReduced only
//                    row           row_bytes, on a cache line of its own
//              Strategy::kAllGather: this rank's own tokens once each, for the others to read in
//              place: global slots (and weights) [max_tokens], then rows [max_tokens]; who looks
//              for its slots among all tokens reads short lists side by side
//   results    [max_rows × entries], areas likewise
//                  pulled by the sources: one row of result_bytes per (token, expert), in the order
//                  of the messages and within one in the order of its slots; Combine::kReduced: one
//                  per message. The area of this rank's own tokens stays untouched: their results
//                  lie in memory of its own (own_results_bytes), for caches of other cores that
//                  have once had a line make it slow to write for long
//
// Where two calls may be under way at once (DispatchShape::calls_in_flight), there are two sets of
// messages and of results, one behind the other: an area says in which set it is.
//
// How many messages a source has pushed stands beside its flag of dispatch (Endpoint::tell).
// entries = min(top_k, slots_per_rank): the most slots of one rank that one token can need.
// max_rows = ep_size × max_tokens, or max_group_tokens where that is less: with the areas of a call
// just as long as the sources' tokens, even a rank to which all tokens go has room for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace wideep::ep {

// What comes back of a token.
enum class Combine {
  kExact,    // a row per expert, summed by its own rank in top-k order
  kReduced,  // a row per rank, which has summed those of its experts. Outside promise 1: sums, and
             // with them bits, depend on which experts share a rank
};

// How a token gets to the ranks of its slots: the same rows, the same bits.
enum class Strategy {
  kDispatch,   // pushed to each of them
  kAllGather,  // laid down once, read in place by all
};

struct DispatchShape {
  int ep_size = 1;
  int num_experts = 0;
  int slots_per_rank = 0;
  int top_k = 0;
  size_t row_bytes = 0;     // of a dispatched row; what they mean is the caller's
  size_t result_bytes = 0;  // of a row that comes back
  int max_tokens = 0;       // per rank and layer call
  int num_nodes = 1;        // divides ep_size; node n owns as many ranks in a row
  // Of all ranks together per layer call, at least ep_size; 0: ep_size × max_tokens.
  int64_t max_group_tokens = 0;
  Combine combine = Combine::kExact;
  Strategy strategy = Strategy::kDispatch;
  // 1 or 2: rows of the next call may travel before this one's are reduced.
  int calls_in_flight = 1;
  // Ranks that share the same slots, each computing a slice of every result, which is then what
  // result_bytes is of. Divides ep_size: rank r has slice r / num_owners() of the slots of
  // owner r % num_owners().
  int num_slices = 1;

  int num_owners() const { return ep_size / num_slices; }
  int num_slots() const { return num_owners() * slots_per_rank; }

  int64_t max_rows() const;  // of one call

  // Everything above by name, for ranks to compare.
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

  // Each takes the base of the segment it looks into.
  std::span<int32_t> counts(std::byte* segment, uint32_t parity) const;  // [num_experts]
  // Of a message, or of a result: counted from the start of the source's area. (kAllGather: of a
  // message, from gathered_area.)
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
    const size_t at = static_cast<size_t>(area * max_results_ + index);
    return segment + results_offset_ + at * result_bytes_;
  }
  // From one to the next. kDispatch: of a message's list of slots too.
  size_t row_stride() const { return rows_stride_; }
  size_t result_stride() const { return result_bytes_; }
  // Of the results of a rank's own tokens in one call.
  size_t own_results_bytes() const {
    return static_cast<size_t>(max_gathered() * max_results_) * result_bytes_;
  }
  // The most results of one message.
  int max_results() const { return max_results_; }

  // Where the area of each source starts in a call, in rows: [ep_size + 1], the last the end.
  // tokens_of_ranks: [ep_size]; empty: max_tokens each. set: 0 … calls_in_flight − 1.
  void start_areas(std::span<const int32_t> tokens_of_ranks, int set,
                   std::span<int64_t> starts) const;
  // kAllGather: of every source's messages, in its own segment.
  int64_t gathered_area(int set) const { return set * max_gathered(); }

 private:
  int64_t max_gathered() const;

  DispatchShape shape_;
  int max_results_;
  size_t lists_offset_;  // of the first message's slots
  size_t lists_stride_;  // from message to message
  size_t rows_offset_;
  size_t rows_stride_;
  size_t results_offset_;
  size_t result_bytes_;  // with what aligns the next
  size_t segment_bytes_;
};

}  // namespace wideep::ep
