// SPDX-License-Identifier: Apache-2.0
#include "ep/buffer_layout.h"

#include <algorithm>

namespace wideep::ep {
namespace {

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

constexpr size_t kRowAlignment = 64;        // no two rows share a cache line
constexpr size_t kSectionAlignment = 4096;  // pages: those that are never touched need no memory

// Bytes of one of the two sets. Padded to cache lines: a rank writes one set while others may still
// read the other.
size_t bytes_of_counts(const DispatchShape& shape) {
  return round_up(static_cast<size_t>(shape.num_experts) * sizeof(int32_t), kRowAlignment);
}

}  // namespace

int64_t DispatchShape::max_rows() const {
  const int64_t all = static_cast<int64_t>(ep_size) * max_tokens;
  return max_group_tokens == 0 ? all : std::min(all, max_group_tokens);
}

std::array<DispatchShape::Field, DispatchShape::kNumFields> DispatchShape::fields() const {
  const auto number = [](auto value) { return static_cast<uint64_t>(value); };
  return {{{"ep_size", number(ep_size)},
           {"num_experts", number(num_experts)},
           {"slots_per_rank", number(slots_per_rank)},
           {"borrowed_slots", number(borrowed_slots)},
           {"top_k", number(top_k)},
           {"row_bytes", number(row_bytes)},
           {"result_bytes", number(result_bytes)},
           {"max_tokens", number(max_tokens)},
           {"num_nodes", number(num_nodes)},
           {"max_group_tokens", number(max_group_tokens)},
           {"combine", number(combine)},
           {"strategy", number(strategy)},
           {"calls_in_flight", number(calls_in_flight)},
           {"num_slices", number(num_slices)}}};
}

BufferLayout::BufferLayout(const DispatchShape& shape) : shape_(shape) {
  const size_t sets = static_cast<size_t>(shape.calls_in_flight);
  const size_t max_rows = sets * static_cast<size_t>(shape.max_rows());
  const bool reduced = shape.combine == Combine::kReduced;
  const size_t lists = shape.top_k * (sizeof(int32_t) + (reduced ? sizeof(float) : 0));
  const size_t row_bytes = round_up(shape.row_bytes, kRowAlignment);
  results_per_message_ = reduced ? 1 : std::min(shape.top_k, shape.local_slots());
  result_bytes_ = round_up(shape.result_bytes, kRowAlignment);

  lists_offset_ = round_up(2 * bytes_of_counts(shape), kSectionAlignment);
  size_t messages_end = 0;
  if (shape.strategy == Strategy::kAllGather) {
    const size_t messages = sets * static_cast<size_t>(max_published());
    lists_stride_ = lists;
    rows_offset_ = lists_offset_ + round_up(messages * lists, kSectionAlignment);
    rows_stride_ = row_bytes;
    messages_end = rows_offset_ + messages * row_bytes;
    num_messages_ = static_cast<int64_t>(messages);
  } else {
    const size_t before_row = round_up(lists, kRowAlignment);
    // A list is followed by its row, so that one stride serves both and a push writes one place.
    lists_stride_ = rows_stride_ = before_row + row_bytes;
    rows_offset_ = lists_offset_ + before_row;
    messages_end = lists_offset_ + max_rows * lists_stride_;
    num_messages_ = static_cast<int64_t>(max_rows);
  }
  results_offset_ = round_up(messages_end, kSectionAlignment);
  num_results_ = static_cast<int64_t>(max_rows) * results_per_message_;
  segment_bytes_ = results_offset_ + max_rows * results_per_message_ * result_bytes_;
}

// The most messages that a rank can publish in a call.
int64_t BufferLayout::max_published() const {
  return std::min<int64_t>(shape_.max_rows(), shape_.max_tokens);
}

std::span<int32_t> BufferLayout::counts(std::byte* segment, uint32_t parity) const {
  const size_t set = (parity & 1) * bytes_of_counts(shape_);
  return {reinterpret_cast<int32_t*>(segment + set), static_cast<size_t>(shape_.num_experts)};
}

void BufferLayout::start_areas(std::span<const int32_t> tokens_of_ranks, int set,
                               std::span<int64_t> starts) const {
  int64_t start = set * shape_.max_rows();
  for (int rank = 0; rank < shape_.ep_size; ++rank) {
    starts[rank] = start;
    start += tokens_of_ranks.empty() ? shape_.max_tokens : tokens_of_ranks[rank];
  }
  starts[shape_.ep_size] = start;
}

}  // namespace wideep::ep
