// SPDX-License-Identifier: Apache-2.0
//
// Conversion to IEEE half floats; the other direction is float_from_f16 (dtype.h).
//
// Thread safety: pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace wideep {

// To nearest, ties to even; from 65520 on infinity; a NaN stays a NaN.
constexpr uint16_t f16_from_float(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
  uint32_t half = ((magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13) - (112u << 10);
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= std::bit_cast<uint32_t>(65520.0f)) {
    half = 0x7c00u;
  } else if (magnitude < (113u << 23)) {
    // Below 2^-14 halves are 2^-24 apart, which the last bit of a float near 0.5 is worth too.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
           std::bit_cast<uint32_t>(0.5f);
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace wideep
