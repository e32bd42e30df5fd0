// SPDX-License-Identifier: Apache-2.0
//
// The protocol: the order of steps, flags and waits. DispatchSender writes messages,
// DispatchReceiver reads them, NodeCrossing does both between nodes; none of them raises a flag or
// waits.
//
//   flag      value         raised when
//   kPrepare  counted_      the counts are published; only in calls with await_counts
//   kDispatch call number   all messages are written, and the counts are published
//   kCombine  call number   all results are written, and all messages and counts are read
#include "ep/dispatch_combine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/try.h"

namespace wideep::ep {
namespace {

using transport::Awaited;
using transport::Channel;

// The word that accompanies the dispatch flag for each reader: number of messages << 1 | buffer
// set. The reader compares the set with its own, to detect ranks that begin calls in different
// orders.
uint32_t sent_word(int num_messages, int buffer_set) {
  return static_cast<uint32_t>(num_messages) << 1 | static_cast<uint32_t>(buffer_set);
}
int num_messages_in(uint32_t word) { return static_cast<int>(word >> 1); }
int buffer_set_in(uint32_t word) { return static_cast<int>(word & 1); }

// Two calls may overlap, so a trace draws them on two lines in turn.
base::Lane lane_of(uint32_t call, base::Lane even) {
  return static_cast<base::Lane>(static_cast<uint32_t>(even) + (call & 1));
}

// Needed even if the group is on one node: this rank may be the proxy of another group's ranks.
// Published rows do not cross, so all-gather on one node needs none.
std::optional<NodeCrossing> make_crossing(transport::Endpoint& endpoint,
                                          const BufferLayout& layout) {
  if (endpoint.bridge() == nullptr) return std::nullopt;
  const bool is_spread = endpoint.ranks_on_node() < endpoint.num_ranks();
  if (!is_spread && layout.shape().strategy == Strategy::kAllGather) return std::nullopt;
  return std::optional<NodeCrossing>(std::in_place, endpoint, layout);
}

}  // namespace

DispatchCombine::DispatchCombine(transport::Endpoint& endpoint, const BufferLayout& layout)
    : endpoint_(endpoint),
      buffers_(endpoint, layout),
      crossing_(make_crossing(endpoint, layout)),
      sender_(buffers_, crossing_ ? &*crossing_ : nullptr),
      receiver_(buffers_) {
  WIDEEP_CHECK_EQ(layout.shape().ep_size, endpoint.num_ranks());
  WIDEEP_CHECK_GE(endpoint.memory().segment_bytes(), layout.segment_bytes());
  for (DispatchCall& call : calls_) call.areas.resize(layout.shape().ep_size + 1);
}

// ---- open, and errors ----

Status DispatchCombine::open() {
  if (phase_ != Phase::kNew) {
    return fail_group(
        fmt::format("open called {}, expected once, before the first call", current_step()));
  }
  if (buffers_.publishes() && crossing_) {
    return fail_group("dispatch: all-gather needs all ranks on one node; use dispatch instead");
  }
  if (sums_on_nodes() && !row_sum_) {
    return fail_group("dispatch: combine reduced on several nodes needs set_row_sum before open");
  }
  for (int set = 0; set < buffers_.layout.shape().calls_in_flight; ++set) {
    auto own =
        base::SharedBytes::create("results of own tokens", buffers_.layout.own_results_bytes());
    if (!own.ok()) {
      endpoint_.fail_group(own.status());
      return own.status();
    }
    own_results_.push_back(std::move(own).value());
  }
  // Flags only grow, so call numbers continue those of an earlier DispatchCombine on this endpoint.
  const uint32_t last = endpoint_.raised(Channel::kDispatch);
  done_ = {last, last, last, last, last, last};
  counted_ = endpoint_.raised(Channel::kPrepare);
  phase_ = Phase::kOpen;
  return {};
}

// Fails the whole group: otherwise the other ranks would wait for this one until their deadline.
Status DispatchCombine::fail_group(const std::string& why) const {
  const Status status = invalid_input(fmt::format("rank {}: {}", endpoint_.rank(), why));
  endpoint_.fail_group(status);
  return status;
}

Status DispatchCombine::expect(bool in_order, const char* step, const char* expected) const {
  if (phase_ == Phase::kOpen && in_order) return {};
  return fail_group(fmt::format("{} called {}, expected {}", step, current_step(), expected));
}

const char* DispatchCombine::current_step() const {
  if (phase_ == Phase::kNew) return "before open";
  if (phase_ == Phase::kClosed) return "after close";
  if (done_.begun != done_.sent) return "after begin";
  if (done_.received != done_.returned) return "after dispatch";
  if (done_.returned != done_.finished) return "after start_combine";
  if (done_.sent != done_.received) return "after start_dispatch";
  return "between two calls";
}

// ---- counts ----

Status DispatchCombine::begin(std::span<const int32_t> counts,
                              std::span<const int32_t> tokens_of_ranks) {
  const auto calls_in_flight = static_cast<uint32_t>(buffers_.layout.shape().calls_in_flight);
  const uint32_t open_calls = done_.begun - done_.finished;
  WIDEEP_TRY(expect(done_.begun == done_.sent && open_calls < calls_in_flight, "begin",
                    "between two calls"));
  WIDEEP_TRY(check_begin(counts, tokens_of_ranks));
  DispatchCall& call = call_of(done_.begun + 1);
  call.number = done_.begun + 1;
  // A call that does not overlap another uses the first set, so that one set stays in the caches.
  call.buffer_set = open_calls == 0 ? 0 : 1 - call_of(done_.begun).buffer_set;
  call.own_results = own_results_[call.buffer_set].data();
  buffers_.layout.start_areas(tokens_of_ranks, call.buffer_set, call.areas);
  done_.begun = call.number;
  counts_announced_ = false;
  publish_counts(counts);
  return {};
}

Status DispatchCombine::check_begin(std::span<const int32_t> counts,
                                    std::span<const int32_t> tokens_of_ranks) const {
  const DispatchShape& shape = buffers_.layout.shape();
  if (static_cast<int>(counts.size()) != shape.num_experts) {
    return fail_group(
        fmt::format("begin: counts of {} experts, expected {}", counts.size(), shape.num_experts));
  }
  if (!tokens_of_ranks.empty() && static_cast<int>(tokens_of_ranks.size()) != shape.ep_size) {
    return fail_group(fmt::format("begin: tokens of {} ranks, expected {}", tokens_of_ranks.size(),
                                  shape.ep_size));
  }
  const int64_t all_tokens =
      tokens_of_ranks.empty()
          ? int64_t{shape.ep_size} * shape.max_tokens
          : std::accumulate(tokens_of_ranks.begin(), tokens_of_ranks.end(), int64_t{0});
  if (all_tokens > shape.max_rows()) {
    return fail_group(fmt::format("begin: {} tokens of all ranks, expected at most {}", all_tokens,
                                  shape.max_rows()));
  }
  for (size_t rank = 0; rank < tokens_of_ranks.size(); ++rank) {
    if (tokens_of_ranks[rank] >= 0 && tokens_of_ranks[rank] <= shape.max_tokens) continue;
    return fail_group(fmt::format("begin: {} tokens of rank {}, expected 0 to {}",
                                  tokens_of_ranks[rank], rank, shape.max_tokens));
  }
  return {};
}

// Only written, without a flag: the dispatch flag, or the prepare flag if there is an await_counts,
// makes them visible. Forwarded to other nodes now, since messages there keep their order.
void DispatchCombine::publish_counts(std::span<const int32_t> counts) {
  const int rank = endpoint_.rank();
  const std::span<int32_t> published = buffers_.layout.counts(buffers_.segments[rank], done_.begun);
  std::copy(counts.begin(), counts.end(), published.begin());
  const transport::Written written{.first = published.data(), .width = published.size_bytes()};
  endpoint_.forward_to_all(rank, std::span(&written, 1));
}

void DispatchCombine::announce_counts() {
  endpoint_.raise_all(Channel::kPrepare, ++counted_);
  counts_announced_ = true;
}

bool DispatchCombine::counts_arrived() const {
  return endpoint_.all_reached(Channel::kPrepare, counted_);
}

Status DispatchCombine::await_counts(const Awaited& where) {
  WIDEEP_TRY(expect(done_.begun != done_.sent, "await_counts", "after begin"));
  if (!counts_announced_) announce_counts();
  WIDEEP_TRY(endpoint_.wait_all(Channel::kPrepare, counted_, where.named("token counts")));
  counts_of_ranks_.clear();
  // At once: with a thousand ranks these are a megabyte, which growing by halves would double.
  counts_of_ranks_.reserve(buffers_.segments.size() *
                           static_cast<size_t>(buffers_.layout.shape().num_experts));
  for (std::byte* segment : buffers_.segments) {
    const std::span<const int32_t> counts = buffers_.layout.counts(segment, done_.begun);
    counts_of_ranks_.insert(counts_of_ranks_.end(), counts.begin(), counts.end());
  }
  return {};
}

// ---- dispatch ----

Status DispatchCombine::start_dispatch(const std::byte* rows, size_t row_stride, int num_tokens,
                                       std::span<const int32_t> slots,
                                       std::span<const float> weights) {
  WIDEEP_TRY(expect(done_.begun != done_.sent, "dispatch", "after begin"));
  DispatchCall& call = call_of(done_.begun);
  const Status sent = sender_.send({rows, row_stride, num_tokens, slots, weights}, call);
  if (!sent.ok()) return fail_group(sent.message());
  for (int peer = 0; peer < endpoint_.num_ranks(); ++peer) {
    if (peer == endpoint_.rank()) continue;
    endpoint_.set_word(Channel::kDispatch, peer, call.number,
                       sent_word(sender_.num_messages_for(peer), call.buffer_set));
  }
  endpoint_.raise_all(Channel::kDispatch, call.number);
  done_.sent = call.number;
  call.sent_ns = base::trace_start();
  return {};
}

bool DispatchCombine::rows_arrived() const {
  return endpoint_.all_reached(Channel::kDispatch, done_.received + 1);
}

Status DispatchCombine::finish_dispatch(const Awaited& where) {
  WIDEEP_TRY(expect(done_.sent != done_.received && done_.received == done_.returned,
                    "finish_dispatch", "after start_dispatch"));
  const DispatchCall& call = call_of(++done_.received);
  receiver_.start(call);
  Status taken;
  // Messages that have arrived are read while others are still awaited. The first lists of all
  // arrived sources are prefetched together: most sources have few messages, so that prefetching
  // within one source would come too late.
  WIDEEP_TRY(endpoint_.wait_each(Channel::kDispatch, call.number, where.named("dispatched rows"),
                                 [&](std::span<const int> sources) {
                                   for (const int source : sources) {
                                     receiver_.prefetch(source, num_messages_in(word_from(source)));
                                   }
                                   for (const int source : sources) {
                                     if (taken.ok()) taken = take_messages(source);
                                   }
                                 }));
  WIDEEP_TRY(std::move(taken));
  receiver_.finish();
  base::record_since(call.sent_ns, base::Span::kRowsTravel, where.layer,
                     lane_of(call.number, base::Lane::kRowsEven));
  return {};
}

// The word of a source's dispatch flag. A rank has no word for itself (SharedMemory::word), so its
// own is made from the call.
uint32_t DispatchCombine::word_from(int source) const {
  const DispatchCall& call = call_of(done_.received);
  return source == endpoint_.rank()
             ? sent_word(static_cast<int>(call.own_rows.size()), call.buffer_set)
             : endpoint_.word_from(Channel::kDispatch, source, call.number);
}

Status DispatchCombine::take_messages(int source) {
  const uint32_t word = word_from(source);
  if (buffer_set_in(word) != call_of(done_.received).buffer_set) {
    return fail_group(fmt::format(
        "dispatch: rank {} overlaps other calls than this rank; all ranks must begin and finish "
        "calls in the same order",
        source));
  }
  receiver_.take(source, num_messages_in(word));
  return {};
}

// ---- combine ----
//
// Sources on this node read results where the experts have written them. For sources on other nodes
// there are two cases:
//
//  - This rank sends them its results, then raises its flag for all nodes.
//  - sums_on_nodes: this rank raises its flag on this node only. When all ranks of this node have
//    raised theirs, this rank, as the proxy of its sources, adds up the results, sends the sums,
//    and only then raises its flag on the other nodes. So a source that has seen the flags of all
//    ranks has all its sums, whichever rank is its proxy.

Status DispatchCombine::start_combine() {
  WIDEEP_TRY(expect(done_.received != done_.returned, "combine", "after dispatch"));
  done_.returned = done_.received;
  if (sums_on_nodes()) {
    endpoint_.raise_on_this_node(Channel::kCombine, done_.returned);
  } else {
    if (crossing_) send_results_to_nodes();
    endpoint_.raise_all(Channel::kCombine, done_.returned);
  }
  call_of(done_.returned).returned_ns = base::trace_start();
  return {};
}

void DispatchCombine::send_results_to_nodes() {
  for (int source = 0; source < endpoint_.num_ranks(); ++source) {
    if (buffers_.is_on_this_node[source]) continue;
    crossing_->add_results(source, call_of(done_.returned).areas[source],
                           receiver_.num_results_for(source));
  }
  crossing_->send_results();
}

bool DispatchCombine::results_arrived() {
  if (has_sums_to_send() && endpoint_.reached_on_this_node(Channel::kCombine, done_.summed + 1))
    send_sums();
  return endpoint_.all_reached(Channel::kCombine, done_.finished + 1);
}

Status DispatchCombine::finish_combine(const Awaited& where) {
  WIDEEP_TRY(expect(done_.returned != done_.finished, "finish_combine", "after start_combine"));
  const Awaited awaited = where.named("expert results");
  if (has_sums_to_send()) {
    WIDEEP_TRY(wait_for_node(awaited));
    send_sums();
  }
  WIDEEP_TRY(endpoint_.wait_all(Channel::kCombine, done_.finished + 1, awaited));
  const DispatchCall& call = call_of(++done_.finished);
  base::record_since(call.returned_ns, base::Span::kResultsTravel, where.layer,
                     lane_of(call.number, base::Lane::kResultsEven));
  return {};
}

// Whether this rank has yet to send its sums of the oldest unfinished call.
bool DispatchCombine::has_sums_to_send() const {
  return sums_on_nodes() && done_.summed == done_.finished && done_.summed != done_.returned;
}

Status DispatchCombine::wait_for_node(const Awaited& awaited) {
  for (int rank = 0; rank < endpoint_.num_ranks(); ++rank) {
    if (!buffers_.is_on_this_node[rank]) continue;
    WIDEEP_TRY(endpoint_.wait(Channel::kCombine, rank, done_.summed + 1, awaited));
  }
  return {};
}

// REQUIRES: all ranks of this node have raised their combine flags for the call.
void DispatchCombine::send_sums() {
  crossing_->send_sums(++done_.summed, row_sum_);
  endpoint_.raise_on_other_nodes(Channel::kCombine, done_.summed);
}

}  // namespace wideep::ep
