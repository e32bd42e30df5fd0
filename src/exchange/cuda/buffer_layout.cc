// SPDX-License-Identifier: Apache-2.0
#include "cuda/buffer_layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::cuda {
namespace {

constexpr size_t kRowAlignment = 16;
constexpr size_t kSectionAlignment = 512;

// One place in shared memory for each source and slot, in the kernel `receive`.
constexpr int64_t kMaxPlaces = 8192;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

Status check_shape(const ExchangeShape& shape) {
  const auto wrong = [](const char* what, int64_t found, int64_t min, int64_t max) {
    return invalid_input(
        fmt::format("exchange on GPUs: {} {}, expected {} to {}", what, found, min, max));
  };
  const auto within = [](int64_t value, int64_t min, int64_t max) {
    return value >= min && value <= max;
  };
  constexpr int64_t kMaxBytes = int64_t{1} << 24;
  if (!within(shape.ep_size, 1, kMaxRanks)) return wrong("ep_size", shape.ep_size, 1, kMaxRanks);
  if (!within(shape.num_experts, 1, 8192)) return wrong("experts", shape.num_experts, 1, 8192);
  if (!within(shape.slots_per_rank, 1, 512)) {
    return wrong("slots per rank", shape.slots_per_rank, 1, 512);
  }
  const int64_t places = int64_t{shape.slots_per_rank} * shape.ep_size;
  if (places > kMaxPlaces) return wrong("slots", places, 1, kMaxPlaces);
  const auto max_k = std::min<int64_t>(kWarpSize, places);
  if (!within(shape.top_k, 1, max_k)) return wrong("top_k", shape.top_k, 1, max_k);
  if (!within(shape.max_tokens, 1, 1 << 20)) return wrong("tokens", shape.max_tokens, 1, 1 << 20);
  if (!within(shape.row_bytes, 1, kMaxBytes)) {
    return wrong("bytes of a row", shape.row_bytes, 1, kMaxBytes);
  }
  if (!within(shape.result_bytes, 1, kMaxBytes)) {
    return wrong("bytes of a result", shape.result_bytes, 1, kMaxBytes);
  }
  return {};
}

BufferLayout::BufferLayout(const ExchangeShape& shape) : shape_(shape) {
  const auto ranks = static_cast<size_t>(shape.ep_size);
  const size_t messages = ranks * static_cast<size_t>(shape.max_tokens);
  entries_ = std::min(shape.top_k, shape.slots_per_rank);
  results_of_message_ = shape.is_reduced ? 1 : entries_;
  const size_t lists = static_cast<size_t>(shape.top_k) * (2 * sizeof(int32_t) + sizeof(float));
  row_offset_ = static_cast<uint32_t>(round_up(lists, kRowAlignment));
  stride_ = row_offset_ + round_up(shape.row_bytes, kRowAlignment);
  result_stride_ = round_up(shape.result_bytes, kRowAlignment);

  const auto after = [](size_t start, size_t bytes) {
    return round_up(start + bytes, kSectionAlignment);
  };
  counts_ = after(0, (kNumChannels + 1) * ranks * kSector);
  arrivals_ = after(counts_, ranks * static_cast<size_t>(shape.num_experts) * sizeof(int32_t));
  messages_ =
      after(arrivals_, ranks * static_cast<size_t>(shape.slots_per_rank + 1) * sizeof(int32_t));
  results_ = after(messages_, messages * stride_);
  segment_bytes_ = results_ + messages * static_cast<size_t>(results_of_message_) * result_stride_;
}

}  // namespace wideep::cuda
