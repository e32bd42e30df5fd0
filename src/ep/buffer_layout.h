// SPDX-License-Identifier: Apache-2.0
//
// Where everything lies in a rank's segment of symmetric memory. No offset is computed anywhere
// else.
//
//   counts     [2][ep_size][num_experts] int32
//                  tokens that each source routes to each expert; two sets used in turn
//   num_rows   [ep_size] int32
//                  messages that each source has dispatched to this rank
//   messages   [max_rows], an area of each source behind the other
//                  pushed by the sources (rank-major): a token travels at most once per destination
//                  rank, as
//                    row           row_bytes, padded to 16 bytes
//                    local slots   [top_k] int32, in top-k order; −1 fills what is not used
//                    padding       to 16 bytes
//   results    [max_rows × entries], areas likewise
//                  pulled by the sources: one row of result_bytes, padded to 16, per (token,
//                  expert), in the order of the messages and within one in the order of its slots
//
// entries = min(top_k, slots_per_rank): the most slots of one rank that one token can need.
// max_rows = ep_size × max_tokens, or max_group_tokens where that is less: with the areas of a call
// just as long as the sources' tokens, even a rank to which all tokens go has room for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace wideep::ep {

struct DispatchShape {
  int ep_size = 1;
  int num_experts = 0;
  int slots_per_rank = 0;
  int top_k = 0;
  size_t row_bytes = 0;     // of a dispatched row; what they mean is the caller's
  size_t result_bytes = 0;  // of a row that an expert returns
  int max_tokens = 0;       // per rank and layer call
  int num_nodes = 1;        // divides ep_size; node n owns as many ranks in a row
  // Of all ranks together per layer call, at least ep_size; 0: ep_size × max_tokens.
  int64_t max_group_tokens = 0;

  int64_t max_rows() const;
};

class BufferLayout {
 public:
  explicit BufferLayout(const DispatchShape& shape);

  const DispatchShape& shape() const { return shape_; }
  size_t segment_bytes() const { return segment_bytes_; }

  // Each takes the base of the segment it looks into.
  int32_t* counts(std::byte* segment, uint32_t parity, int source) const;  // [num_experts]
  std::span<const int32_t> counts_of_ranks(std::byte* segment, uint32_t parity) const;  // of all
  int32_t* num_rows(std::byte* segment, int source) const;
  // Rows and entries are counted from the start of the source's area.
  std::byte* message(std::byte* segment, int64_t area, int row) const;  // begins with the row
  int32_t* message_slots(std::byte* message) const;                     // [top_k]
  std::byte* result(std::byte* segment, int64_t area, int entry) const;

  // Where the area of each source starts in a call, in rows: [ep_size + 1], the last the end.
  // tokens_of_ranks: [ep_size], together at most max_rows; empty: max_tokens each.
  void start_areas(std::span<const int32_t> tokens_of_ranks, std::span<int64_t> starts) const;

 private:
  DispatchShape shape_;
  int max_entries_;
  size_t slots_offset_;  // inside a message
  size_t message_bytes_;
  size_t result_bytes_;  // padded
  size_t num_rows_offset_;
  size_t messages_offset_;
  size_t results_offset_;
  size_t segment_bytes_;
};

}  // namespace wideep::ep
