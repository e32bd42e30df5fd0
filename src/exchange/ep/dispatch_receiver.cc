// SPDX-License-Identifier: Apache-2.0
//
// A counting sort of (message, slot) pairs by slot. take() reads a source's lists of slots, and
// appends the pairs that are for this rank (arrivals) while it counts them by slot. finish() turns
// the counts into positions and places each arrival's row. It is stable: rows of a slot are in the
// order of sources and of their messages. The source relies on the order of messages to find its
// results (DispatchSender::record_results).
#include "ep/dispatch_receiver.h"

#include <algorithm>
#include <numeric>

namespace wideep::ep {
namespace {

// A list of slots is prefetched this many messages before it is read. Pushed messages are a row
// apart in memory, a stride that hardware prefetchers do not follow.
constexpr int kListsAhead = 8;

}  // namespace

// Pushed messages have local slot numbers, published messages have global ones.
DispatchReceiver::DispatchReceiver(const GroupBuffers& buffers)
    : buffers_(buffers),
      first_slot_(buffers.publishes() ? buffers.owner * buffers.layout.shape().local_slots() : 0),
      arrivals_(static_cast<size_t>(buffers.num_ranks)),
      num_arrivals_(static_cast<size_t>(buffers.num_ranks)),
      num_results_for_(static_cast<size_t>(buffers.num_ranks)) {}

void DispatchReceiver::start(const DispatchCall& call) {
  call_ = &call;
  const DispatchShape& shape = buffers_.layout.shape();
  slot_start_.assign(shape.local_slots() + 1 + shape.top_k, 0);
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
  if (num_messages == 0) {  // most sources of a wide group, if there are few tokens
    num_arrivals_[source] = 0;
    return;
  }
  const BufferLayout& layout = buffers_.layout;
  const Messages messages = messages_of(source);
  std::vector<Arrival>& arrivals = arrivals_[source];
  // Never shrinks, so that after the first calls nothing is allocated.
  const size_t max = static_cast<size_t>(num_messages) * static_cast<size_t>(layout.shape().top_k);
  if (arrivals.size() < max) arrivals.resize(max);
  Arrival* end = arrivals.data();
  for (int index = 0; index < num_messages; ++index) {
    if (index + kListsAhead < num_messages) {
      __builtin_prefetch(layout.slots(messages.segment, messages.area, index + kListsAhead));
    }
    end = take_slots(messages, index, end);
  }
  num_arrivals_[source] = static_cast<int32_t>(end - arrivals.data());
}

// Appends this rank's slots of one message. There is no branch on whether a slot is this rank's,
// since it would be mispredicted often. Instead every slot is written as an arrival, and the next
// one overwrites it if it is not this rank's. Such slots are counted too, in counters after those
// of this rank's slots: one for each k, because additions to the same counter depend on each other.
DispatchReceiver::Arrival* DispatchReceiver::take_slots(const Messages& messages, int index,
                                                        Arrival* arrival) {
  const BufferLayout& layout = buffers_.layout;
  const int32_t* slots = layout.slots(messages.segment, messages.area, index);
  const float* weights = layout.weights(messages.segment, messages.area, index);
  const int32_t my_slots = layout.shape().local_slots(), top_k = layout.shape().top_k;
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

// slot_start_[s + 1] has counted the rows of slot s, so its prefix sums are the first rows of
// slots.
void DispatchReceiver::finish() {
  rows_.resize(std::accumulate(num_arrivals_.begin(), num_arrivals_.end(), size_t{0}));
  weights_.resize(buffers_.reduced() ? rows_.size() : 0);
  tokens_.resize(buffers_.reduced() ? rows_.size() : 0);  // at most
  num_messages_ = 0;
  slot_start_.resize(buffers_.layout.shape().local_slots() + 1);
  if (rows_.empty()) {  // all slots start at 0, as start() has set them
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

// The address of the first result for a source. DispatchSender::start computes the same address.
std::byte* DispatchReceiver::first_result_for(int source) const {
  if (source == buffers_.rank) return call_->own_results;
  return buffers_.layout.result(buffers_.segments[buffers_.rank], call_->areas[source], 0);
}

// Places the rows of one source. Returns the entry after its last. Arrivals of one message are
// adjacent; their number is unpredictable, so messages are counted without a branch.
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

// Combine::kReduced: lists the tokens of one source, again without branches.
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
    // Written once per slot of the token; complete after its last slot.
    tokens_[num_messages_ + number] = {
        .weights = {weights + first, static_cast<size_t>(++entry - first)},
        .first_entry = first,
        .result = results + static_cast<size_t>(number) * stride};
  }
}

}  // namespace wideep::ep
