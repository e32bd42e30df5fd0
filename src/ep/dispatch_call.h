// SPDX-License-Identifier: Apache-2.0
//
// What the steps of dispatch and combine share: the group's buffers as this rank reaches them, the
// tokens of a call, and what has to be known of a call from its begin to its end.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ep/buffer_layout.h"

namespace wideep::transport {
class Endpoint;
}

namespace wideep::ep {

// The segments of a group's ranks in the address space of one of them. Constant.
struct GroupBuffers {
  GroupBuffers(const transport::Endpoint& endpoint, const BufferLayout& buffer_layout);

  bool reduced() const { return layout.shape().combine == Combine::kReduced; }
  bool publishes() const { return layout.shape().strategy == Strategy::kAllGather; }

  BufferLayout layout;
  int rank;                           // this one
  int num_ranks;                      // ep_size
  int num_owners;                     // see token_destinations.h
  int owner;                          // which of them has this rank's slots
  std::vector<std::byte*> segments;   // [ep_size]; of a rank on another node: its image here
  std::vector<char> is_on_this_node;  // [ep_size] is the rank on this node?
};

// The tokens that a rank dispatches in one call.
struct DispatchBatch {
  const std::byte* rows;  // num_tokens rows of row_bytes
  size_t row_stride;      // bytes from one row to the next
  int num_tokens;
  std::span<const int32_t> slots;  // [num_tokens, top_k] global slot ids
  std::span<const float> weights;  // [num_tokens, top_k]; empty but for Combine::kReduced
};

// One call on one rank.
struct DispatchCall {
  // From begin on.
  uint32_t number = 0;         // counts calls; also the value of the call's flags
  int buffer_set = 0;          // of messages and results, 0 … calls_in_flight − 1
  std::vector<int64_t> areas;  // [ep_size + 1] see BufferLayout::start_areas
  std::byte* own_results =
      nullptr;  // where results of this rank's own tokens go: in its own memory

  // From start_dispatch on: what the sender leaves.
  std::vector<const std::byte*> own_rows;  // the messages of this rank to itself: their rows
  std::vector<const std::byte*> results;   // [num_tokens, most of a token], where they will lie
  std::vector<int32_t> num_results;        // [num_tokens] how many of these; Combine::kReduced only
  std::vector<std::byte*> own_result;      // [num_tokens] see DispatchCombine::own_result

  // When rows, and results, were sent, in nanoseconds; 0: nobody traces.
  int64_t sent_ns = 0, returned_ns = 0;
};

}  // namespace wideep::ep
