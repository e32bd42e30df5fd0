// SPDX-License-Identifier: Apache-2.0
//
// Computes the scales of coded rows (row_format.h) from the largest magnitude, given as the bits of
// a float: a maximum of integers does not depend on the order of operands, even with NaN.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace wideep::kernels {

// Largest magnitudes in [kMinCoded, kBeyondCoded) are coded: below, products of scales could be
// subnormal; above, decoded values could be infinite.
inline constexpr uint32_t kMinCoded = std::bit_cast<uint32_t>(0x1p-100f);
inline constexpr uint32_t kBeyondCoded = std::bit_cast<uint32_t>(0x1p127f);
inline constexpr uint32_t kNotFinite = 0x7fc00000u;  // NaN, the scale of values above

// scale: decoded = code · scale. to_code: code = round(value · to_code). If to_code is 0, all codes
// are zero, and the values are zero (scale 0) or NaN (scale NaN).
struct RowScale {
  float scale = 0.0f;
  float to_code = 0.0f;
};

constexpr RowScale fixed_scale(uint32_t largest_bits) {
  return {largest_bits < kMinCoded ? 0.0f : std::bit_cast<float>(kNotFinite), 0.0f};
}
constexpr bool has_scale(uint32_t largest_bits) {
  return largest_bits >= kMinCoded && largest_bits < kBeyondCoded;
}

// The scale of 128 values of an fp8 row. to_code is rounded to bf16 (8 significant bits), so that
// products with bf16 values are exact and a table can hold the codes of all 128 × 128 pairs of
// fractions. The largest magnitude still gets the largest code, 448: its product is at most 450.
constexpr RowScale fp8_scale(uint32_t largest_bits) {
  if (!has_scale(largest_bits)) return fixed_scale(largest_bits);
  const auto to_code = static_cast<float>(Bf16(448.0f / std::bit_cast<float>(largest_bits)));
  return {1.0f / to_code, to_code};
}

// The scale of an nvfp4 row. Its codes are the scales of groups: a group's max / 6 = code · scale.
constexpr RowScale nvfp4_scale(uint32_t largest_bits) {
  if (!has_scale(largest_bits)) return fixed_scale(largest_bits);
  const float largest = std::bit_cast<float>(largest_bits);
  return {largest / (6.0f * 448.0f), 448.0f / largest};
}

// e2m1 codes are computed in steps of 1/18: value · 18 / scale is rounded to an integer (ties to
// even), and a table maps it to the code. So one conversion instruction serves all magnitudes.
// Values within half a step of 2.5, 3.5 or 5, the middles between large codes, may get the farther
// code. At the middles 0.25, 0.75, 1.25 and 1.75 the steps round exactly as e2m1 does, including
// ties to even.
inline constexpr float kE2m1Steps = 18.0f;
inline constexpr int kMaxE2m1Steps = 127;  // more steps have the same code
// The largest number of steps of each code except the last.
inline constexpr std::array<int, 7> kE2m1Bounds = {4, 13, 22, 31, 45, 62, 90};
constexpr uint8_t e2m1_of_steps(int magnitude) {
  uint8_t code = 0;
  for (const int bound : kE2m1Bounds) code += magnitude > bound ? 1 : 0;
  return code;
}

}  // namespace wideep::kernels
