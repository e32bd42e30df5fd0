// SPDX-License-Identifier: Apache-2.0
#include "ep/buffer_layout.h"

#include <algorithm>

#include "base/check.h"

namespace wideep::ep {
namespace {

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

constexpr size_t kRowAlignment = 16;
constexpr size_t kSectionAlignment = 4096;

}  // namespace

int64_t DispatchShape::max_rows() const {
  const int64_t all = static_cast<int64_t>(ep_size) * max_tokens;
  return max_group_tokens == 0 ? all : std::min(all, max_group_tokens);
}

BufferLayout::BufferLayout(const DispatchShape& shape) : shape_(shape) {
  const size_t ranks = static_cast<size_t>(shape.ep_size);
  const size_t rows = static_cast<size_t>(shape.max_rows());
  max_entries_ = std::min(shape.top_k, shape.slots_per_rank);
  slots_offset_ = round_up(shape.row_bytes, kRowAlignment);
  message_bytes_ = slots_offset_ + round_up(shape.top_k * sizeof(int32_t), kRowAlignment);
  result_bytes_ = round_up(shape.result_bytes, kRowAlignment);

  num_rows_offset_ = round_up(2 * ranks * shape.num_experts * sizeof(int32_t), kSectionAlignment);
  messages_offset_ = num_rows_offset_ + round_up(ranks * sizeof(int32_t), kSectionAlignment);
  results_offset_ = messages_offset_ + round_up(rows * message_bytes_, kSectionAlignment);
  segment_bytes_ = results_offset_ + rows * max_entries_ * result_bytes_;
}

int32_t* BufferLayout::counts(std::byte* segment, uint32_t parity, int source) const {
  const size_t set = (parity & 1) * static_cast<size_t>(shape_.ep_size) + source;
  return reinterpret_cast<int32_t*>(segment) + set * shape_.num_experts;
}

std::span<const int32_t> BufferLayout::counts_of_ranks(std::byte* segment, uint32_t parity) const {
  return {counts(segment, parity, 0), static_cast<size_t>(shape_.ep_size) * shape_.num_experts};
}

int32_t* BufferLayout::num_rows(std::byte* segment, int source) const {
  return reinterpret_cast<int32_t*>(segment + num_rows_offset_) + source;
}

std::byte* BufferLayout::message(std::byte* segment, int64_t area, int row) const {
  return segment + messages_offset_ + static_cast<size_t>(area + row) * message_bytes_;
}

int32_t* BufferLayout::message_slots(std::byte* message) const {
  return reinterpret_cast<int32_t*>(message + slots_offset_);
}

std::byte* BufferLayout::result(std::byte* segment, int64_t area, int entry) const {
  const size_t index = static_cast<size_t>(area * max_entries_ + entry);
  return segment + results_offset_ + index * result_bytes_;
}

void BufferLayout::start_areas(std::span<const int32_t> tokens_of_ranks,
                               std::span<int64_t> starts) const {
  int64_t start = 0;
  for (int rank = 0; rank < shape_.ep_size; ++rank) {
    starts[rank] = start;
    start += tokens_of_ranks.empty() ? shape_.max_tokens : tokens_of_ranks[rank];
  }
  starts[shape_.ep_size] = start;
  WIDEEP_CHECK_LE(start, shape_.max_rows());
}

}  // namespace wideep::ep
