// SPDX-License-Identifier: Apache-2.0
//
// The scales of coded rows (row_format.h) from the largest magnitude below them, which comes as the
// bits of a float: integers have one maximum in whatever order, NaN included.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace wideep::kernels {

// So small that no product of scales is subnormal, so large that no decoded value is infinite.
inline constexpr uint32_t kLeastCoded = std::bit_cast<uint32_t>(0x1p-100f);
inline constexpr uint32_t kBeyondCoded = std::bit_cast<uint32_t>(0x1p127f);
inline constexpr uint32_t kNotFinite = 0x7fc00000u;  // the scale of what has an infinity or a NaN

// scale: decoded = code · scale. to_code: code = rounded(value · to_code); 0 where all codes are
// zero, and the scale says whether they stand for 0 or NaN.
struct RowScale {
  float scale = 0.0f;
  float to_code = 0.0f;
};

inline RowScale fixed_scale(uint32_t largest_bits) {
  return {largest_bits < kLeastCoded ? 0.0f : std::bit_cast<float>(kNotFinite), 0.0f};
}
inline bool has_scale(uint32_t largest_bits) {
  return largest_bits >= kLeastCoded && largest_bits < kBeyondCoded;
}

// Of 128 values of an fp8 row. to_code has the 8 significant bits of a bf16, so that products with
// bf16 values are exact, and the codes of all 128 × 128 pairs of fractions can be kept in a table.
// The largest magnitude still becomes 448, the largest code: it is multiplied to 450 at most.
inline RowScale fp8_scale(uint32_t largest_bits) {
  if (!has_scale(largest_bits)) return fixed_scale(largest_bits);
  const auto to_code = static_cast<float>(Bf16(448.0f / std::bit_cast<float>(largest_bits)));
  return {1.0f / to_code, to_code};
}

// Of an nvfp4 row, whose codes are the maxima of its groups: one has max / 6 = code · scale.
inline RowScale nvfp4_scale(uint32_t largest_bits) {
  if (!has_scale(largest_bits)) return fixed_scale(largest_bits);
  const float largest = std::bit_cast<float>(largest_bits);
  return {largest / (6.0f * 448.0f), 448.0f / largest};
}

// Codes of an nvfp4 row by way of whole steps, 18 to a unit: value · 18 / scale, rounded to an
// integer (ties to even) and looked up. One conversion rounds all magnitudes alike; what lies
// within half a step of 2.5, 3.5 or 5, between two codes, may get the further one. At 0.25,
// 0.75, 1.25 and 1.75 two steps part as the codes do, ties to even included.
inline constexpr float kE2m1Steps = 18.0f;
inline constexpr int kMostE2m1Steps = 127;  // beyond 6: like it
// The most steps of each code but the last.
inline constexpr std::array<int, 7> kE2m1Bounds = {4, 13, 22, 31, 45, 62, 90};
constexpr uint8_t e2m1_of_steps(int magnitude) {
  uint8_t code = 0;
  for (const int bound : kE2m1Bounds) code += magnitude > bound ? 1 : 0;
  return code;
}

}  // namespace wideep::kernels
