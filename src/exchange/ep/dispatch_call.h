// SPDX-License-Identifier: Apache-2.0
//
// Data that the steps of dispatch and combine share: the group's buffers in this rank's address
// space, the tokens of a call, and the state of a call.
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

// The segments of all ranks of the group in this rank's address space. Immutable.
struct GroupBuffers {
  GroupBuffers(const transport::Endpoint& endpoint, const BufferLayout& buffer_layout);

  bool reduced() const { return layout.shape().combine == Combine::kReduced; }
  bool publishes() const { return layout.shape().strategy == Strategy::kAllGather; }

  BufferLayout layout;
  int rank;                           // this rank, in the group
  int num_ranks;                      // ep_size
  int num_owners;                     // see token_destinations.h
  int owner;                          // the owner of this rank's slots
  std::vector<std::byte*> segments;   // [ep_size]; for a rank on another node, this node's image
  std::vector<char> is_on_this_node;  // [ep_size]
};

// The tokens that a rank dispatches in one call.
struct DispatchBatch {
  const std::byte* rows;  // num_tokens rows of row_bytes
  size_t row_stride;      // bytes from one row to the next
  int num_tokens;
  std::span<const int32_t> slots;  // [num_tokens, top_k] global slot ids
  std::span<const float> weights;  // [num_tokens, top_k]; Combine::kReduced only, else empty
};

// The state of one call on one rank.
struct DispatchCall {
  // Set by begin.
  uint32_t number = 0;               // of the call, and value of its flags
  int buffer_set = 0;                // of messages and results, 0 … calls_in_flight − 1
  std::vector<int64_t> areas;        // [ep_size + 1] see BufferLayout::start_areas
  std::byte* own_results = nullptr;  // private memory for results of this rank's own tokens

  // Set by start_dispatch (DispatchSender).
  std::vector<const std::byte*> own_rows;  // rows of this rank's messages to itself
  // [num_tokens, max_results_of_token] where each result will be written
  std::vector<const std::byte*> results;
  std::vector<int32_t> num_results;    // [num_tokens] results of each token; Combine::kReduced only
  std::vector<std::byte*> own_result;  // [num_tokens] see DispatchCombine::own_result

  // Times at which rows and results were sent, in ns; 0 without tracing.
  int64_t sent_ns = 0, returned_ns = 0;
};

}  // namespace wideep::ep
