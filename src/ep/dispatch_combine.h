// SPDX-License-Identifier: Apache-2.0
//
// The all-to-all of expert parallelism over symmetric memory, one MoE layer at a time:
//
//   open       once: all ranks make sure that they have the same shape
//   begin      every rank tells every rank how many of its tokens each expert gets
//   (await_counts  only where slots are chosen by the counts of all ranks)
//   dispatch   every rank pushes its token rows to the ranks of their slots, or lays them down
//   where
//              all can read them (Strategy)
//   (experts)  every rank computes one result row per received row and slot
//   combine    every rank pulls the result rows of its tokens
//
// dispatch and combine can be had in two halves, for work that is done while rows travel: start_…
// tells the others and returns, finish_… waits for them.
//
// Where the shape allows two calls in flight, the next may begin (and start its dispatch) before
// this one's rows or results have come, on all ranks alike:
//
//   begin n, start_dispatch n, begin n + 1, start_dispatch n + 1,
//   finish_dispatch n, (experts), start_combine n, finish_dispatch n + 1, (experts), …
//   finish_combine n, begin n + 2, …
//
// Calls are collective: a rank without tokens takes part with zero rows. Sizes are decided by the
// data; what a row is made of is the caller's. A buffer is written again only after its readers are
// known to be done. Let call p be the last before n that used the same set of buffers (n − 1, or of
// two in flight n − 2):
//
//  - n begins after p's finish_combine. So messages of n to rank d are pushed after d's flag of
//    combine of p, which d raises when it has computed (read) all its messages of p. (Laid down:
//    after all ranks' flags of combine.)
//  - d's results of n are written after every source's dispatch flag of n, which a source raises
//    when it has pulled its results of p.
//  - Counts alternate between two sets, for a rank may begin n while a slower one still reads those
//    of n − 1. Those of n − 2 it has read before it raised its combine flag of n − 2, which has
//    been seen. The same holds for what is told with the dispatch flag.
//
// Combine::kExact: each result row lies in this rank's segment, where its source reads it; of its
// own tokens, in memory of its own.
// Combine::kReduced: the caller computes a message's results anywhere, and adds them, times the
// router weights that came with it, to the one row that goes back. Outside promise 1. From another
// node one row comes back for all its ranks: their rows, added up there in the order of the ranks
// (set_row_sum).
//
// Ranks may be on several nodes (Endpoint::set_bridge); what crosses between these, and how often:
// node_crossing.h. Strategy::kDispatch only.
//
// Errors of any rank (a step out of turn, more tokens than announced, different shapes) fail the
// whole group: its message is what all ranks' waits return.
//
// Thread safety: one thread per rank calls; the views may be used by many.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/shared_bytes.h"
#include "base/trace.h"
#include "ep/buffer_layout.h"
#include "ep/node_crossing.h"
#include "transport/endpoint.h"
#include "wideep/status.h"

namespace wideep::ep {

// A row this rank has received for one of its slots, and where its result belongs.
struct ExpertRow {
  const std::byte* row = nullptr;  // [row_bytes]; of my own tokens: where I have it
  std::byte* result = nullptr;     // [result_bytes]; Combine::kReduced: null
  int32_t entry = 0;               // numbers all that have come in this call
  int32_t message = 0;             // which of the received rows, for one may be of several slots
};

// Combine::kReduced: a token this rank has received, and the row that goes back for it.
struct ReceivedToken {
  std::span<const float> weights;  // of its slots here, in top-k order
  int32_t first_entry = 0;         // ExpertRow::entry of the first of these; the others follow
  std::byte* result = nullptr;     // [result_bytes]
};

class DispatchCombine {
 public:
  // The endpoint's segments are at least layout.segment_bytes() long.
  DispatchCombine(transport::Endpoint& endpoint, const BufferLayout& layout);

  // Before open. Combine::kReduced on several nodes needs it.
  void set_row_sum(RowSum row_sum) { row_sum_ = std::move(row_sum); }
  // Collective, before the first call. Errors: ranks have different shapes, names what differs; the
  // kernel refuses memory for the results of a rank's own tokens.
  Status open();
  bool is_open() const { return life_ == Life::kOpen; }
  // For good. Ranks may do so at different times, after the last call.
  void close() { life_ = Life::kClosed; }

  // Begins a call, without waiting. counts: [num_experts] of this rank's tokens. tokens_of_ranks:
  // [ep_size] in this call, equal on all ranks; empty where not known: needs a layout with room for
  // max_tokens of each.
  Status begin(std::span<const int32_t> counts, std::span<const int32_t> tokens_of_ranks);
  // After begin: tells the others that this rank has counted, and waits until all have. Collective:
  // all ranks do so in a call, or none. Either half may be had alone.
  Status await_counts(const transport::Awaited& where);
  void tell_counts();
  bool counts_have_come() const;  // after tell_counts; so that await_counts does not wait
  // What all ranks have counted, [ep_size, num_experts]: after await_counts, until start_dispatch.
  std::span<const int32_t> counts_of_ranks() const { return counts_of_ranks_; }
  // What one has, [num_experts], in any case, also without await_counts: of the call that has come,
  // after finish_dispatch, until start_combine.
  std::span<const int32_t> received_counts(int rank) const {
    return layout_.counts(segments_[rank], received_);
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
  // num_tokens: as begin was told of this rank, or at most max_tokens.
  Status start_dispatch(const std::byte* rows, size_t row_stride, int num_tokens,
                        std::span<const int32_t> slots, std::span<const float> weights = {});
  // So that finish_dispatch does not wait.
  bool rows_have_come() const;
  Status finish_dispatch(const transport::Awaited& where);

  // After finish_dispatch, until the next: the received rows of one local slot, by source rank and
  // the source's token order.
  std::span<const ExpertRow> rows_of_slot(int local_slot) const;
  // How many there are for all slots together, and how many different rows these are.
  int num_entries() const { return static_cast<int>(rows_.size()); }
  int num_messages() const { return num_messages_; }
  // Combine::kReduced: [num_messages] the received tokens, each of which is to be given its result.
  std::span<const ReceivedToken> received_tokens() const {
    return std::span(tokens_).first(reduced() ? static_cast<size_t>(num_messages_) : 0);
  }

  // Tells the sources that all results are written, and waits for the results of my tokens.
  Status combine(const transport::Awaited& where) {
    const Status started = start_combine();
    return started.ok() ? finish_combine(where) : started;
  }
  Status start_combine();
  // So that finish_combine does not wait.
  bool results_have_come();
  Status finish_combine(const transport::Awaited& where);
  // After finish_combine, until the next begin: the rows that have come back for my token, slice by
  // slice. kExact: [num_slices, top_k], in top-k order. kReduced: [num_slices, n], of the n owners
  // of its slots in their order; those of another node as one, in the place of the first of them.
  std::span<const std::byte* const> results(int token) const {
    const Call& call = call_of(finished_);
    return {call.results.data() + static_cast<size_t>(token) * max_results(),
            static_cast<size_t>(reduced() ? call.num_results[token] : max_results())};
  }
  // The same: that of results(token) which this rank has computed itself, the first if there are
  // several; null: none. Nobody but this rank reads any of them, so that their sum may be written
  // over it.
  std::byte* own_result(int token) const { return call_of(finished_).own_results[token]; }

  // (token, expert) pairs that this rank has sent to each rank in the call that was dispatched
  // last: [ep_size].
  std::span<const int32_t> sent_entries() const { return sent_entries_; }
  // Null where nothing crosses.
  const NodeCrossing* crossing() const { return crossing_ ? &*crossing_ : nullptr; }

 private:
  enum class Life { kNew, kOpen, kClosed };
  // What has to be known of a call until its end. Number n is calls_[n % 2].
  struct Call {
    int set = 0;                             // of buffers
    int64_t sent_ns = 0, returned_ns = 0;    // 0: nobody records
    std::vector<int64_t> area;               // [ep_size + 1] see BufferLayout::start_areas
    std::vector<const std::byte*> results;   // [num_tokens, max_results()]
    std::vector<int32_t> num_results;        // [num_tokens], kReduced
    std::vector<std::byte*> own_results;     // [num_tokens] see own_result
    std::vector<const std::byte*> own_rows;  // of the messages that I send myself
  };
  static constexpr int kOwnersInWord = 64;
  struct Batch {  // what dispatch is given
    const std::byte* rows;
    size_t row_stride;
    int num_tokens;
    std::span<const int32_t> slots;
    std::span<const float> weights;
  };
  // Where the next message to a rank belongs, and its next result.
  struct Outlet {
    int32_t* list = nullptr;
    std::byte* row = nullptr;  // null: nothing is pushed there
    std::byte* result = nullptr;
  };
  // A row for a local slot, as its message says.
  struct Arrival {
    int32_t slot;
    int32_t message;
    float weight;  // kReduced
  };

  int top_k() const { return layout_.shape().top_k; }
  int max_results() const { return layout_.shape().num_slices * top_k(); }  // of a token
  bool reduced() const { return layout_.shape().combine == Combine::kReduced; }
  bool gathers() const { return layout_.shape().strategy == Strategy::kAllGather; }
  Status give_up(std::string why) const;
  Status expect(bool in_turn, const char* step, const char* belongs) const;
  const char* where_we_are() const;
  Call& call_of(uint32_t number) { return calls_[number & 1]; }
  const Call& call_of(uint32_t number) const { return calls_[number & 1]; }
  Status check(const Batch& batch) const;
  Status compare_shapes(std::span<const std::vector<uint64_t>> of_ranks) const;

  bool send_token(const Batch& batch, int token);
  void find_outlets();
  std::byte* first_result(int holder, int source, const Call& call);
  bool find_destinations(const int32_t* slots);
  bool list_destinations();
  void go_on_to_next_token();
  Status give_up_on(const Batch& batch, int token) const;
  void push(const std::byte* row, const int32_t* slots, const float* weights);
  void lay_down(int token, const std::byte* row, const int32_t* slots, const float* weights);
  void note_results(int token);
  void note_one_result_per_rank(int token);
  const std::byte* result_of(int32_t destination);

  // Where a source's messages to me lie.
  struct Place {
    std::byte* segment;
    int64_t area;
  };
  Place messages_of(int source) const;
  Status take_all(const transport::Awaited& where);
  base::Lane lane_of(uint32_t number, base::Lane even) const;
  uint32_t told_by(int source) const;
  void fetch_lists(int source) const;
  Status take_messages(int source);
  Arrival* take_slots(const Place& messages, int index, Arrival* arrival);
  void send_results_to_nodes();
  bool sums_on_nodes() const { return crossing_ && crossing_->sums_on_nodes(); }
  // Does the oldest call that is not finished still want this rank's sums?
  bool owes_sums() const { return sums_on_nodes() && summed_ == finished_ && summed_ != returned_; }
  Status wait_for_node(const transport::Awaited& awaited);
  void send_sums();
  void group_received();
  int32_t group_source(int source, int32_t first_entry);
  void list_tokens(int source, int32_t entry);

  transport::Endpoint& endpoint_;
  BufferLayout layout_;
  std::optional<NodeCrossing> crossing_;  // where ranks are on several nodes
  std::vector<char> is_near_;             // [ep_size] on this node
  std::vector<std::byte*> segments_;      // [ep_size]
  int num_owners_;
  std::vector<int32_t> owner_of_slot_;  // [num_slots]
  int32_t first_slot_ = 0;              // of mine, as messages number them
  std::vector<int> node_of_;            // [ep_size] where ranks are on several
  RowSum row_sum_;
  Life life_ = Life::kNew;
  // The last call that has got so far: each at most the one before it. A call's number is the value
  // of its flags of dispatch and combine.
  uint32_t begun_ = 0, sent_ = 0, received_ = 0, returned_ = 0, finished_ = 0;
  uint32_t summed_ = 0;   // between returned_ and finished_, where sums_on_nodes()
  uint32_t counted_ = 0;  // the last value of my flag of prepare
  bool counts_told_ = false;
  std::vector<int32_t> counts_of_ranks_;
  std::array<Call, 2> calls_;
  std::vector<base::SharedBytes>
      own_results_;  // by the set of buffers; this process has them alone

  // Source side, of the call that was dispatched last.
  std::vector<int32_t> sent_rows_;     // [ep_size] messages with any of its slots
  std::vector<int32_t> sent_entries_;  // [ep_size]

  std::vector<Outlet> outlets_;    // [ep_size]
  std::vector<int32_t> far_list_;  // [2 · top_k] where lists go that nobody reads

  // Source side, of the current token.
  std::vector<int32_t> destination_of_;    // [top_k] owners, who have the first slice
  std::vector<int32_t> place_of_;          // [top_k] among the slots there
  std::vector<int32_t> places_;            // [ep_size], of which destinations_ are the first
  std::span<const int32_t> destinations_;  // the ranks of all slices, in ascending order
  std::vector<int32_t> entries_;           // [num_owners] slots there; 0 between tokens
  std::vector<uint64_t> owners_;           // [num_owners] bits: any there; 0 between tokens
  std::vector<int> noted_nodes_;           // whose sum has its place among the results

  // Destination side, of the call that was received last.
  std::vector<std::vector<Arrival>> arrivals_;  // [ep_size] in the order of their messages, as
  std::vector<int32_t> num_arrivals_;           // [ep_size] many of each
  std::vector<int32_t> num_results_for_;        // [ep_size]
  std::vector<int32_t> slot_start_;             // [slots_per_rank + 1] into rows_; see take_slots
  std::vector<int32_t> slot_fill_;              // [slots_per_rank]
  std::vector<ExpertRow> rows_;
  std::vector<float> weights_;  // [num_entries], kReduced
  int num_messages_ = 0;
  std::vector<ReceivedToken> tokens_;  // kReduced
};

}  // namespace wideep::ep
