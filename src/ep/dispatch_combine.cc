// SPDX-License-Identifier: Apache-2.0
#include "ep/dispatch_combine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

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
int num_told(uint32_t told) { return static_cast<int>(told >> 1); }

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
  destination_of_.resize(layout.shape().top_k);
  place_of_.resize(layout.shape().top_k);
  places_.resize(ranks);
  entries_.resize(num_owners_);
  owners_.resize((num_owners_ + kOwnersInWord - 1) / kOwnersInWord);
  outlets_.resize(ranks);
  far_list_.resize(2 * static_cast<size_t>(layout.shape().top_k));
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
  for (int set = 0; set < layout_.shape().calls_in_flight; ++set) {
    auto own = base::SharedBytes::create("results of own tokens", layout_.own_results_bytes());
    if (!own.ok()) {
      endpoint_.memory().fail(own.status());
      return own.status();
    }
    own_results_.push_back(std::move(own).value());
  }
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
  for (const int32_t& of_rank : tokens_of_ranks) {
    if (of_rank >= 0 && of_rank <= shape.max_tokens) continue;
    return give_up(fmt::format("begin: {} tokens of rank {}, expected 0 to {}", of_rank,
                               &of_rank - tokens_of_ranks.data(), shape.max_tokens));
  }
  ++begun_;
  counts_told_ = false;
  const std::span<int32_t> told = layout_.counts(segments_[endpoint_.rank()], begun_);
  std::copy(counts.begin(), counts.end(), told.begin());
  const transport::Written written{.first = told.data(), .width = told.size_bytes()};
  endpoint_.share(endpoint_.rank(), std::span(&written, 1));
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
  WIDEEP_TRY(endpoint_.wait_all(Channel::kPrepare, counted_, awaited));
  counts_of_ranks_.clear();
  for (std::byte* segment : segments_) {
    const std::span<const int32_t> counts = layout_.counts(segment, begun_);
    counts_of_ranks_.insert(counts_of_ranks_.end(), counts.begin(), counts.end());
  }
  return {};
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
  call.own_results.resize(num_tokens);
  call.own_rows.clear();
  find_outlets();
  for (int token = 0; token < num_tokens; ++token) {
    if (!send_token(batch, token)) return give_up_on(batch, token);
  }
  if (crossing_) crossing_->send_rows();
  for (int peer = 0; peer < endpoint_.num_ranks(); ++peer) {
    if (peer == endpoint_.rank()) continue;
    const auto messages = static_cast<uint32_t>(gathers() ? num_tokens : sent_rows_[peer]);
    endpoint_.tell(Channel::kDispatch, peer, begun_, told_of(messages, call.set));
  }
  endpoint_.raise_all(Channel::kDispatch, begun_);
  sent_ = begun_;
  call.sent_ns = base::trace_start();
  return {};
}

// Where the results begin that a rank of this node has for the tokens of a source.
std::byte* DispatchCombine::first_result(int holder, int source, const Call& call) {
  const int rank = endpoint_.rank();
  if (holder == rank && source == rank) return own_results_[call.set].data();
  return layout_.result(segments_[holder], call.area[source], 0);
}

// Where the first message to each rank belongs, and the first result from it.
void DispatchCombine::find_outlets() {
  const Call& call = call_of(begun_);
  const int64_t area = call.area[endpoint_.rank()];
  for (int to = 0; to < endpoint_.num_ranks(); ++to) {
    std::byte* segment = segments_[to];
    const bool pushed = is_near_[to] && !gathers();
    outlets_[to] = {.list = pushed ? layout_.slots(segment, area, 0) : far_list_.data(),
                    .row = pushed ? layout_.row(segment, area, 0) : nullptr,
                    .result = first_result(to, endpoint_.rank(), call)};
  }
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
  const int rank = endpoint_.rank();
  const bool mine = entries_[rank % num_owners_] > 0;
  call_of(begun_).own_results[token] = mine ? outlets_[rank].result : nullptr;
  if (reduced()) {
    note_one_result_per_rank(token);
  } else {
    note_results(token);
  }
  go_on_to_next_token();
  return true;
}

// The ranks of a token's slots in ascending order, and how many slots each has. No branch depends
// on the slots: which ranks a token goes to, no processor can guess.
bool DispatchCombine::find_destinations(const int32_t* slots) {
  const DispatchShape& shape = layout_.shape();
  const std::span<const int32_t> owners = owner_of_slot_;
  int32_t* const entries = entries_.data();
  const int top_k = shape.top_k;
  uint64_t first_owners = 0;  // in a register
  for (int k = 0; k < top_k; ++k) {
    const auto slot = static_cast<uint32_t>(slots[k]);
    if (slot >= owners.size()) return false;
    const auto owner = static_cast<uint32_t>(owners[slot]);
    destination_of_[k] = static_cast<int32_t>(owner);
    place_of_[k] = entries[owner]++;
    const uint64_t bit = uint64_t{1} << owner % kOwnersInWord;
    if (owner < kOwnersInWord) {
      first_owners |= bit;
    } else {
      owners_[owner / kOwnersInWord] |= bit;
    }
  }
  owners_[0] = first_owners;
  return list_destinations();
}

// False: a rank has less slots than the token wants there.
bool DispatchCombine::list_destinations() {
  const DispatchShape& shape = layout_.shape();
  size_t count = 0;
  int32_t most = 0;
  for (size_t word = 0; word < owners_.size(); ++word) {
    const auto first = static_cast<int32_t>(word * kOwnersInWord);
    for (uint64_t left = std::exchange(owners_[word], 0); left != 0; left &= left - 1) {
      places_[count] = first + std::countr_zero(left);
      most = std::max(most, entries_[places_[count++]]);
    }
  }
  const size_t num_owners = count;
  while (count < num_owners * static_cast<size_t>(shape.num_slices)) {
    places_[count] = places_[count - num_owners] + num_owners_;
    ++count;
  }
  destinations_ = std::span(places_).first(count);
  return most <= shape.slots_per_rank;
}

void DispatchCombine::go_on_to_next_token() {
  const size_t message = layout_.row_stride(), result = layout_.result_stride();
  const auto slices = static_cast<size_t>(layout_.shape().num_slices);
  for (const int32_t owner : destinations_.first(destinations_.size() / slices)) {
    const int32_t entries = std::exchange(entries_[owner], 0);
    for (int32_t to = owner; to < endpoint_.num_ranks(); to += num_owners_) {
      ++sent_rows_[to];
      sent_entries_[to] += entries;
      Outlet& outlet = outlets_[to];
      outlet.result += reduced() ? result : static_cast<size_t>(entries) * result;
      if (outlet.row == nullptr) continue;
      outlet.row += message;
      outlet.list += message / sizeof(int32_t);
    }
  }
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
  if (crossing_) {
    const int64_t area = call.area[endpoint_.rank()];
    crossing_->add({begun_, area, row, slots, weights, destination_of_});
  }
  for (const int32_t to : destinations_) {
    const Outlet& outlet = outlets_[to];
    if (outlet.row == nullptr) continue;
    std::fill_n(outlet.list, shape.top_k, -1);
    fetch_to_write(outlet.list + kListsToWriteAhead * layout_.row_stride() / sizeof(int32_t));
    if (to == endpoint_.rank()) {
      call.own_rows.push_back(row);
    } else {
      std::memcpy(outlet.row, row, shape.row_bytes);
    }
  }
  for (int slice = 0; slice < shape.num_slices; ++slice) {
    const Outlet* outlets = outlets_.data() + slice * num_owners_;
    for (int k = 0; k < shape.top_k; ++k) {
      const int32_t owner = destination_of_[k], place = place_of_[k];
      int32_t* list = outlets[owner].list;
      list[place] = slots[k] - owner * shape.slots_per_rank;
      if (weights != nullptr) layout_.weights_after(list)[place] = weights[k];
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
  const DispatchShape& shape = layout_.shape();
  const size_t stride = layout_.result_stride();
  const std::byte** results =
      call_of(begun_).results.data() + static_cast<size_t>(token) * max_results();
  for (int slice = 0; slice < shape.num_slices; ++slice, results += shape.top_k) {
    const Outlet* outlets = outlets_.data() + slice * num_owners_;
    for (int k = 0; k < shape.top_k; ++k) {
      results[k] = outlets[destination_of_[k]].result + static_cast<size_t>(place_of_[k]) * stride;
    }
  }
}

void DispatchCombine::note_one_result_per_rank(int token) {
  Call& call = call_of(begun_);
  const auto first = static_cast<size_t>(token) * static_cast<size_t>(max_results());
  size_t at = first;
  noted_nodes_.clear();
  for (const int32_t destination : destinations_) {
    const std::byte* result = result_of(destination);
    if (result != nullptr) call.results[at++] = result;
  }
  call.num_results[token] = static_cast<int32_t>(at - first);
}

// Null: it is in the sum of a rank before it.
const std::byte* DispatchCombine::result_of(int32_t destination) {
  if (is_near_[destination] || !sums_on_nodes()) return outlets_[destination].result;
  const int node = node_of_[destination];
  if (std::find(noted_nodes_.begin(), noted_nodes_.end(), node) != noted_nodes_.end()) {
    return nullptr;
  }
  noted_nodes_.push_back(node);
  return crossing_->sum_from(node, call_of(begun_).area[endpoint_.rank()]);
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
  slot_start_.assign(layout_.shape().slots_per_rank + 1 + top_k(), 0);
  Status taken;
  WIDEEP_TRY(endpoint_.wait_each(Channel::kDispatch, received_, awaited,
                                 [&](std::span<const int> sources) {
                                   for (const int source : sources) fetch_lists(source);
                                   for (const int source : sources) {
                                     if (taken.ok()) taken = take_messages(source);
                                   }
                                 }));
  return taken;
}

DispatchCombine::Place DispatchCombine::messages_of(int source) const {
  const Call& call = call_of(received_);
  if (gathers()) return {endpoint_.segment(source), layout_.gathered_area(call.set)};
  return {endpoint_.segment(endpoint_.rank()), call.area[source]};
}

// What a source has told with its flag.
uint32_t DispatchCombine::told_by(int source) const {
  const Call& call = call_of(received_);
  return source == endpoint_.rank() ? told_of(static_cast<uint32_t>(call.own_rows.size()), call.set)
                                    : endpoint_.told(Channel::kDispatch, source, received_);
}

// The first slots of each source at once: most have few messages.
void DispatchCombine::fetch_lists(int source) const {
  const int num_messages = std::min(num_told(told_by(source)), kListsAhead);
  const Place messages = messages_of(source);
  for (int index = 0; index < num_messages; ++index) {
    __builtin_prefetch(layout_.slots(messages.segment, messages.area, index));
  }
}

Status DispatchCombine::take_messages(int source) {
  const Place messages = messages_of(source);
  const Call& call = call_of(received_);
  const uint32_t told = told_by(source);
  const int num_messages = num_told(told);
  if (told != told_of(static_cast<uint32_t>(num_messages), call.set)) {
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

// My slots of one message. Those that are not mine, or none, are written over by the next, and are
// counted behind my slots: each in another place, for counts in one would wait for each other.
DispatchCombine::Arrival* DispatchCombine::take_slots(const Place& messages, int index,
                                                      Arrival* arrival) {
  const int32_t* slots = layout_.slots(messages.segment, messages.area, index);
  const float* weights = layout_.weights(messages.segment, messages.area, index);
  const int32_t my_slots = layout_.shape().slots_per_rank, top_k = layout_.shape().top_k;
  const int32_t first_slot = first_slot_;
  int32_t* const counts = slot_start_.data() + 1;
  const bool weighted = reduced();
  for (int k = 0; k < top_k; ++k) {
    const int32_t slot = slots[k] - first_slot;
    const bool mine = static_cast<uint32_t>(slot) < static_cast<uint32_t>(my_slots);
    *arrival = {slot, index, weighted ? weights[k] : 0.0f};
    ++counts[mine ? slot : my_slots + k];
    arrival += mine;
  }
  return arrival;
}

// Counting sort of all arrivals by slot; stable, so that a slot's rows stand in source order. Ranks
// that have sent nothing cost nothing.
void DispatchCombine::group_received() {
  rows_.resize(std::accumulate(num_arrivals_.begin(), num_arrivals_.end(), size_t{0}));
  weights_.resize(reduced() ? rows_.size() : 0);
  tokens_.resize(reduced() ? rows_.size() : 0);  // at most
  num_messages_ = 0;
  slot_start_.resize(layout_.shape().slots_per_rank + 1);
  if (rows_.empty()) {  // all slots start at 0, as they were set
    std::fill(num_results_for_.begin(), num_results_for_.end(), 0);
    return;
  }
  std::partial_sum(slot_start_.begin(), slot_start_.end(), slot_start_.begin());
  slot_fill_.assign(slot_start_.begin(), slot_start_.end() - 1);
  int32_t entry = 0;
  for (int source = 0; source < endpoint_.num_ranks(); ++source) {
    entry = group_source(source, entry);
  }
}

// The arrivals of a message stand side by side; how many there are, no processor can guess. Returns
// the entry after the source's last.
int32_t DispatchCombine::group_source(int source, int32_t first_entry) {
  const Call& call = call_of(received_);
  const Place messages = messages_of(source);
  const std::byte* const* own_rows = source == endpoint_.rank() ? call.own_rows.data() : nullptr;
  const std::byte* first_row = layout_.row(messages.segment, messages.area, 0);
  const size_t row_stride = layout_.row_stride(), result_stride = layout_.result_stride();
  std::byte* result = first_result(endpoint_.rank(), source, call);
  int32_t* const fill = slot_fill_.data();
  ExpertRow* const rows = rows_.data();
  int32_t entry = first_entry, number = num_messages_ - 1, message = -1;
  for (const Arrival& arrival : std::span(arrivals_[source]).first(num_arrivals_[source])) {
    number += arrival.message != message;
    message = arrival.message;
    const std::byte* row = own_rows != nullptr
                               ? own_rows[message]
                               : first_row + static_cast<size_t>(message) * row_stride;
    rows[fill[arrival.slot]++] = {row, reduced() ? nullptr : result, entry++, number};
    result += result_stride;
  }
  const int num_messages = number + 1 - num_messages_;
  num_results_for_[source] = reduced() ? num_messages : num_arrivals_[source];
  if (reduced()) list_tokens(source, first_entry);
  num_messages_ += num_messages;
  return entry;
}

// kReduced: those of which there are messages.
void DispatchCombine::list_tokens(int source, int32_t entry) {
  const size_t stride = layout_.result_stride();
  std::byte* const results = first_result(endpoint_.rank(), source, call_of(received_));
  float* const weights = weights_.data();
  int32_t number = -1, message = -1, first = entry;
  for (const Arrival& arrival : std::span(arrivals_[source]).first(num_arrivals_[source])) {
    const bool begins = arrival.message != message;
    message = arrival.message;
    first = begins ? entry : first;
    number += begins;
    weights[entry] = arrival.weight;
    tokens_[num_messages_ + number] = {
        .weights = {weights + first, static_cast<size_t>(++entry - first)},
        .first_entry = first,
        .result = results + static_cast<size_t>(number) * stride};
  }
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
