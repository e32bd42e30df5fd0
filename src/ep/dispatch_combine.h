// SPDX-License-Identifier: Apache-2.0
//
// The all-to-all of expert parallelism over symmetric memory, one MoE layer at a time:
//
//   begin      every rank tells every rank how many of its tokens each expert gets
//   (await_counts  only where slots are chosen by the counts of all ranks)
//   dispatch   every rank pushes its token rows to the ranks of their slots
//   (experts)  every rank computes one result row per received row and slot, in its own segment
//   combine    every rank pulls the result rows of its tokens, in top-k order
//
// Calls are collective: a rank without tokens takes part with zero rows. Sizes are decided by the
// data; what a row is made of is the caller's. A buffer is written again only after its readers are
// known to be done:
//
//  - Messages to rank d for call n + 1 are pushed after d's combine flag of call n, which d raises
//    when it has computed (read) all its messages.
//  - d's results of call n + 1 are written after every source's dispatch flag of n + 1, which a
//    source raises when it has pulled its results of n.
//  - Counts alternate between two sets, for a rank may begin n + 1 while a slower one still reads
//    those of n.
//
// Thread safety: one thread per rank calls; the views may be used by many.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ep/buffer_layout.h"
#include "transport/endpoint.h"
#include "wideep/status.h"

namespace wideep::ep {

// A row this rank has received for one of its slots, and where its result belongs.
struct ExpertRow {
  const std::byte* row = nullptr;  // [row_bytes], aligned to 16
  std::byte* result = nullptr;     // [result_bytes], aligned to 16
  int message = 0;                 // which of the received rows, for one may be of several slots
};

class DispatchCombine {
 public:
  // The endpoint's segments are at least layout.segment_bytes() long.
  DispatchCombine(transport::Endpoint& endpoint, const BufferLayout& layout);

  // Begins a call, without waiting. counts: [num_experts] of this rank's tokens. tokens_of_ranks:
  // [ep_size] in this call, equal on all ranks; empty where not known: needs a layout with room for
  // max_tokens of each.
  void begin(std::span<const int32_t> counts, std::span<const int32_t> tokens_of_ranks);
  // Waits until all ranks have counted. Collective: all ranks do so in a call, or none.
  Status await_counts(const transport::Awaited& where);
  // After await_counts, and in any case after dispatch, until the next begin: what all ranks have
  // counted, [ep_size, num_experts].
  std::span<const int32_t> counts_of_ranks() const;

  // rows: [num_tokens] rows of the shape's row_bytes, row_stride bytes apart.
  // slots: [num_tokens, top_k] global slot ids, those of one token distinct.
  // REQUIRES: num_tokens as begin was told of this rank, or at most max_tokens.
  Status dispatch(const std::byte* rows, size_t row_stride, int num_tokens,
                  std::span<const int32_t> slots, const transport::Awaited& where);

  // After dispatch: the received rows of one local slot, by source rank and the source's token
  // order.
  std::span<const ExpertRow> rows_of_slot(int local_slot) const;

  // After dispatch: the received rows, each counted once.
  int num_messages() const { return num_messages_; }

  // Tells the sources that all results are written, and waits for the results of my tokens.
  Status combine(const transport::Awaited& where);
  // After combine, until the next begin: the result rows of my token, [top_k].
  std::span<const std::byte* const> results(int token) const {
    return std::span(results_).subspan(static_cast<size_t>(token) * top_k(), top_k());
  }

  // (token, expert) pairs that this rank has sent to each rank in the current call: [ep_size].
  std::span<const int32_t> sent_entries() const { return sent_entries_; }

 private:
  int top_k() const { return layout_.shape().top_k; }
  void push_token(const std::byte* row, const int32_t* slots, int token);
  std::byte* open_message(int destination, const std::byte* row);
  void group_received();

  transport::Endpoint& endpoint_;
  BufferLayout layout_;
  uint32_t call_ = 0;            // the value of the flags of dispatch and combine
  uint32_t counts_awaited_ = 0;  // times that counts were; the value of their flag
  std::vector<int64_t> area_;    // [ep_size + 1] see BufferLayout::start_areas

  // Source side, of the current call.
  std::vector<int32_t> sent_rows_;         // [ep_size] messages
  std::vector<int32_t> sent_entries_;      // [ep_size]
  std::vector<const std::byte*> results_;  // [num_tokens, top_k]
  std::vector<std::byte*> open_;           // [ep_size] this token's message, or null
  std::vector<int32_t> open_entries_;      // [ep_size] entries in it

  // Destination side, of the current call.
  std::vector<int32_t> slot_start_;  // [slots_per_rank + 1] into rows_
  std::vector<int32_t> slot_fill_;   // [slots_per_rank]
  std::vector<ExpertRow> rows_;
  int num_messages_ = 0;
};

}  // namespace wideep::ep
