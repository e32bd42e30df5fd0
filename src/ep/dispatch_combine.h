// SPDX-License-Identifier: Apache-2.0
//
// The all-to-all of expert parallelism over symmetric memory, one MoE layer at a time. A call has
// these steps:
//
//   begin            every rank publishes how many of its tokens each expert gets
//   (await_counts)   only where slots are chosen by the counts of all ranks: waits for these
//   start_dispatch   every rank sends its token rows: pushes each to the ranks of its slots, or
//                    publishes it once where all can read it (Strategy)
//   finish_dispatch  waits for the rows of all ranks and sorts them by slot
//   (experts)        the caller computes one result row per received row and slot
//   start_combine    tells the sources that their results are written
//   finish_combine   waits for the results of this rank's tokens, which the caller reads in place
//
// dispatch and combine do both of their halves at once. Between the halves a caller can do other
// work while rows travel.
//
// Calls are collective: a rank without tokens takes part with zero rows. The data decides the
// sizes; what a row is made of is the caller's affair.
//
// Where the shape allows two calls in flight, the next call may begin, and start its dispatch,
// before this call's rows or results have come, on all ranks in the same order:
//
//   begin n, start_dispatch n, begin n + 1, start_dispatch n + 1,
//   finish_dispatch n, (experts), start_combine n, finish_dispatch n + 1, (experts), …
//   finish_combine n, begin n + 2, …
//
// Why no buffer is written while somebody still reads it: let call p be the last before n that used
// the same set of buffers (n − 1, or with two calls in flight n − 2).
//
//  - Messages. A rank begins n after its finish_combine of p. So it sends messages of n to rank d
//    after it has seen d's combine flag of p, and d raises that when it has read all its messages
//    of p. Published rows are read by all, and are written after the combine flags of all.
//  - Results. Rank d writes results of n after it has seen the dispatch flag of n of every source,
//    and a source raises that when it has read its results of p.
//  - Counts, and the number of messages that is sent with the dispatch flag, have two places, used
//    in turn: a rank may begin n while a slower one still reads those of n − 1. It has read those
//    of n − 2 before it raised its combine flag of n − 2, which all have seen.
//
// Combine::kExact: a result row lies in the segment of the rank that computes it, where its source
// reads it; results of a rank's own tokens lie in memory of its own.
// Combine::kReduced: the caller computes the results of a message wherever it likes, and adds them,
// times the router weights that came with the message, into the one row that goes back. Outside
// promise 1. From another node one row comes back for all its ranks: the sum of their rows, added
// up there in the order of the ranks (set_row_sum).
//
// Ranks may be on several nodes (Endpoint::set_bridge), with Strategy::kDispatch only; what crosses
// between nodes, and how often: node_crossing.h.
//
// Errors of any rank (a step out of turn, more tokens than announced) fail the whole group: its
// message is what the waits of all ranks return.
//
// Thread safety: one thread per rank calls; many may read what is received and returned.
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
  // The endpoint's segments are at least layout.segment_bytes() long.
  DispatchCombine(transport::Endpoint& endpoint, const BufferLayout& layout);

  // Before open. Combine::kReduced on several nodes needs it.
  void set_row_sum(RowSum row_sum) { row_sum_ = std::move(row_sum); }
  // Before the first call. Does not wait for others. REQUIRES: all ranks have the same shape
  // (check_shapes.h), and have met since calls of another DispatchCombine used the same memory.
  // Errors: a shape or row sum that ranks on several nodes cannot work with; the kernel refuses
  // memory for the results of a rank's own tokens.
  Status open();
  bool is_open() const { return life_ == Life::kOpen; }
  // For good. Ranks may do so at different times, after the last call.
  void close() { life_ = Life::kClosed; }

  // Begins a call, without waiting. counts: [num_experts] of this rank's tokens. tokens_of_ranks:
  // [ep_size] in this call, equal on all ranks; empty where not known: needs a layout with room for
  // max_tokens of each.
  Status begin(std::span<const int32_t> counts, std::span<const int32_t> tokens_of_ranks);
  // After begin: announces that this rank's counts are there, and waits for those of all.
  // Collective: all ranks do so in a call, or none. announce_counts alone may be called earlier, to
  // wait later.
  Status await_counts(const transport::Awaited& where);
  void announce_counts();
  // After announce_counts: whether await_counts would return without waiting.
  bool counts_have_come() const;
  // After await_counts, until start_dispatch: the counts of all ranks, [ep_size, num_experts].
  std::span<const int32_t> counts_of_ranks() const { return counts_of_ranks_; }
  // The counts of one rank, [num_experts], with or without await_counts: of the call whose rows
  // have come, after finish_dispatch, until start_combine.
  std::span<const int32_t> received_counts(int rank) const {
    return buffers_.layout.counts(buffers_.segments[rank], done_.received);
  }

  Status dispatch(const std::byte* rows, size_t row_stride, int num_tokens,
                  std::span<const int32_t> slots, const transport::Awaited& where,
                  std::span<const float> weights = {}) {
    const Status started = start_dispatch(rows, row_stride, num_tokens, slots, weights);
    return started.ok() ? finish_dispatch(where) : started;
  }
  // rows: [num_tokens] rows of the shape's row_bytes, row_stride bytes apart; they stay as they are
  // until combine.
  // slots: [num_tokens, top_k] global slot ids, those of one token distinct.
  // weights: [num_tokens, top_k]; Combine::kReduced only, else empty.
  // num_tokens: at most what begin announced for this rank, or max_tokens.
  Status start_dispatch(const std::byte* rows, size_t row_stride, int num_tokens,
                        std::span<const int32_t> slots, std::span<const float> weights = {});
  // Whether finish_dispatch would return without waiting.
  bool rows_have_come() const;
  Status finish_dispatch(const transport::Awaited& where);

  // After finish_dispatch, until the next: the received rows of one local slot, by source rank and
  // the source's token order.
  std::span<const ExpertRow> rows_of_slot(int local_slot) const {
    return receiver_.rows_of_slot(local_slot);
  }
  // How many there are for all slots together, and how many different rows these are.
  int num_entries() const { return receiver_.num_entries(); }
  int num_messages() const { return receiver_.num_messages(); }
  // Combine::kReduced: [num_messages] the received tokens, each of which is to be given its result.
  std::span<const ReceivedToken> received_tokens() const { return receiver_.received_tokens(); }

  // Tells the sources that all results are written, and waits for the results of my tokens.
  Status combine(const transport::Awaited& where) {
    const Status started = start_combine();
    return started.ok() ? finish_combine(where) : started;
  }
  Status start_combine();
  // Whether finish_combine would return without waiting.
  bool results_have_come();
  Status finish_combine(const transport::Awaited& where);
  // After finish_combine, until the next begin: the rows that have come back for one of this rank's
  // tokens, slice by slice. kExact: [num_slices, top_k], in top-k order. kReduced: [num_slices, n],
  // of the n owners of its slots in their order; owners on another node have one row together, in
  // the place of the first of them.
  std::span<const std::byte* const> results(int token) const {
    const DispatchCall& call = call_of(done_.finished);
    const int most = buffers_.layout.shape().max_results_of_token();
    return {call.results.data() + static_cast<size_t>(token) * static_cast<size_t>(most),
            static_cast<size_t>(buffers_.reduced() ? call.num_results[token] : most)};
  }
  // At the same time: the one of results(token) that this rank has computed itself, the first if
  // there are several; null: none. Only this rank reads these rows, so that the token's sum may be
  // written over it.
  std::byte* own_result(int token) const { return call_of(done_.finished).own_result[token]; }

  // (token, expert) pairs that this rank has sent to each rank in the call that was dispatched
  // last: [ep_size].
  std::span<const int32_t> sent_entries() const { return sender_.sent_entries(); }
  // Null where nothing crosses between nodes.
  const NodeCrossing* crossing() const { return crossing_ ? &*crossing_ : nullptr; }

 private:
  enum class Life { kNew, kOpen, kClosed };
  // The last call that each step has been done for; each number is at most the one before it. A
  // call's number is the value of its flags of dispatch and combine.
  struct Done {
    uint32_t begun = 0;
    uint32_t sent = 0;      // start_dispatch
    uint32_t received = 0;  // finish_dispatch
    uint32_t returned = 0;  // start_combine
    uint32_t summed = 0;    // sums sent to other nodes; only where sums_on_nodes()
    uint32_t finished = 0;  // finish_combine
  };

  Status give_up(const std::string& why) const;
  Status expect(bool in_turn, const char* step, const char* belongs) const;
  const char* where_we_are() const;
  Status check_begin(std::span<const int32_t> counts,
                     std::span<const int32_t> tokens_of_ranks) const;
  void publish_counts(std::span<const int32_t> counts);
  uint32_t word_from(int source) const;
  Status take_messages(int source);
  bool sums_on_nodes() const { return crossing_ && crossing_->sums_on_nodes(); }
  bool owes_sums() const;
  void send_results_to_nodes();
  Status wait_for_node(const transport::Awaited& awaited);
  void send_sums();
  // A call stays until the call after the next begins: at most two are in flight.
  DispatchCall& call_of(uint32_t number) { return calls_[number & 1]; }
  const DispatchCall& call_of(uint32_t number) const { return calls_[number & 1]; }

  transport::Endpoint& endpoint_;
  const GroupBuffers buffers_;
  std::optional<NodeCrossing> crossing_;  // where ranks are on several nodes
  DispatchSender sender_;
  DispatchReceiver receiver_;
  RowSum row_sum_;
  Life life_ = Life::kNew;
  Done done_;
  uint32_t counted_ = 0;           // the last value of this rank's flag of prepare
  bool counts_announced_ = false;  // in the call that has begun last
  std::vector<int32_t> counts_of_ranks_;
  std::array<DispatchCall, 2> calls_;
  std::vector<base::SharedBytes> own_results_;  // [calls_in_flight] of own tokens, by buffer set
};

}  // namespace wideep::ep
