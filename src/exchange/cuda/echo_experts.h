// SPDX-License-Identifier: Apache-2.0
//
// Stand-ins for experts, for tests and benchmarks: a result that depends on the row and on the
// expert, and is exact in its format. Plain results: value + expert % 16. Coded results, of rows in
// the same format: the row with all scales · 2^(expert % 4).
//
// Thread safety: a kernel.
#pragma once

#include "cuda/protocol.h"
#include "cuda/receive.h"
#include "cuda/row_values.h"

namespace wideep::cuda {

struct EchoExperts {
  Exchange x;
  const ReceivedRow* received = nullptr;
  const int32_t* slot_starts = nullptr;   // [slots_per_rank + 1]
  const int32_t* slot_experts = nullptr;  // [slots_per_rank] of this rank
  // Matrices with a row for each received row (expand_rows.h), or null: where the exchange has
  // them.
  const std::byte* rows = nullptr;
  std::byte* results = nullptr;
  uint64_t stride = 0;  // of both
  RowFormat row_format = RowFormat::kBf16;
  RowFormat result_format = RowFormat::kBf16;
  int32_t hidden = 0;

  // A warp per row.
  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    if (begin_call(lane, x) == 0) return;
    const int n = lane.load(slot_starts + x.layout.shape().slots_per_rank);
    for (int i = lane.block() * lane.num_warps() + lane.warp(); i < n;
         i += lane.num_blocks() * lane.num_warps()) {
      ReceivedRow::Places places = lane.load(&received[i].places);
      const uint64_t at = static_cast<uint64_t>(i) * stride;
      if (rows != nullptr) places.row = rows + at;
      if (results != nullptr) places.result = results + at;
      const int expert = lane.load(slot_experts + lane.load(&received[i].origin.slot));
      if (kernels::is_coded(result_format)) {
        scale(lane, places, expert);
      } else {
        add(lane, places, expert);
      }
    }
  }

 private:
  template <typename Lane>
  WIDEEP_DEVICE void add(Lane& lane, const ReceivedRow::Places& places, int expert) const {
    // Two values at a time: words that two threads write in parts would be a race.
    for (int i = 2 * lane.lane(); i < hidden; i += 2 * kWarpSize) {
      for (int at = i; at < i + 2 && at < hidden; ++at) {
        const float value = value_at(lane, places.row, at) + static_cast<float>(expert % 16);
        if (result_format == RowFormat::kF32) {
          lane.store(reinterpret_cast<float*>(places.result) + at, value);
        } else {
          lane.store(reinterpret_cast<uint16_t*>(places.result) + at, Bf16::round(value));
        }
      }
    }
  }

  template <typename Lane>
  WIDEEP_DEVICE float value_at(Lane& lane, const std::byte* row, int i) const {
    switch (row_format) {
      case RowFormat::kF32:
        return lane.load(reinterpret_cast<const float*>(row) + i);
      case RowFormat::kBf16:
        return bf16_value(lane.load(reinterpret_cast<const uint16_t*>(row) + i));
      case RowFormat::kFp8: {
        const VectorScales scales = scales_of<RowFormat::kFp8>(lane, row, hidden, i);
        return e4m3_value(lane.load(reinterpret_cast<const uint8_t*>(row) + i)) * scales.of[0];
      }
      case RowFormat::kNvfp4: {
        const VectorScales scales = scales_of<RowFormat::kNvfp4>(lane, row, hidden, i);
        const uint32_t codes = lane.load(reinterpret_cast<const uint8_t*>(row) + i / 2);
        return e2m1_value(codes >> (i % 2 * 4) & 0xfu) * scales.of[0];
      }
    }
    return 0.0f;
  }

  template <typename Lane>
  WIDEEP_DEVICE void scale(Lane& lane, const ReceivedRow::Places& places, int expert) const {
    const auto factor = static_cast<float>(1 << expert % 4);
    const auto begin = static_cast<int>(result_format == RowFormat::kFp8
                                            ? kernels::row_scales_offset(result_format, hidden)
                                            : kernels::row_scales_end(result_format, hidden));
    const int end = result_format == RowFormat::kFp8
                        ? static_cast<int>(kernels::row_scales_end(result_format, hidden))
                        : begin + static_cast<int>(sizeof(float));
    const auto num_bytes = static_cast<int>(kernels::row_bytes(result_format, hidden));
    for (int i = static_cast<int>(sizeof(uint32_t)) * lane.lane(); i < num_bytes;
         i += static_cast<int>(sizeof(uint32_t)) * kWarpSize) {
      uint32_t word = 0;
      for (int at = i; at < i + 4; ++at) {
        uint32_t byte = lane.load(reinterpret_cast<const uint8_t*>(places.row) + at);
        if (at >= begin && at < end) {
          const int of_scale = begin + (at - begin) / 4 * 4;
          const float scaled = load_float(lane, places.row + of_scale) * factor;
          byte = std::bit_cast<uint32_t>(scaled) >> 8 * (at - of_scale) & 0xffu;
        }
        word |= byte << 8 * (at - i);
      }
      lane.store(reinterpret_cast<uint32_t*>(places.result + i), word);
    }
  }
};

}  // namespace wideep::cuda
