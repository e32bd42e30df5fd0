// SPDX-License-Identifier: Apache-2.0
//
// The all-to-all of expert parallelism over symmetric memory. One call serves one MoE layer in one
// iteration (or one chunk of it). Its steps:
//
//   begin            publishes this rank's number of tokens for each expert
//   (await_counts)   waits for the counts of all ranks; only if slots are chosen by them
//   start_dispatch   sends this rank's token rows: pushes each row to the ranks of its slots, or
//                    publishes it once (Strategy)
//   finish_dispatch  waits for the rows of all ranks and sorts them by slot
//   (experts)        the caller computes one result row per received row and slot
//   start_combine    raises the flag that this rank's results are written
//   finish_combine   waits for the results of this rank's tokens, which the caller reads in place
//
// dispatch() and combine() do both halves. Between the halves the caller can do other work.
//
// Calls are collective: a rank without tokens takes part with zero rows. Rows are opaque bytes.
//
// If the shape allows two calls in flight, the next call may begin and start its dispatch before
// this call has received its rows or results. All ranks use the same order:
//
//   begin n, start_dispatch n, begin n + 1, start_dispatch n + 1,
//   finish_dispatch n, (experts), start_combine n, finish_dispatch n + 1, (experts), …
//   finish_combine n, begin n + 2, …
//
// Why no buffer is overwritten while a rank still reads it. Let p be the last call before n that
// used the same buffer set: n − 1, or n − 2 with two calls in flight.
//
//  - Messages: a rank begins n after its finish_combine of p. So before it writes messages of n
//    into the segment of rank d, it has seen d's combine flag of p, which d raises after it has
//    read all its messages of p. Before it publishes rows of n, it has seen the combine flags of
//    all ranks.
//  - Results: rank d writes results of n after it has seen the dispatch flags of n of all sources.
//    A source raises that flag after it has read its results of p.
//  - Counts, and the word with the number of messages, have two places each, used in turn, because
//    a rank may begin n while a slower rank still reads those of n − 1. All ranks have read those
//    of n − 2 before they raised their combine flags of n − 2, which the writer has seen.
//
// Combine::kExact: a result row is in the segment of the rank that computes it, and its source
// reads it there. Results of a rank's own tokens are in private memory.
//
// Combine::kReduced: the caller multiplies the results of a message by the router weights in the
// message, and writes their sum into the one row that is sent back. From another node one row per
// token is sent back: the sum of the rows of that node's ranks, added there in rank order
// (set_row_sum). Not covered by the promise of equal bits.
//
// Ranks may be on several nodes (Endpoint::set_bridge), with Strategy::kDispatch only; see
// node_crossing.h.
//
// Errors: a wrong call on any rank (a step out of order, more tokens than announced) is invalid
// input and fails the group: the waits of all ranks return its message.
//
// Thread safety: one thread per rank makes the calls; any thread may read received rows and
// results.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/shared_bytes.h"
#include "base/trace.h"
#include "ep/buffer_layout.h"
#include "ep/dispatch_call.h"
#include "ep/dispatch_receiver.h"
#include "ep/dispatch_sender.h"
#include "ep/node_crossing.h"
#include "transport/endpoint.h"
#include "wideep/status.h"

namespace wideep::ep {

class DispatchCombine {
 public:
  // REQUIRES: the endpoint's segments have at least layout.segment_bytes() bytes. The endpoint
  // outlives this.
  DispatchCombine(transport::Endpoint& endpoint, const BufferLayout& layout);

  // Required for Combine::kReduced on several nodes. Call it before open.
  void set_row_sum(RowSum row_sum) { row_sum_ = std::move(row_sum); }
  // Call it before the first call. Does not wait. REQUIRES: all ranks have the same shape
  // (check_shapes.h); if another DispatchCombine has used the same memory, a barrier since its last
  // call. Errors: strategy or row sum do not fit ranks on several nodes (invalid input); the kernel
  // refuses memory (failed).
  Status open();
  bool is_open() const { return phase_ == Phase::kOpen; }
  // Call it after the last call. It cannot be opened again. Ranks may close at different times.
  void close() { phase_ = Phase::kClosed; }

  // Begins a call. Does not wait. counts: [num_experts] this rank's tokens for each expert.
  // tokens_of_ranks: [ep_size] each rank's number of tokens in this call, equal on all ranks; may
  // be empty if the layout has room for max_tokens of each rank (max_group_tokens 0).
  Status begin(std::span<const int32_t> counts, std::span<const int32_t> tokens_of_ranks);
  // After begin: raises the flag that this rank's counts are published, and waits for the counts of
  // all ranks. Collective: in a call, all ranks call it or none. To wait later, call
  // announce_counts first, which only raises the flag.
  Status await_counts(const transport::Awaited& where);
  void announce_counts();
  // After announce_counts: whether await_counts would return without waiting.
  bool counts_arrived() const;
  // From await_counts to start_dispatch: the counts of all ranks, [ep_size, num_experts].
  std::span<const int32_t> counts_of_ranks() const { return counts_of_ranks_; }
  // From finish_dispatch to start_combine, even without await_counts: the counts of one rank,
  // [num_experts].
  std::span<const int32_t> received_counts(int rank) const {
    return buffers_.layout.counts(buffers_.segments[rank], done_.received);
  }

  Status dispatch(const std::byte* rows, size_t row_stride, int num_tokens,
                  std::span<const int32_t> slots, const transport::Awaited& where,
                  std::span<const float> weights = {}) {
    const Status started = start_dispatch(rows, row_stride, num_tokens, slots, weights);
    return started.ok() ? finish_dispatch(where) : started;
  }
  // rows: [num_tokens] rows of row_bytes, row_stride bytes apart; the caller keeps them unchanged
  // until combine.
  // slots: [num_tokens, top_k] global slot ids, those of one token distinct.
  // weights: [num_tokens, top_k]; Combine::kReduced only, else empty.
  // num_tokens: at most this rank's entry of tokens_of_ranks in begin, or max_tokens.
  Status start_dispatch(const std::byte* rows, size_t row_stride, int num_tokens,
                        std::span<const int32_t> slots, std::span<const float> weights = {});
  // Whether finish_dispatch would return without waiting.
  bool rows_arrived() const;
  Status finish_dispatch(const transport::Awaited& where);

  // From finish_dispatch to the next: the rows received for one local slot, ordered by source rank,
  // then by the source's tokens.
  std::span<const ExpertRow> rows_of_slot(int local_slot) const {
    return receiver_.rows_of_slot(local_slot);
  }
  // The number of these rows over all slots, and the number of distinct rows among them (messages).
  int num_entries() const { return receiver_.num_entries(); }
  int num_messages() const { return receiver_.num_messages(); }
  // Combine::kReduced: [num_messages] the received tokens. The caller writes one result for each.
  std::span<const ReceivedToken> received_tokens() const { return receiver_.received_tokens(); }

  // Call it when all results are written.
  Status combine(const transport::Awaited& where) {
    const Status started = start_combine();
    return started.ok() ? finish_combine(where) : started;
  }
  Status start_combine();
  // Whether finish_combine would return without waiting.
  bool results_arrived();
  Status finish_combine(const transport::Awaited& where);
  // From finish_combine to the next begin: the result rows for one of this rank's tokens, slice by
  // slice. kExact: [num_slices, top_k], in top-k order. kReduced: [num_slices, n], one for each of
  // the n owners of its slots, in their order. The owners on another node have one row together, in
  // the place of the first of them.
  std::span<const std::byte* const> results(int token) const {
    const DispatchCall& call = call_of(done_.finished);
    const int max = buffers_.layout.shape().max_results_of_token();
    return {call.results.data() + static_cast<size_t>(token) * static_cast<size_t>(max),
            static_cast<size_t>(buffers_.reduced() ? call.num_results[token] : max)};
  }
  // In the same period: the first of results(token) that this rank itself has computed; null if
  // there is none. No other rank reads it, so the caller may write the token's sum over it.
  std::byte* own_result(int token) const { return call_of(done_.finished).own_result[token]; }

  // [ep_size] (token, expert) pairs that this rank sent to each rank in its last dispatch.
  std::span<const int32_t> sent_entries() const { return sender_.sent_entries(); }
  // Null if no rows cross between nodes.
  const NodeCrossing* crossing() const { return crossing_ ? &*crossing_ : nullptr; }

 private:
  enum class Phase { kNew, kOpen, kClosed };
  // The number of the last call for which each step is done. Each number is at most the one before
  // it. A call's number is the value of its dispatch and combine flags.
  struct Done {
    uint32_t begun = 0;
    uint32_t sent = 0;      // start_dispatch
    uint32_t received = 0;  // finish_dispatch
    uint32_t returned = 0;  // start_combine
    uint32_t summed = 0;    // sums sent to other nodes; only if sums_on_nodes()
    uint32_t finished = 0;  // finish_combine
  };

  Status fail_group(const std::string& why) const;
  Status expect(bool in_order, const char* step, const char* expected) const;
  const char* current_step() const;
  Status check_begin(std::span<const int32_t> counts,
                     std::span<const int32_t> tokens_of_ranks) const;
  void publish_counts(std::span<const int32_t> counts);
  uint32_t word_from(int source) const;
  Status take_messages(int source);
  bool sums_on_nodes() const { return crossing_ && crossing_->sums_on_nodes(); }
  bool has_sums_to_send() const;
  void send_results_to_nodes();
  Status wait_for_node(const transport::Awaited& awaited);
  void send_sums();
  // A call's state is kept until the call after the next begins: at most two are in flight.
  DispatchCall& call_of(uint32_t number) { return calls_[number & 1]; }
  const DispatchCall& call_of(uint32_t number) const { return calls_[number & 1]; }

  transport::Endpoint& endpoint_;
  const GroupBuffers buffers_;
  std::optional<NodeCrossing> crossing_;  // where ranks are on several nodes
  DispatchSender sender_;
  DispatchReceiver receiver_;
  RowSum row_sum_;
  Phase phase_ = Phase::kNew;
  Done done_;
  uint32_t counted_ = 0;           // last value of this rank's flag of Channel::kPrepare
  bool counts_announced_ = false;  // in the call that began last
  std::vector<int32_t> counts_of_ranks_;
  std::array<DispatchCall, 2> calls_;
  std::vector<base::SharedBytes> own_results_;  // [calls_in_flight] private memory, by buffer set
};

}  // namespace wideep::ep
