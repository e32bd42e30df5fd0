// SPDX-License-Identifier: Apache-2.0
//
// The scales of coded rows (row_format.h) from the largest magnitude below them, which comes as the
// bits of a float: integers have one maximum in whatever order, NaN included.
#pragma once

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

}  // namespace wideep::kernels
