// SPDX-License-Identifier: Apache-2.0
#include "ep/dispatch_receiver.h"

#include <algorithm>
#include <numeric>

namespace wideep::ep {
namespace {

// So many messages before one is looked at its list of slots is fetched: pushed messages lie a row
// apart, so that no processor fetches them by itself.
constexpr int kListsAhead = 8;

}  // namespace

// Pushed messages have the slots as this rank numbers them, published ones as all do.
DispatchReceiver::DispatchReceiver(const GroupBuffers& buffers)
    : buffers_(buffers),
      first_slot_(buffers.publishes() ? buffers.owner * buffers.layout.shape().slots_per_rank : 0),
      arrivals_(static_cast<size_t>(buffers.num_ranks)),
      num_arrivals_(static_cast<size_t>(buffers.num_ranks)),
      num_results_for_(static_cast<size_t>(buffers.num_ranks)) {}

void DispatchReceiver::start(const DispatchCall& call) {
  call_ = &call;
  const DispatchShape& shape = buffers_.layout.shape();
  slot_start_.assign(shape.slots_per_rank + 1 + shape.top_k, 0);
}

DispatchReceiver::Messages DispatchReceiver::messages_of(int source) const {
  if (buffers_.publishes()) {
    return {buffers_.segments[source], buffers_.layout.published_area(call_->buffer_set)};
  }
  return {buffers_.segments[buffers_.rank], call_->areas[source]};
}

// ---- as messages come ----

void DispatchReceiver::prefetch(int source, int num_messages) const {
  const Messages messages = messages_of(source);
  for (int index = 0; index < std::min(num_messages, kListsAhead); ++index) {
    __builtin_prefetch(buffers_.layout.slots(messages.segment, messages.area, index));
  }
}

void DispatchReceiver::take(int source, int num_messages) {
  const BufferLayout& layout = buffers_.layout;
  const Messages messages = messages_of(source);
  std::vector<Arrival>& arrivals = arrivals_[source];
  // Never smaller: it stays as long as it once was, so that in the long run nothing is allocated.
  const size_t most = static_cast<size_t>(num_messages) * static_cast<size_t>(layout.shape().top_k);
  if (arrivals.size() < most) arrivals.resize(most);
  Arrival* end = arrivals.data();
  for (int index = 0; index < num_messages; ++index) {
    if (index + kListsAhead < num_messages) {
      __builtin_prefetch(layout.slots(messages.segment, messages.area, index + kListsAhead));
    }
    end = take_slots(messages, index, end);
  }
  num_arrivals_[source] = static_cast<int32_t>(end - arrivals.data());
}

// This rank's slots of one message. No branch asks whether a slot is this rank's, for no processor
// can predict that: an arrival that is not is overwritten by the next, and counted behind this
// rank's slots; each k in a place of its own, for additions in one place wait for each other.
DispatchReceiver::Arrival* DispatchReceiver::take_slots(const Messages& messages, int index,
                                                        Arrival* arrival) {
  const BufferLayout& layout = buffers_.layout;
  const int32_t* slots = layout.slots(messages.segment, messages.area, index);
  const float* weights = layout.weights(messages.segment, messages.area, index);
  const int32_t my_slots = layout.shape().slots_per_rank, top_k = layout.shape().top_k;
  const int32_t first_slot = first_slot_;
  int32_t* const counts = slot_start_.data() + 1;
  const bool weighted = buffers_.reduced();
  for (int k = 0; k < top_k; ++k) {
    const int32_t slot = slots[k] - first_slot;
    const bool mine = static_cast<uint32_t>(slot) < static_cast<uint32_t>(my_slots);
    *arrival = {slot, index, weighted ? weights[k] : 0.0f};
    ++counts[mine ? slot : my_slots + k];
    arrival += mine;
  }
  return arrival;
}

// ---- when all have come ----

// A counting sort of all arrivals by slot. It is stable, so that a slot's rows stand in the order
// of their sources. Ranks that have sent nothing cost next to nothing.
void DispatchReceiver::finish() {
  rows_.resize(std::accumulate(num_arrivals_.begin(), num_arrivals_.end(), size_t{0}));
  weights_.resize(buffers_.reduced() ? rows_.size() : 0);
  tokens_.resize(buffers_.reduced() ? rows_.size() : 0);  // at most
  num_messages_ = 0;
  slot_start_.resize(buffers_.layout.shape().slots_per_rank + 1);
  if (rows_.empty()) {  // all slots start at 0, as they were set
    std::fill(num_results_for_.begin(), num_results_for_.end(), 0);
    return;
  }
  std::partial_sum(slot_start_.begin(), slot_start_.end(), slot_start_.begin());
  slot_fill_.assign(slot_start_.begin(), slot_start_.end() - 1);
  int32_t entry = 0;
  for (int source = 0; source < buffers_.num_ranks; ++source) {
    entry = sort_source(source, entry);
  }
}

// Where the results for a source begin, of which its sender has noted the same.
std::byte* DispatchReceiver::first_result_for(int source) const {
  if (source == buffers_.rank) return call_->own_results;
  return buffers_.layout.result(buffers_.segments[buffers_.rank], call_->areas[source], 0);
}

// Returns the entry after the source's last. Arrivals of one message stand side by side; how many
// they are no processor can predict, so messages are counted without a branch.
int32_t DispatchReceiver::sort_source(int source, int32_t first_entry) {
  const BufferLayout& layout = buffers_.layout;
  const Messages messages = messages_of(source);
  const std::byte* const* own_rows = source == buffers_.rank ? call_->own_rows.data() : nullptr;
  const std::byte* first_row = layout.row(messages.segment, messages.area, 0);
  const size_t row_stride = layout.row_stride(), result_stride = layout.result_stride();
  std::byte* result = first_result_for(source);
  int32_t* const fill = slot_fill_.data();
  ExpertRow* const rows = rows_.data();
  const bool reduced = buffers_.reduced();
  int32_t entry = first_entry, number = num_messages_ - 1, message = -1;
  for (const Arrival& arrival : arrivals_from(source)) {
    number += arrival.message != message;
    message = arrival.message;
    const std::byte* row = own_rows != nullptr
                               ? own_rows[message]
                               : first_row + static_cast<size_t>(message) * row_stride;
    rows[fill[arrival.slot]++] = {row, reduced ? nullptr : result, entry++, number};
    result += result_stride;
  }
  const int num_messages = number + 1 - num_messages_;
  num_results_for_[source] = reduced ? num_messages : num_arrivals_[source];
  if (reduced) list_tokens(source, first_entry);
  num_messages_ += num_messages;
  return entry;
}

// Combine::kReduced: the tokens of one source.
void DispatchReceiver::list_tokens(int source, int32_t first_entry) {
  const size_t stride = buffers_.layout.result_stride();
  std::byte* const results = first_result_for(source);
  float* const weights = weights_.data();
  int32_t entry = first_entry, number = -1, message = -1, first = entry;
  for (const Arrival& arrival : arrivals_from(source)) {
    const bool begins = arrival.message != message;
    message = arrival.message;
    first = begins ? entry : first;
    number += begins;
    weights[entry] = arrival.weight;
    // Written again for each of the token's slots: with the last one it is complete.
    tokens_[num_messages_ + number] = {
        .weights = {weights + first, static_cast<size_t>(++entry - first)},
        .first_entry = first,
        .result = results + static_cast<size_t>(number) * stride};
  }
}

}  // namespace wideep::ep
