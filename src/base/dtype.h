// SPDX-License-Identifier: Apache-2.0
//
// Element types and the 16-bit floats' conversions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace wideep {

enum class Dtype : uint8_t { kF32, kBf16, kF16, kF8E4M3, kI64, kI32, kI16, kI8, kU8, kBool, kF64 };

constexpr size_t dtype_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
    case Dtype::kI64:
      return 8;
    case Dtype::kF32:
    case Dtype::kI32:
      return 4;
    case Dtype::kBf16:
    case Dtype::kF16:
    case Dtype::kI16:
      return 2;
    case Dtype::kF8E4M3:
    case Dtype::kI8:
    case Dtype::kU8:
    case Dtype::kBool:
      return 1;
  }
  return 0;
}

// The names that safetensors headers use: "F32", "BF16", "F8_E4M3", "I64", ...
std::string_view dtype_name(Dtype dtype);
std::optional<Dtype> dtype_from_name(std::string_view name);

// Brain float: the upper half of a float32.
struct Bf16 {
  uint16_t bits = 0;

  Bf16() = default;
  // Round to nearest, ties to even; a NaN stays a (quiet) NaN.
  explicit Bf16(float value) : bits(round(value)) {}
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

  static uint16_t round(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};
static_assert(sizeof(Bf16) == 2);

// The 8-bit float of OCP's FP8 format e4m3: bias 7, no infinity, NaN 0x7f, largest 448.
struct F8E4M3 {
  uint8_t bits = 0;

  F8E4M3() = default;
  // Round to nearest, ties to even; magnitudes beyond 448 (infinity too) become 448; a NaN stays
  // one. Without branches, so that loops over it become vector code.
  explicit F8E4M3(float value) : bits(round(value)) {}
  explicit operator float() const {
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fu);
    // Subnormal: as 2^-6 × 1.fraction, less 2^-6.
    const uint32_t one = 121u << 23;
    const float small = std::bit_cast<float>(one | (magnitude << 20)) - std::bit_cast<float>(one);
    const uint32_t large = (magnitude << 20) + (120u << 23);  // bias 7 there and 127 here
    uint32_t u = magnitude < 8 ? std::bit_cast<uint32_t>(small) : large;
    u = magnitude == 0x7fu ? 0x7fc00000u : u;
    return std::bit_cast<float>(u | static_cast<uint32_t>(bits & 0x80u) << 24);
  }

  static uint8_t round(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = u & 0x7fffffffu;
    // Below 2^-6 the steps are 2^-9: adding 2^14, whose last bit is worth that, rounds to them.
    const float anchor = 16384.0f;
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + anchor) -
                           std::bit_cast<uint32_t>(anchor);
    const uint32_t large = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
    uint32_t rounded = magnitude < (121u << 23) ? small : large;
    rounded = magnitude >= 0x43e00000u ? 0x7eu : rounded;  // 448 and beyond
    rounded = magnitude > 0x7f800000u ? 0x7fu : rounded;
    return static_cast<uint8_t>(rounded | (u >> 24 & 0x80u));
  }
};
static_assert(sizeof(F8E4M3) == 1);

// IEEE half to float32, exactly. Built from integer steps and one subtraction of normal numbers, so
// that the flush-to-zero mode that kernels may set cannot eat subnormal halves.
constexpr float float_from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  uint32_t bits = magnitude + (112u << 23);  // the exponent's bias is 15 there and 127 here
  if (magnitude >= (31u << 23)) {
    bits = magnitude + (224u << 23);  // infinity and NaN: 31 becomes 255
  } else if (magnitude < (1u << 23)) {
    // Subnormal: as the fraction of 2^-14 × 1.fraction, less that one.
    const uint32_t one = 113u << 23;
    bits =
        std::bit_cast<uint32_t>(std::bit_cast<float>(one | magnitude) - std::bit_cast<float>(one));
  }
  return std::bit_cast<float>(sign | bits);
}

}  // namespace wideep
