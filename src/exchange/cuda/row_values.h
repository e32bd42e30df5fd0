// SPDX-License-Identifier: Apache-2.0
//
// Decoding of rows (kernels/row_format.h) in kernels: the values of 16 bytes of a row.
//
// Thread safety: pure functions.
#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"
#include "cuda/lane.h"
#include "kernels/row_format.h"

namespace wideep::cuda {

using kernels::RowFormat;

// The number of values in a Vector.
constexpr int values_of_vector(RowFormat format) {
  switch (format) {
    case RowFormat::kF32:
      return 4;
    case RowFormat::kBf16:
      return 8;
    case RowFormat::kFp8:
      return 16;
    case RowFormat::kNvfp4:
      return 32;
  }
  return 0;
}

// As float_from_e2m1 (base/microscaling.h), without its table: kernels have no tables of the host.
WIDEEP_HOST_DEVICE float e2m1_value(uint32_t code) {
  const uint32_t magnitude = code & 7u;
  const uint32_t large = ((magnitude >> 1) + 126u) << 23 | (magnitude & 1u) << 22;
  const uint32_t bits = magnitude < 2 ? (magnitude == 0 ? 0u : 126u << 23) : large;
  return std::bit_cast<float>(bits | (code & 8u) << 28);
}

WIDEEP_HOST_DEVICE float e4m3_value(uint32_t code) {
  F8E4M3 value;
  value.bits = static_cast<uint8_t>(code);
  return static_cast<float>(value);
}

WIDEEP_HOST_DEVICE float bf16_value(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

// The i-th value of a vector, or of coded rows its code. i is a constant where it matters, so that
// the vector stays in registers.
template <RowFormat kFormat>
WIDEEP_HOST_DEVICE float code_of(const Vector& vector, int i) {
  if constexpr (kFormat == RowFormat::kF32) {
    return std::bit_cast<float>(vector.words[i]);
  } else if constexpr (kFormat == RowFormat::kBf16) {
    return bf16_value(vector.words[i / 2] >> (i % 2 * 16) & 0xffffu);
  } else if constexpr (kFormat == RowFormat::kFp8) {
    return e4m3_value(vector.words[i / 4] >> (i % 4 * 8) & 0xffu);
  } else {
    return e2m1_value(vector.words[i / 8] >> (i % 8 * 4) & 0xfu);
  }
}

// What the codes of a vector are multiplied with: one scale for each `group` codes of it.
struct VectorScales {
  float of[2];  // of codes 0 … 15, and of 16 … 31
};

// A float at any address.
template <typename Lane>
WIDEEP_DEVICE float load_float(Lane& lane, const std::byte* from) {
  if (reinterpret_cast<uint64_t>(from) % sizeof(float) == 0) {
    return lane.load(reinterpret_cast<const float*>(from));
  }
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) {
    bits |= static_cast<uint32_t>(lane.load(reinterpret_cast<const uint8_t*>(from) + i)) << 8 * i;
  }
  return std::bit_cast<float>(bits);
}

// The scales of the vector that begins with value `first` of a coded row. Beyond `hidden` there are
// none, and codes there are not used.
template <RowFormat kFormat, typename Lane>
WIDEEP_DEVICE VectorScales scales_of(Lane& lane, const std::byte* row, int hidden, int first) {
  const std::byte* scales = row + kernels::row_scales_offset(kFormat, hidden);
  if constexpr (kFormat == RowFormat::kFp8) {
    const auto* of_groups = reinterpret_cast<const float*>(scales);
    const float scale = lane.load(of_groups + first / kernels::kFp8RowGroup);
    return {scale, scale};
  } else {
    const float of_row = load_float(lane, row + kernels::row_scales_end(kFormat, hidden));
    const auto* codes = reinterpret_cast<const uint8_t*>(scales);
    const int group = first / kernels::kNvfp4RowGroup;
    const int last = kernels::row_groups(kFormat, hidden) - 1;
    const int next = group < last ? group + 1 : last;
    return {e4m3_value(lane.load(codes + group)) * of_row,
            e4m3_value(lane.load(codes + next)) * of_row};
  }
}

// 16 bytes of a row of plain values, of which only the first num_bytes exist.
template <typename Unit, typename Lane>
WIDEEP_DEVICE Vector load_units(Lane& lane, const std::byte* from, int num_bytes) {
  Vector vector{};
  const auto* units = reinterpret_cast<const Unit*>(from);
  constexpr int kUnits = 16 / static_cast<int>(sizeof(Unit));
  constexpr int kUnitsOfWord = 4 / static_cast<int>(sizeof(Unit));
  WIDEEP_UNROLL
  for (int i = 0; i < kUnits; ++i) {
    if ((i + 1) * static_cast<int>(sizeof(Unit)) > num_bytes) continue;
    const auto unit = static_cast<uint32_t>(lane.load(units + i));
    vector.words[i / kUnitsOfWord] |= unit
                                      << (i % kUnitsOfWord * static_cast<int>(sizeof(Unit)) * 8);
  }
  return vector;
}

}  // namespace wideep::cuda
