// SPDX-License-Identifier: Apache-2.0
#include "ep/dispatch_combine.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/try.h"

namespace wideep::ep {

using transport::Awaited;
using transport::Channel;

DispatchCombine::DispatchCombine(transport::Endpoint& endpoint, const BufferLayout& layout)
    : endpoint_(endpoint), layout_(layout) {
  const int ranks = layout.shape().ep_size;
  WIDEEP_CHECK_EQ(ranks, endpoint.num_ranks());
  WIDEEP_CHECK_GE(endpoint.memory().segment_bytes(), layout.segment_bytes());
  area_.resize(ranks + 1);
  sent_rows_.resize(ranks);
  sent_entries_.resize(ranks);
  open_.resize(ranks);
  open_entries_.resize(ranks);
}

void DispatchCombine::begin(std::span<const int32_t> counts,
                            std::span<const int32_t> tokens_of_ranks) {
  WIDEEP_CHECK_EQ(static_cast<int>(counts.size()), layout_.shape().num_experts);
  ++call_;
  layout_.start_areas(tokens_of_ranks, area_);
  for (int peer = 0; peer < endpoint_.num_ranks(); ++peer) {
    std::copy(counts.begin(), counts.end(),
              layout_.counts(endpoint_.segment(peer), call_, endpoint_.rank()));
  }
}

Status DispatchCombine::await_counts(const Awaited& where) {
  endpoint_.raise_all(Channel::kPrepare, ++counts_awaited_);
  Awaited awaited = where;
  awaited.what = "token counts";
  return endpoint_.wait_all(Channel::kPrepare, counts_awaited_, awaited);
}

std::span<const int32_t> DispatchCombine::counts_of_ranks() const {
  return layout_.counts_of_ranks(endpoint_.segment(endpoint_.rank()), call_);
}

// ---- source side ----

Status DispatchCombine::dispatch(const std::byte* rows, size_t row_stride, int num_tokens,
                                 std::span<const int32_t> slots, const Awaited& where) {
  WIDEEP_CHECK_LE(num_tokens, area_[endpoint_.rank() + 1] - area_[endpoint_.rank()]);
  WIDEEP_CHECK_EQ(slots.size(), static_cast<size_t>(num_tokens) * top_k());
  std::fill(sent_rows_.begin(), sent_rows_.end(), 0);
  std::fill(sent_entries_.begin(), sent_entries_.end(), 0);
  results_.resize(slots.size());
  for (int token = 0; token < num_tokens; ++token) {
    push_token(rows + token * row_stride, slots.data() + token * top_k(), token);
  }
  for (int peer = 0; peer < endpoint_.num_ranks(); ++peer) {
    *layout_.num_rows(endpoint_.segment(peer), endpoint_.rank()) = sent_rows_[peer];
  }
  endpoint_.raise_all(Channel::kDispatch, call_);
  Awaited awaited = where;
  awaited.what = "dispatched rows";
  WIDEEP_TRY(endpoint_.wait_all(Channel::kDispatch, call_, awaited));
  group_received();
  return {};
}

// One message per rank that holds any of the token's slots, each with that rank's slots in top-k
// order.
void DispatchCombine::push_token(const std::byte* row, const int32_t* slots, int token) {
  const int slots_per_rank = layout_.shape().slots_per_rank;
  const int me = endpoint_.rank();
  for (int k = 0; k < top_k(); ++k) {
    const int destination = slots[k] / slots_per_rank;
    if (open_[destination] == nullptr) open_[destination] = open_message(destination, row);
    layout_.message_slots(open_[destination])[open_entries_[destination]++] =
        slots[k] % slots_per_rank;
    results_[token * top_k() + k] =
        layout_.result(endpoint_.segment(destination), area_[me], sent_entries_[destination]++);
  }
  for (int k = 0; k < top_k(); ++k) open_[slots[k] / slots_per_rank] = nullptr;
}

std::byte* DispatchCombine::open_message(int destination, const std::byte* row) {
  std::byte* message = layout_.message(endpoint_.segment(destination), area_[endpoint_.rank()],
                                       sent_rows_[destination]++);
  std::memcpy(message, row, layout_.shape().row_bytes);
  std::fill_n(layout_.message_slots(message), top_k(), -1);
  open_entries_[destination] = 0;
  return message;
}

// ---- destination side ----

// Counting sort of all received entries by slot; stable, so that a slot's rows stand in source
// order.
void DispatchCombine::group_received() {
  std::byte* segment = endpoint_.segment(endpoint_.rank());
  const auto for_each_entry = [&](auto&& visit) {
    num_messages_ = 0;
    for (int source = 0; source < endpoint_.num_ranks(); ++source) {
      int entry = 0;
      const int num_rows = *layout_.num_rows(segment, source);
      for (int row = 0; row < num_rows; ++row) {
        std::byte* message = layout_.message(segment, area_[source], row);
        const int32_t* slots = layout_.message_slots(message);
        for (int k = 0; k < top_k() && slots[k] >= 0; ++k) {
          std::byte* result = layout_.result(segment, area_[source], entry++);
          visit(slots[k], ExpertRow{message, result, num_messages_});
        }
        ++num_messages_;
      }
    }
  };
  slot_start_.assign(layout_.shape().slots_per_rank + 1, 0);
  for_each_entry([&](int slot, const ExpertRow&) { ++slot_start_[slot + 1]; });
  for (size_t slot = 1; slot < slot_start_.size(); ++slot)
    slot_start_[slot] += slot_start_[slot - 1];
  slot_fill_.assign(slot_start_.begin(), slot_start_.end() - 1);
  rows_.resize(slot_start_.back());
  for_each_entry([&](int slot, const ExpertRow& row) { rows_[slot_fill_[slot]++] = row; });
}

std::span<const ExpertRow> DispatchCombine::rows_of_slot(int local_slot) const {
  return {rows_.data() + slot_start_[local_slot],
          static_cast<size_t>(slot_start_[local_slot + 1] - slot_start_[local_slot])};
}

Status DispatchCombine::combine(const Awaited& where) {
  endpoint_.raise_all(Channel::kCombine, call_);
  Awaited awaited = where;
  awaited.what = "expert results";
  return endpoint_.wait_all(Channel::kCombine, call_, awaited);
}

}  // namespace wideep::ep
