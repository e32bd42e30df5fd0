// SPDX-License-Identifier: Apache-2.0
//
// The scale format of packed nvfp4 matrices: e4m3 with one more exponent bit instead of the sign,
// which scales do not need. So every e4m3 scale, even a subnormal one, is a normal number, and a
// shift and an addition convert it to float32.
//
//   0         0
//   8 … 255   (1 + fraction / 8) · 2^(exponent − 10), exponent in the upper five bits
#pragma once

#include <bit>
#include <cstdint>

namespace wideep::kernels {

// The float32 bits of e5m3 `code` (other than 0) are code · 2^20 + kE5m3Offset.
inline constexpr uint32_t kE5m3Offset = 117u << 23;

// Converts an e4m3, ignoring its sign; NaN becomes 480.
constexpr uint8_t e5m3_from_e4m3(uint8_t e4m3) {
  const unsigned code = e4m3 & 0x7fu;
  if (code == 0) return 0;
  if (code >= 8) return static_cast<uint8_t>(code + 24);
  const auto exponent = static_cast<unsigned>(std::bit_width(code)) - 1;  // subnormal: code · 2^-9
  return static_cast<uint8_t>((exponent + 1) << 3 | (code << (3 - exponent) & 7));
}

constexpr float float_from_e5m3(uint8_t code) {
  if (code == 0) return 0.0f;
  return std::bit_cast<float>((static_cast<uint32_t>(code) << 20) + kE5m3Offset);
}

}  // namespace wideep::kernels
