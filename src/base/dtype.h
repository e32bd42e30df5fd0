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
