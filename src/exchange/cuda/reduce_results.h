// SPDX-License-Identifier: Apache-2.0
//
// reduce: for each received message the weighted sum of its rows' results, which is all that goes
// back for it (ExchangeShape::is_reduced):
//
//   result = encoded(Σ weights · results of the message's slots)
//
// in float32 in top-k order, one fused multiply-add each, rounded or coded once: the bits of the
// CPU's reduced combine (model/parts/expert_rows.cc). Experts have written plain results into a
// matrix, in the order of the received rows.
//
// A warp makes 256 values at a time, each lane 8 that follow one another. The row scale of nvfp4
// needs all values of a row first: a warp has the whole row then, and sums it up twice.
//
// Thread safety: a kernel.
#pragma once

#include <cmath>

#include "cuda/protocol.h"
#include "cuda/row_values.h"
#include "kernels/row_scales.h"

namespace wideep::cuda {

struct ReduceArgs {
  Exchange x;
  const int32_t* rows_of_messages = nullptr;  // of receive
  const std::byte* matrix = nullptr;          // row i: the result of received[i]; 16-byte aligned
  uint64_t stride = 0;                        // bytes, a multiple of 16
  bool is_f32 = false;                        // the matrix; else bf16
  int32_t hidden = 0;
};

template <RowFormat kFormat>
struct ReduceResults {
  ReduceArgs args;

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    const Exchange& x = args.x;
    if (begin_call(lane, x) == 0) return;
    const int parts = kFormat == RowFormat::kNvfp4 ? 1 : num_parts();
    const int warps = lane.num_blocks() * lane.num_warps();
    const int me = lane.block() * lane.num_warps() + lane.warp();
    for (int source = 0; source < x.layout.shape().ep_size; ++source) {
      if (!is_active(lane, x, source)) continue;
      const int32_t* arrivals = x.layout.arrivals(x.segments[x.rank], source);
      const int messages = lane.load(arrivals + x.layout.shape().slots_per_rank);
      // Each source's first messages go to another warp.
      for (int64_t u = (me + source) % warps; u < int64_t{messages} * parts; u += warps) {
        const Message message = find(lane, source, static_cast<int>(u / parts));
        if constexpr (kFormat == RowFormat::kNvfp4) {
          encode_nvfp4(lane, message);
        } else {
          encode_part(lane, message, static_cast<int>(u % parts) * kPart);
        }
      }
    }
  }

 private:
  static constexpr int kValues = 8;  // of a lane
  static constexpr int kPart = kValues * kWarpSize;

  // In lane i: the i-th row of the message.
  struct Message {
    int num_rows;
    uint64_t row;  // address of the result
    float weight;
    std::byte* to;
  };

  WIDEEP_DEVICE int num_parts() const { return (args.hidden + kPart - 1) / kPart; }

  template <typename Lane>
  WIDEEP_DEVICE Message find(Lane& lane, int source, int message) const {
    const BufferLayout& layout = args.x.layout;
    std::byte* mine = args.x.segments[args.x.rank];
    int32_t* slots = layout.slots(mine, source, message);
    const int me = lane.lane();
    const bool has_row = me < layout.shape().top_k && lane.load(slots + me) >= 0;
    const uint32_t rows = lane.ballot(has_row);
    Message found{num_bits(rows), 0, 0.0f, layout.result(mine, source, message, 0)};
    const float weight = has_row ? lane.load(layout.weights(slots) + me) : 0.0f;
    int place = 0;
    for (uint32_t left = rows; left != 0; left &= left - 1, ++place) {
      const float other = lane.shuffle(weight, lowest_bit(left));
      if (place == me) found.weight = other;
    }
    if (me >= found.num_rows) return found;
    const int64_t at = (int64_t{source} * layout.shape().max_tokens + message) * layout.entries();
    const int32_t row = lane.load(args.rows_of_messages + at + me);
    found.row = reinterpret_cast<uint64_t>(args.matrix) + static_cast<uint64_t>(row) * args.stride;
    return found;
  }

  // The sums of the lane's values, which begin with `first`; 0 beyond the row.
  template <typename Lane>
  WIDEEP_DEVICE void sum(Lane& lane, const Message& message, int first,
                         float (&sums)[kValues]) const {
    WIDEEP_UNROLL
    for (int i = 0; i < kValues; ++i) sums[i] = 0.0f;
    for (int k = 0; k < message.num_rows; ++k) {
      const auto* row = reinterpret_cast<const std::byte*>(lane.shuffle(message.row, k));
      const float weight = lane.shuffle(message.weight, k);
      if (first >= args.hidden) continue;
      float values[kValues];
      load(lane, row, first, values);
      WIDEEP_UNROLL
      for (int i = 0; i < kValues; ++i) sums[i] = fused_multiply_add(weight, values[i], sums[i]);
    }
    if constexpr (kFormat != RowFormat::kBf16) {
      // The CPU adds the sum to zero, which makes −0 a 0.
      WIDEEP_UNROLL
      for (int i = 0; i < kValues; ++i) sums[i] = first + i < args.hidden ? sums[i] + 0.0f : 0.0f;
    }
  }

  template <typename Lane>
  WIDEEP_DEVICE void load(Lane& lane, const std::byte* row, int first,
                          float (&values)[kValues]) const {
    const int left = args.hidden - first;
    if (args.is_f32) {
      WIDEEP_UNROLL
      for (int half = 0; half < 2; ++half) {
        const Vector vector = load_vector<uint32_t>(
            lane, row + static_cast<size_t>(first + 4 * half) * sizeof(float), left - 4 * half);
        WIDEEP_UNROLL
        for (int i = 0; i < 4; ++i) values[4 * half + i] = code_of<RowFormat::kF32>(vector, i);
      }
      return;
    }
    const Vector vector =
        load_vector<uint16_t>(lane, row + static_cast<size_t>(first) * sizeof(uint16_t), left);
    WIDEEP_UNROLL
    for (int i = 0; i < kValues; ++i) values[i] = code_of<RowFormat::kBf16>(vector, i);
  }

  // 16 bytes of units, of which num_units exist; zeros for the others.
  template <typename Unit, typename Lane>
  WIDEEP_DEVICE static Vector load_vector(Lane& lane, const std::byte* from, int num_units) {
    if (num_units * static_cast<int>(sizeof(Unit)) >= static_cast<int>(sizeof(Vector))) {
      return lane.load(reinterpret_cast<const Vector*>(from));
    }
    return load_units<Unit>(lane, from, num_units * static_cast<int>(sizeof(Unit)));
  }

  // ---- formats whose parts do not depend on each other ----

  template <typename Lane>
  WIDEEP_DEVICE void encode_part(Lane& lane, const Message& message, int begin) const {
    const int first = begin + lane.lane() * kValues;
    float sums[kValues];
    sum(lane, message, first, sums);
    if constexpr (kFormat == RowFormat::kFp8) {
      encode_fp8(lane, message, first, sums);
      return;
    }
    if (first >= args.hidden) return;
    const int left = args.hidden - first;
    if constexpr (kFormat == RowFormat::kF32) {
      auto* to = reinterpret_cast<float*>(message.to) + first;
      WIDEEP_UNROLL
      for (int half = 0; half < 2; ++half) {
        store_words(lane, reinterpret_cast<uint32_t*>(to) + 4 * half, left - 4 * half,
                    {{bits_of(sums[4 * half]), bits_of(sums[4 * half + 1]),
                      bits_of(sums[4 * half + 2]), bits_of(sums[4 * half + 3])}});
      }
    } else if constexpr (kFormat == RowFormat::kBf16) {
      Vector vector;
      WIDEEP_UNROLL
      for (int i = 0; i < 4; ++i) {
        vector.words[i] = static_cast<uint32_t>(Bf16::round(sums[2 * i])) |
                          static_cast<uint32_t>(Bf16::round(sums[2 * i + 1])) << 16;
      }
      auto* to = reinterpret_cast<uint16_t*>(message.to) + first;
      if (left >= kValues) {
        lane.store(reinterpret_cast<Vector*>(to), vector);
        return;
      }
      WIDEEP_UNROLL
      for (int i = 0; i < kValues; ++i) {
        const auto bits = static_cast<uint16_t>(vector.words[i / 2] >> (i % 2 * 16));
        if (i < left) lane.store(to + i, bits);
      }
    }
  }

  WIDEEP_DEVICE static uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

  template <typename Lane>
  WIDEEP_DEVICE static void store_words(Lane& lane, uint32_t* to, int num_words,
                                        const Vector& vector) {
    if (num_words >= 4) {
      lane.store(reinterpret_cast<Vector*>(to), vector);
      return;
    }
    WIDEEP_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (i < num_words) lane.store(to + i, vector.words[i]);
    }
  }

  // ---- scales ----

  WIDEEP_DEVICE static uint32_t largest_bits(const float (&sums)[kValues], uint32_t largest) {
    WIDEEP_UNROLL
    for (int i = 0; i < kValues; ++i) {
      const uint32_t bits = bits_of(sums[i]) & 0x7fffffffu;
      largest = bits > largest ? bits : largest;
    }
    return largest;
  }

  // Of `lanes` neighbours, a power of two.
  template <typename Lane>
  WIDEEP_DEVICE static uint32_t largest_of(Lane& lane, uint32_t largest, int lanes) {
    for (int distance = 1; distance < lanes; distance *= 2) {
      const uint32_t other = lane.shuffle(largest, lane.lane() ^ distance);
      largest = other > largest ? other : largest;
    }
    return largest;
  }

  // Without the zeros behind the scales, which nobody reads.
  template <typename Lane>
  WIDEEP_DEVICE void encode_fp8(Lane& lane, const Message& message, int first,
                                const float (&sums)[kValues]) const {
    constexpr int kLanes = kernels::kFp8RowGroup / kValues;  // of a group
    const uint32_t largest = largest_of(lane, largest_bits(sums, 0), kLanes);
    const kernels::RowScale scale = kernels::fp8_scale(largest);
    const int groups = kernels::row_groups(kFormat, args.hidden);
    auto* scales =
        reinterpret_cast<uint32_t*>(message.to + kernels::row_scales_offset(kFormat, args.hidden));
    if (first < groups * kernels::kFp8RowGroup) {
      uint32_t words[2] = {};
      WIDEEP_UNROLL
      for (int i = 0; i < kValues; ++i) {
        const uint32_t code = scale.to_code == 0.0f ? 0u : F8E4M3::round(sums[i] * scale.to_code);
        words[i / 4] |= code << (i % 4 * 8);
      }
      lane.store(reinterpret_cast<uint64_t*>(message.to + first),
                 static_cast<uint64_t>(words[1]) << 32 | words[0]);
      if (lane.lane() % kLanes == 0) {
        lane.store(scales + first / kernels::kFp8RowGroup, bits_of(scale.scale));
      }
    }
  }

  template <typename Lane>
  WIDEEP_DEVICE void encode_nvfp4(Lane& lane, const Message& message) const {
    uint32_t largest = 0;
    float sums[kValues];
    const int parts = num_parts();
    for (int part = 0; part < parts; ++part) {
      sum(lane, message, part * kPart + lane.lane() * kValues, sums);
      largest = largest_bits(sums, largest);
    }
    const kernels::RowScale of_row = kernels::nvfp4_scale(largest_of(lane, largest, kWarpSize));
    const int groups = kernels::row_groups(kFormat, args.hidden);
    auto* scales =
        reinterpret_cast<uint32_t*>(message.to + kernels::row_scales_offset(kFormat, args.hidden));
    for (int part = 0; part < parts; ++part) {
      const int first = part * kPart + lane.lane() * kValues;
      sum(lane, message, first, sums);
      const uint32_t code = encode_group(lane, message, first, sums, of_row, groups);
      // The codes of 4 scales are one word: those of 8 lanes.
      uint32_t word = 0;
      WIDEEP_UNROLL
      for (int i = 0; i < 4; ++i) word |= lane.shuffle(code, lane.lane() + 2 * i) << 8 * i;
      const int index = first / kernels::kNvfp4RowGroup / 4;
      if (lane.lane() % 8 == 0 && 4 * index < groups) {
        lane.store(scales + index, word | end_of_row(of_row.scale, index, groups));
      }
    }
    const auto words = static_cast<int>((kernels::row_bytes(kFormat, args.hidden) -
                                         kernels::row_scales_offset(kFormat, args.hidden)) /
                                        4);
    const int index = (groups + 3) / 4 + lane.lane();
    if (index < words) lane.store(scales + index, end_of_row(of_row.scale, index, groups));
  }

  // What a word of the scales has beyond their codes: the row's scale, at any byte, then zeros.
  WIDEEP_DEVICE static uint32_t end_of_row(float scale, int index, int groups) {
    uint32_t word = 0;
    WIDEEP_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int byte = 4 * index + i - groups;
      if (byte >= 0 && byte < 4) word |= (bits_of(scale) >> 8 * byte & 0xffu) << 8 * i;
    }
    return word;
  }

  // Two lanes have a group. The code of its scale, in the first of them; else 0.
  template <typename Lane>
  WIDEEP_DEVICE uint32_t encode_group(Lane& lane, const Message& message, int first,
                                      const float (&sums)[kValues], const kernels::RowScale& of_row,
                                      int groups) const {
    const uint32_t largest = largest_of(lane, largest_bits(sums, 0), 2);
    if (first >= groups * kernels::kNvfp4RowGroup) return 0;
    const bool has_codes = of_row.to_code != 0.0f;
    const uint32_t scale =
        has_codes ? F8E4M3::round(std::bit_cast<float>(largest) * of_row.to_code) : 0u;
    const float to_steps =
        scale == 0 ? 0.0f : kernels::kE2m1Steps / (e4m3_value(scale) * of_row.scale);
    uint32_t word = 0;
    WIDEEP_UNROLL
    for (int i = 0; i < kValues; ++i) {
      if (has_codes) word |= e2m1_code(nearest(sums[i] * to_steps)) << 4 * i;
    }
    lane.store(reinterpret_cast<uint32_t*>(message.to + first / 2), word);
    return lane.lane() % 2 == 0 ? scale : 0u;
  }

  // kernels::e2m1_of_steps, and the sign.
  WIDEEP_DEVICE static uint32_t e2m1_code(int steps) {
    constexpr auto kBounds = kernels::kE2m1Bounds;
    const int magnitude = steps < 0 ? -steps : steps;
    uint32_t code = steps < 0 ? 8u : 0u;
    WIDEEP_UNROLL
    for (int i = 0; i < 7; ++i) code += magnitude > kBounds[i] ? 1u : 0u;
    return code;
  }

  WIDEEP_DEVICE static int nearest(float value) {
#if defined(__CUDA_ARCH__)
    return __float2int_rn(value);
#else
    return static_cast<int>(std::nearbyint(value));
#endif
  }

  WIDEEP_DEVICE static float fused_multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return std::fma(a, b, c);
#endif
  }
};

}  // namespace wideep::cuda
