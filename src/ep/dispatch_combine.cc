// SPDX-License-Identifier: Apache-2.0
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

// The word that a rank sends to each reader beside its flag of dispatch: how many messages are
// there, and in which set of buffers. By the set a reader notices that another call was meant.
uint32_t sent_word(int num_messages, int buffer_set) {
  return static_cast<uint32_t>(num_messages) << 1 | static_cast<uint32_t>(buffer_set);
}
int num_messages_in(uint32_t word) { return static_cast<int>(word >> 1); }
int buffer_set_in(uint32_t word) { return static_cast<int>(word & 1); }

// A trace draws two calls that overlap on two lines.
base::Lane lane_of(uint32_t call, base::Lane even) {
  return static_cast<base::Lane>(static_cast<uint32_t>(even) + (call & 1));
}

// A group on one node needs a crossing too: this rank may be the proxy of another group's ranks.
// Rows that are published have no proxies.
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
  if (life_ != Life::kNew) {
    return give_up(fmt::format("open {}: it belongs before all else", where_we_are()));
  }
  if (buffers_.publishes() && crossing_) {
    return give_up("dispatch: all-gather reads rows in place; ranks on several nodes cannot");
  }
  if (sums_on_nodes() && !row_sum_) {
    return give_up("dispatch: reduced results of several nodes need set_row_sum");
  }
  for (int set = 0; set < buffers_.layout.shape().calls_in_flight; ++set) {
    auto own =
        base::SharedBytes::create("results of own tokens", buffers_.layout.own_results_bytes());
    if (!own.ok()) {
      endpoint_.memory().fail(own.status());
      return own.status();
    }
    own_results_.push_back(std::move(own).value());
  }
  // Flags only grow: calls go on counting where another DispatchCombine on this endpoint has ended.
  const uint32_t last = endpoint_.raised(Channel::kDispatch);
  done_ = {last, last, last, last, last, last};
  counted_ = endpoint_.raised(Channel::kPrepare);
  life_ = Life::kOpen;
  return {};
}

// Fails the group, so that the others do not wait for a rank that cannot go on.
Status DispatchCombine::give_up(const std::string& why) const {
  const Status status = invalid_input(fmt::format("rank {}: {}", endpoint_.rank(), why));
  endpoint_.memory().fail(status);
  return status;
}

Status DispatchCombine::expect(bool in_turn, const char* step, const char* belongs) const {
  if (life_ == Life::kOpen && in_turn) return {};
  return give_up(fmt::format("{} {}: it belongs {}", step, where_we_are(), belongs));
}

const char* DispatchCombine::where_we_are() const {
  if (life_ == Life::kNew) return "before open";
  if (life_ == Life::kClosed) return "after close";
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
  // Where calls do not overlap all use the first set, which so stays in the caches.
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
    return give_up(
        fmt::format("begin: counts of {} experts, expected {}", counts.size(), shape.num_experts));
  }
  if (!tokens_of_ranks.empty() && static_cast<int>(tokens_of_ranks.size()) != shape.ep_size) {
    return give_up(fmt::format("begin: tokens of {} ranks, expected {}", tokens_of_ranks.size(),
                               shape.ep_size));
  }
  const int64_t all_tokens =
      tokens_of_ranks.empty()
          ? int64_t{shape.ep_size} * shape.max_tokens
          : std::accumulate(tokens_of_ranks.begin(), tokens_of_ranks.end(), int64_t{0});
  if (all_tokens > shape.max_rows()) {
    return give_up(fmt::format("begin: {} tokens of all ranks, but there is room for {}",
                               all_tokens, shape.max_rows()));
  }
  for (size_t rank = 0; rank < tokens_of_ranks.size(); ++rank) {
    if (tokens_of_ranks[rank] >= 0 && tokens_of_ranks[rank] <= shape.max_tokens) continue;
    return give_up(fmt::format("begin: {} tokens of rank {}, expected 0 to {}",
                               tokens_of_ranks[rank], rank, shape.max_tokens));
  }
  return {};
}

// Into this rank's own segment, where the others read them.
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

bool DispatchCombine::counts_have_come() const {
  return endpoint_.all_reached(Channel::kPrepare, counted_);
}

Status DispatchCombine::await_counts(const Awaited& where) {
  WIDEEP_TRY(expect(done_.begun != done_.sent, "await_counts", "after begin"));
  if (!counts_announced_) announce_counts();
  WIDEEP_TRY(endpoint_.wait_all(Channel::kPrepare, counted_, where.named("token counts")));
  counts_of_ranks_.clear();
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
  if (!sent.ok()) return give_up(sent.message());
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

bool DispatchCombine::rows_have_come() const {
  return endpoint_.all_reached(Channel::kDispatch, done_.received + 1);
}

Status DispatchCombine::finish_dispatch(const Awaited& where) {
  WIDEEP_TRY(expect(done_.sent != done_.received && done_.received == done_.returned,
                    "finish_dispatch", "after start_dispatch"));
  const DispatchCall& call = call_of(++done_.received);
  receiver_.start(call);
  Status taken;
  // Messages that have come are looked at while others are still awaited; the first lists of
  // several sources are fetched together, for most sources have few messages.
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

// What a source has sent beside its flag.
uint32_t DispatchCombine::word_from(int source) const {
  const DispatchCall& call = call_of(done_.received);
  return source == endpoint_.rank()
             ? sent_word(static_cast<int>(call.own_rows.size()), call.buffer_set)
             : endpoint_.word_from(Channel::kDispatch, source, call.number);
}

Status DispatchCombine::take_messages(int source) {
  const uint32_t word = word_from(source);
  if (buffer_set_in(word) != call_of(done_.received).buffer_set) {
    return give_up(fmt::format(
        "dispatch: rank {} overlaps other calls than this one; all ranks must begin them in the "
        "same order",
        source));
  }
  receiver_.take(source, num_messages_in(word));
  return {};
}

// ---- combine ----
//
// Results stay where the experts have written them, and their sources read them there. For sources
// on other nodes there are two ways. Usually this rank sends them its results. Where a node sends
// one sum for all its ranks (sums_on_nodes), the flag is raised on this node first: when all ranks
// here have raised theirs, this rank adds up and sends what it owes as a proxy, and only then tells
// the other nodes.

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

bool DispatchCombine::results_have_come() {
  if (owes_sums() && endpoint_.reached_on_this_node(Channel::kCombine, done_.summed + 1))
    send_sums();
  return endpoint_.all_reached(Channel::kCombine, done_.finished + 1);
}

Status DispatchCombine::finish_combine(const Awaited& where) {
  WIDEEP_TRY(expect(done_.returned != done_.finished, "finish_combine", "after start_combine"));
  const Awaited awaited = where.named("expert results");
  if (owes_sums()) {
    WIDEEP_TRY(wait_for_node(awaited));
    send_sums();
  }
  WIDEEP_TRY(endpoint_.wait_all(Channel::kCombine, done_.finished + 1, awaited));
  const DispatchCall& call = call_of(++done_.finished);
  base::record_since(call.returned_ns, base::Span::kResultsTravel, where.layer,
                    lane_of(call.number, base::Lane::kResultsEven));
  return {};
}

// Whether the oldest call that is not finished still wants this rank's sums.
bool DispatchCombine::owes_sums() const {
  return sums_on_nodes() && done_.summed == done_.finished && done_.summed != done_.returned;
}

Status DispatchCombine::wait_for_node(const Awaited& awaited) {
  for (int rank = 0; rank < endpoint_.num_ranks(); ++rank) {
    if (!buffers_.is_on_this_node[rank]) continue;
    WIDEEP_TRY(endpoint_.wait(Channel::kCombine, rank, done_.summed + 1, awaited));
  }
  return {};
}

// All ranks of this node have their results.
void DispatchCombine::send_sums() {
  crossing_->send_sums(++done_.summed, row_sum_);
  endpoint_.raise_on_other_nodes(Channel::kCombine, done_.summed);
}

}  // namespace wideep::ep
