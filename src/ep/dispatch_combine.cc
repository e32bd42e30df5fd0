// SPDX-License-Identifier: Apache-2.0
#include "ep/dispatch_combine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/try.h"

namespace wideep::ep {
namespace {

// Messages whose slots are fetched before they are looked at: pushed ones lie far from each other.
constexpr int kListsAhead = 8;
// The same of messages to be written: each takes as long as its row.
constexpr int kListsToWriteAhead = 4;

// Makes a cache line this core's own. A store to one that another core has would hold up all that
// come after it.
void fetch_to_write(const void* p) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

// What is told with a flag of dispatch.
uint32_t told_of(uint32_t num_messages, int set) {
  return num_messages << 1 | static_cast<uint32_t>(set);
}

}  // namespace

using transport::AgreedWords;
using transport::Awaited;
using transport::Channel;

DispatchCombine::DispatchCombine(transport::Endpoint& endpoint, const BufferLayout& layout)
    : endpoint_(endpoint), layout_(layout), num_owners_(layout.shape().num_owners()) {
  const int ranks = layout.shape().ep_size;
  WIDEEP_CHECK_EQ(ranks, endpoint.num_ranks());
  WIDEEP_CHECK_GE(endpoint.memory().segment_bytes(), layout.segment_bytes());
  for (Call& call : calls_) call.area.resize(ranks + 1);
  sent_rows_.resize(ranks);
  sent_entries_.resize(ranks);
  entries_.resize(ranks);
  places_.resize(ranks + 1);
  next_slot_.resize(ranks);
  next_weight_.resize(ranks);
  destination_of_.resize(layout.shape().top_k);
  for (int slot = 0; slot < layout.shape().num_slots(); ++slot) {
    owner_of_slot_.push_back(slot / layout.shape().slots_per_rank);
  }
  if (gathers()) first_slot_ = endpoint.rank() % num_owners_ * layout.shape().slots_per_rank;
  arrivals_.resize(ranks);
  num_arrivals_.resize(ranks);
  num_results_for_.resize(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    is_near_.push_back(endpoint.is_near(rank));
    segments_.push_back(endpoint.segment(rank));
  }
  // Also where this group is on one node: the rank may be a deputy for another group's.
  const bool is_spread = std::count(is_near_.begin(), is_near_.end(), 0) > 0;
  if (endpoint.bridge() == nullptr || (gathers() && !is_spread)) return;
  crossing_.emplace(endpoint, layout);
  for (int rank = 0; rank < ranks; ++rank) {
    node_of_.push_back(endpoint.bridge()->nodes().node_of(endpoint.world_rank(rank)));
  }
}

// ---- the order of steps ----

// The others shall not wait for a rank that cannot go on.
Status DispatchCombine::give_up(std::string why) const {
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
  if (begun_ != sent_) return "after begin";
  if (received_ != returned_) return "after dispatch";
  if (returned_ != finished_) return "after start_combine";
  if (sent_ != received_) return "after start_dispatch";
  return "between two calls";
}

Status DispatchCombine::open() {
  if (life_ != Life::kNew) {
    return give_up(fmt::format("open {}: it belongs before all else", where_we_are()));
  }
  if (gathers() && crossing_) {
    return give_up("dispatch: all-gather reads rows in place; ranks on several nodes cannot");
  }
  if (sums_on_nodes() && !row_sum_) {
    return give_up("dispatch: reduced results of several nodes need set_row_sum");
  }
  const auto mine = layout_.shape().fields();
  std::vector<std::vector<uint64_t>> of_ranks(endpoint_.num_ranks());
  for (size_t first = 0; first < mine.size(); first += AgreedWords().size()) {
    AgreedWords told = {};
    const size_t count = std::min(told.size(), mine.size() - first);
    for (size_t i = 0; i < count; ++i) told[i] = mine[first + i].value;
    std::vector<AgreedWords> words;
    WIDEEP_TRY(endpoint_.agree(told, {.what = "the shape of dispatch"}, &words));
    for (size_t rank = 0; rank < words.size(); ++rank) {
      of_ranks[rank].insert(of_ranks[rank].end(), words[rank].begin(), words[rank].end());
    }
  }
  WIDEEP_TRY(compare_shapes(of_ranks));
  begun_ = sent_ = received_ = returned_ = summed_ = finished_ =
      endpoint_.raised(Channel::kDispatch);
  counted_ = endpoint_.raised(Channel::kPrepare);
  life_ = Life::kOpen;
  return {};
}

// All ranks see the same and return the same.
Status DispatchCombine::compare_shapes(std::span<const std::vector<uint64_t>> of_ranks) const {
  const auto names = layout_.shape().fields();
  for (size_t field = 0; field < names.size(); ++field) {
    for (size_t rank = 1; rank < of_ranks.size(); ++rank) {
      const uint64_t first = of_ranks[0][field], other = of_ranks[rank][field];
      if (first == other) continue;
      return invalid_input(
          fmt::format("dispatch: {} is {} on rank 0 and {} on rank {}; it must be the same on all",
                      names[field].name, first, other, rank));
    }
  }
  return {};
}

Status DispatchCombine::begin(std::span<const int32_t> counts,
                              std::span<const int32_t> tokens_of_ranks) {
  const DispatchShape& shape = layout_.shape();
  const uint32_t open_calls = begun_ - finished_;
  WIDEEP_TRY(expect(begun_ == sent_ && open_calls < static_cast<uint32_t>(shape.calls_in_flight),
                    "begin", "between two calls"));
  if (static_cast<int>(counts.size()) != shape.num_experts) {
    return give_up(
        fmt::format("begin: counts of {} experts, expected {}", counts.size(), shape.num_experts));
  }
  if (!tokens_of_ranks.empty() && static_cast<int>(tokens_of_ranks.size()) != shape.ep_size) {
    return give_up(fmt::format("begin: tokens of {} ranks, expected {}", tokens_of_ranks.size(),
                               shape.ep_size));
  }
  // The first set stays in the caches where calls do not overlap.
  const int set = open_calls == 0 ? 0 : 1 - call_of(begun_).set;
  Call& call = call_of(begun_ + 1);
  call.set = set;
  layout_.start_areas(tokens_of_ranks, set, call.area);
  const int64_t tokens = call.area.back() - call.area.front();
  if (tokens > shape.max_rows()) {
    return give_up(fmt::format("begin: {} tokens of all ranks, but there is room for {}", tokens,
                               shape.max_rows()));
  }
  ++begun_;
  counts_told_ = false;
  endpoint_.write_to_all(layout_.counts_offset(begun_, endpoint_.rank()), std::as_bytes(counts));
  return {};
}

void DispatchCombine::tell_counts() {
  endpoint_.raise_all(Channel::kPrepare, ++counted_);
  counts_told_ = true;
}

bool DispatchCombine::counts_have_come() const {
  return endpoint_.all_reached(Channel::kPrepare, counted_);
}

Status DispatchCombine::await_counts(const Awaited& where) {
  WIDEEP_TRY(expect(begun_ != sent_, "await_counts", "after begin"));
  if (!counts_told_) tell_counts();
  Awaited awaited = where;
  awaited.what = "token counts";
  return endpoint_.wait_all(Channel::kPrepare, counted_, awaited);
}

std::span<const int32_t> DispatchCombine::counts_of_call(uint32_t number) const {
  return layout_.counts_of_ranks(endpoint_.segment(endpoint_.rank()), number);
}

// ---- source side ----

Status DispatchCombine::check(const Batch& batch) const {
  const std::vector<int64_t>& area = call_of(begun_).area;
  const int64_t announced = area[endpoint_.rank() + 1] - area[endpoint_.rank()];
  if (batch.num_tokens > announced) {
    return give_up(
        fmt::format("dispatch: {} tokens, but {} were announced", batch.num_tokens, announced));
  }
  const size_t entries = static_cast<size_t>(batch.num_tokens) * top_k();
  if (batch.slots.size() != entries) {
    return give_up(fmt::format("dispatch: {} slots, expected {} tokens × top-{}",
                               batch.slots.size(), batch.num_tokens, top_k()));
  }
  if (batch.weights.size() != (reduced() ? entries : 0)) {
    return give_up(fmt::format("dispatch: {} router weights, expected {}", batch.weights.size(),
                               reduced() ? entries : 0));
  }
  return {};
}

Status DispatchCombine::start_dispatch(const std::byte* rows, size_t row_stride, int num_tokens,
                                       std::span<const int32_t> slots,
                                       std::span<const float> weights) {
  WIDEEP_TRY(expect(begun_ != sent_, "dispatch", "after begin"));
  const Batch batch{rows, row_stride, num_tokens, slots, weights};
  WIDEEP_TRY(check(batch));
  Call& call = call_of(begun_);
  std::fill(sent_rows_.begin(), sent_rows_.end(), 0);
  std::fill(sent_entries_.begin(), sent_entries_.end(), 0);
  call.results.resize(slots.size() * static_cast<size_t>(layout_.shape().num_slices));
  call.num_results.resize(reduced() ? num_tokens : 0);
  call.own_rows.clear();
  for (int token = 0; token < num_tokens; ++token) {
    if (!send_token(batch, token)) return give_up_on(batch, token);
  }
  if (crossing_) crossing_->send_rows();
  for (int peer = 0; peer < endpoint_.num_ranks(); ++peer) {
    const auto messages = static_cast<uint32_t>(gathers() ? num_tokens : sent_rows_[peer]);
    endpoint_.tell(Channel::kDispatch, peer, begun_, told_of(messages, call.set));
  }
  endpoint_.raise_all(Channel::kDispatch, begun_);
  sent_ = begun_;
  call.sent_ns = base::trace_start();
  return {};
}

// False: its slots are none that a token can have.
bool DispatchCombine::send_token(const Batch& batch, int token) {
  const int32_t* slots = batch.slots.data() + static_cast<size_t>(token) * top_k();
  const std::byte* row = batch.rows + token * batch.row_stride;
  const float* weights =
      reduced() ? batch.weights.data() + static_cast<size_t>(token) * top_k() : nullptr;
  if (!find_destinations(slots)) return false;
  if (gathers()) {
    lay_down(token, row, slots, weights);
  } else {
    push(row, slots, weights);
  }
  if (reduced()) {
    note_one_result_per_rank(token);
  } else {
    note_results(token);
  }
  for (const int32_t destination : destinations_) {
    ++sent_rows_[destination];
    entries_[destination] = 0;
  }
  return true;
}

// The ranks of a token's slots, and how many of them each has.
bool DispatchCombine::find_destinations(const int32_t* slots) {
  const DispatchShape& shape = layout_.shape();
  int count = 0;
  for (int k = 0; k < shape.top_k; ++k) {
    const auto slot = static_cast<uint32_t>(slots[k]);
    if (slot >= owner_of_slot_.size()) return false;
    const int32_t owner = owner_of_slot_[slot];
    destination_of_[k] = owner;
    for (int32_t to = owner; to < shape.ep_size; to += num_owners_) {
      places_[count] = to;  // stays if it is the first: whether it is, no processor can guess
      count += entries_[to]++ == 0;
    }
    if (entries_[owner] > shape.slots_per_rank) return false;
  }
  destinations_ = std::span(places_).first(count);
  return true;
}

// What find_destinations has seen.
Status DispatchCombine::give_up_on(const Batch& batch, int token) const {
  const DispatchShape& shape = layout_.shape();
  std::vector<int> of_owner(num_owners_);
  for (const int32_t slot : batch.slots.subspan(static_cast<size_t>(token) * top_k(), top_k())) {
    if (slot < 0 || slot >= shape.num_slots()) {
      return give_up(
          fmt::format("dispatch: token {} wants slot {} of {}", token, slot, shape.num_slots()));
    }
    const int owner = slot / shape.slots_per_rank;
    if (++of_owner[owner] <= shape.slots_per_rank) continue;
    return give_up(fmt::format("dispatch: token {} wants a slot of rank {} twice", token, owner));
  }
  return {};
}

// One message per rank, each with that rank's slots in top-k order. What is mine stays where it is.
void DispatchCombine::push(const std::byte* row, const int32_t* slots, const float* weights) {
  Call& call = call_of(begun_);
  const DispatchShape& shape = layout_.shape();
  const int64_t area = call.area[endpoint_.rank()];
  if (crossing_) crossing_->add({begun_, area, row, slots, weights, destination_of_});
  for (const int32_t to : destinations_) {
    if (!is_near_[to]) continue;
    next_slot_[to] = layout_.slots(segments_[to], area, sent_rows_[to]);
    fetch_to_write(layout_.slots(segments_[to], area, sent_rows_[to] + kListsToWriteAhead));
    std::fill_n(next_slot_[to] + entries_[to], top_k() - entries_[to], -1);
    if (weights != nullptr) next_weight_[to] = layout_.weights(segments_[to], area, sent_rows_[to]);
    if (to == endpoint_.rank()) {
      call.own_rows.push_back(row);
    } else {
      std::memcpy(layout_.row(segments_[to], area, sent_rows_[to]), row, shape.row_bytes);
    }
  }
  for (int k = 0; k < top_k(); ++k) {
    const int32_t owner = destination_of_[k];
    for (int32_t to = owner; to < shape.ep_size; to += num_owners_) {
      if (!is_near_[to]) continue;
      *next_slot_[to]++ = slots[k] - owner * shape.slots_per_rank;
      if (weights != nullptr) *next_weight_[to]++ = weights[k];
    }
  }
}

void DispatchCombine::lay_down(int token, const std::byte* row, const int32_t* slots,
                               const float* weights) {
  Call& call = call_of(begun_);
  const int64_t area = layout_.gathered_area(call.set);
  std::byte* segment = endpoint_.segment(endpoint_.rank());
  std::copy_n(slots, top_k(), layout_.slots(segment, area, token));
  if (weights != nullptr) std::copy_n(weights, top_k(), layout_.weights(segment, area, token));
  call.own_rows.push_back(row);
  if (destinations_.size() == 1 && destinations_[0] == endpoint_.rank()) return;
  std::memcpy(layout_.row(segment, area, token), row, layout_.shape().row_bytes);
}

void DispatchCombine::note_results(int token) {
  Call& call = call_of(begun_);
  const int64_t area = call.area[endpoint_.rank()];
  const int ranks = endpoint_.num_ranks(), of_slice = top_k();
  const std::byte** results = call.results.data() + static_cast<size_t>(token) * max_results();
  for (int k = 0; k < of_slice; ++k) {
    const std::byte** result = results + k;
    for (int32_t to = destination_of_[k]; to < ranks; to += num_owners_) {
      *result = layout_.result(segments_[to], area, sent_entries_[to]++);
      result += of_slice;
    }
  }
}

void DispatchCombine::note_one_result_per_rank(int token) {
  Call& call = call_of(begun_);
  const int64_t area = call.area[endpoint_.rank()];
  std::sort(destinations_.begin(), destinations_.end());
  const auto first = static_cast<size_t>(token) * static_cast<size_t>(max_results());
  size_t at = first;
  noted_nodes_.clear();
  for (const int32_t destination : destinations_) {
    sent_entries_[destination] += entries_[destination];
    const std::byte* result = result_of(destination, area);
    if (result != nullptr) call.results[at++] = result;
  }
  call.num_results[token] = static_cast<int32_t>(at - first);
}

// Null: it is in the sum of a rank before it.
const std::byte* DispatchCombine::result_of(int32_t destination, int64_t area) {
  if (is_near_[destination] || !sums_on_nodes()) {
    return layout_.result(segments_[destination], area, sent_rows_[destination]);
  }
  const int node = node_of_[destination];
  if (std::find(noted_nodes_.begin(), noted_nodes_.end(), node) != noted_nodes_.end()) {
    return nullptr;
  }
  noted_nodes_.push_back(node);
  return crossing_->sum_from(node, area);
}

// ---- destination side ----

bool DispatchCombine::rows_have_come() const {
  return endpoint_.all_reached(Channel::kDispatch, received_ + 1);
}

Status DispatchCombine::finish_dispatch(const Awaited& where) {
  WIDEEP_TRY(expect(sent_ != received_ && received_ == returned_, "finish_dispatch",
                    "after start_dispatch"));
  ++received_;
  WIDEEP_TRY(take_all(where));
  group_received();
  base::trace_since(call_of(received_).sent_ns, base::Span::kRowsTravel, where.layer,
                    lane_of(received_, base::Lane::kRowsEven));
  return {};
}

base::Lane DispatchCombine::lane_of(uint32_t number, base::Lane even) const {
  return static_cast<base::Lane>(static_cast<uint32_t>(even) + (number & 1));
}

Status DispatchCombine::take_all(const Awaited& where) {
  Awaited awaited = where;
  awaited.what = "dispatched rows";
  slot_start_.assign(layout_.shape().slots_per_rank + 1, 0);
  Status taken;
  WIDEEP_TRY(endpoint_.wait_each(Channel::kDispatch, received_, awaited, [&](int source) {
    if (taken.ok()) taken = take_messages(source);
  }));
  return taken;
}

DispatchCombine::Place DispatchCombine::messages_of(int source) const {
  const Call& call = call_of(received_);
  if (gathers()) return {endpoint_.segment(source), layout_.gathered_area(call.set)};
  return {endpoint_.segment(endpoint_.rank()), call.area[source]};
}

Status DispatchCombine::take_messages(int source) {
  const Place messages = messages_of(source);
  const uint32_t told = endpoint_.told(Channel::kDispatch, source, received_);
  const int num_messages = static_cast<int>(told >> 1);
  if (told != told_of(static_cast<uint32_t>(num_messages), call_of(received_).set)) {
    return give_up(fmt::format(
        "dispatch: rank {} overlaps other calls than this one; all ranks must begin them in the "
        "same order",
        source));
  }
  std::vector<Arrival>& arrivals = arrivals_[source];
  const size_t most = static_cast<size_t>(num_messages) * static_cast<size_t>(top_k());
  if (arrivals.size() < most) arrivals.resize(most);
  Arrival* end = arrivals.data();
  for (int index = 0; index < num_messages; ++index) {
    if (index + kListsAhead < num_messages) {
      __builtin_prefetch(layout_.slots(messages.segment, messages.area, index + kListsAhead));
    }
    end = take_slots(messages, index, end);
  }
  num_arrivals_[source] = static_cast<int32_t>(end - arrivals.data());
  return {};
}

// My slots of one message. Those that are not mine, or none, are written over by the next.
DispatchCombine::Arrival* DispatchCombine::take_slots(const Place& messages, int index,
                                                      Arrival* arrival) {
  const int32_t* slots = layout_.slots(messages.segment, messages.area, index);
  const float* weights = layout_.weights(messages.segment, messages.area, index);
  const DispatchShape& shape = layout_.shape();
  const bool weighted = reduced();
  for (int k = 0; k < shape.top_k; ++k) {
    const int32_t slot = slots[k] - first_slot_;
    const bool mine = static_cast<uint32_t>(slot) < static_cast<uint32_t>(shape.slots_per_rank);
    *arrival = {slot, index, weighted ? weights[k] : 0.0f};
    slot_start_[mine ? slot + 1 : 0] += mine;
    arrival += mine;
  }
  return arrival;
}

// Counting sort of all arrivals by slot; stable, so that a slot's rows stand in source order. Ranks
// that have sent nothing cost nothing.
void DispatchCombine::group_received() {
  for (size_t slot = 1; slot < slot_start_.size(); ++slot) {
    slot_start_[slot] += slot_start_[slot - 1];
  }
  slot_fill_.assign(slot_start_.begin(), slot_start_.end() - 1);
  rows_.resize(slot_start_.back());
  weights_.resize(reduced() ? rows_.size() : 0);
  tokens_.clear();
  num_messages_ = 0;
  int32_t entry = 0;
  for (int source = 0; source < endpoint_.num_ranks(); ++source) {
    entry = group_source(source, entry);
  }
}

// The arrivals of a message stand side by side. Returns the entry after the source's last.
int32_t DispatchCombine::group_source(int source, int32_t entry) {
  std::byte* segment = endpoint_.segment(endpoint_.rank());
  const Call& call = call_of(received_);
  const Place messages = messages_of(source);
  const bool own = source == endpoint_.rank();
  int num_messages = 0, num_entries = 0;
  int32_t message = -1;
  const std::byte* row = nullptr;
  const std::span arrivals(arrivals_[source].data(), static_cast<size_t>(num_arrivals_[source]));
  for (const Arrival& arrival : arrivals) {
    if (arrival.message != message) {
      message = arrival.message;
      row = own ? call.own_rows[message] : layout_.row(messages.segment, messages.area, message);
      if (reduced()) {
        tokens_.push_back({.first_entry = entry,
                           .result = layout_.result(segment, call.area[source], num_messages)});
      }
      ++num_messages;
    }
    std::byte* result = nullptr;
    if (reduced()) {
      weights_[entry] = arrival.weight;
      tokens_.back().weights = {weights_.data() + tokens_.back().first_entry,
                                tokens_.back().weights.size() + 1};
    } else {
      result = layout_.result(segment, call.area[source], num_entries++);
    }
    rows_[slot_fill_[arrival.slot]++] = {row, result, entry++, num_messages_ + num_messages - 1};
  }
  num_messages_ += num_messages;
  num_results_for_[source] = reduced() ? num_messages : num_entries;
  return entry;
}

std::span<const ExpertRow> DispatchCombine::rows_of_slot(int local_slot) const {
  return {rows_.data() + slot_start_[local_slot],
          static_cast<size_t>(slot_start_[local_slot + 1] - slot_start_[local_slot])};
}

// ---- results ----

Status DispatchCombine::start_combine() {
  WIDEEP_TRY(expect(received_ != returned_, "combine", "after dispatch"));
  returned_ = received_;
  if (sums_on_nodes()) {
    endpoint_.raise_near(Channel::kCombine, returned_);
  } else {
    if (crossing_) send_results_to_nodes();
    endpoint_.raise_all(Channel::kCombine, returned_);
  }
  call_of(returned_).returned_ns = base::trace_start();
  return {};
}

void DispatchCombine::send_results_to_nodes() {
  for (int source = 0; source < endpoint_.num_ranks(); ++source) {
    if (is_near_[source]) continue;
    crossing_->add_results(source, call_of(returned_).area[source], num_results_for_[source]);
  }
  crossing_->send_results();
}

// All ranks of this node have their results: ranks of others are told now.
void DispatchCombine::send_sums() {
  crossing_->send_sums(++summed_, row_sum_);
  endpoint_.raise_far(Channel::kCombine, summed_);
}

Status DispatchCombine::wait_for_node(const Awaited& awaited) {
  for (int rank = 0; rank < endpoint_.num_ranks(); ++rank) {
    if (!is_near_[rank]) continue;
    WIDEEP_TRY(endpoint_.wait(Channel::kCombine, rank, summed_ + 1, awaited));
  }
  return {};
}

bool DispatchCombine::results_have_come() {
  if (owes_sums() && endpoint_.near_reached(Channel::kCombine, summed_ + 1)) send_sums();
  return endpoint_.all_reached(Channel::kCombine, finished_ + 1);
}

Status DispatchCombine::finish_combine(const Awaited& where) {
  WIDEEP_TRY(expect(returned_ != finished_, "finish_combine", "after start_combine"));
  Awaited awaited = where;
  awaited.what = "expert results";
  if (owes_sums()) {
    WIDEEP_TRY(wait_for_node(awaited));
    send_sums();
  }
  WIDEEP_TRY(endpoint_.wait_all(Channel::kCombine, finished_ + 1, awaited));
  ++finished_;
  base::trace_since(call_of(finished_).returned_ns, base::Span::kResultsTravel, where.layer,
                    lane_of(finished_, base::Lane::kResultsEven));
  return {};
}

}  // namespace wideep::ep
