// SPDX-License-Identifier: Apache-2.0
//
// The 4-bit elements and 8-bit scales of the block formats MXFP4 and NVFP4 (OCP Microscaling
// Formats 1.0): e2m1 is a sign and one of eight magnitudes, e8m0 is a power of two.
//
// Thread safety: pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace wideep {

inline constexpr float kE2m1Magnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
inline constexpr float kE2m1Max = 6.0f;

// The value of the lower four bits of `code`.
constexpr float float_from_e2m1(unsigned code) {
  const float magnitude = kE2m1Magnitudes[code & 7u];
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

// Round to nearest, ties to the even code; magnitudes above 6 become 6.
inline uint8_t e2m1_from_float(float value) {
  // Counts the midpoints between magnitudes that lie below. Where the code above a midpoint is
  // even, a value on the midpoint counts too (>=).
  const float a = std::abs(value);
  const int magnitude = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) +
                        (a >= 3.5f) + (a > 5.0f);
  return static_cast<uint8_t>(magnitude | (std::signbit(value) ? 8 : 0));
}

// 2^(code − 127); 255 is a NaN.
inline float float_from_e8m0(uint8_t code) {
  if (code == 0) return 0x1p-127f;  // a subnormal float: its exponent field is 0
  return std::bit_cast<float>(code == 255 ? 0x7fc00000u : static_cast<uint32_t>(code) << 23);
}

}  // namespace wideep
