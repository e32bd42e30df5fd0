// SPDX-License-Identifier: Apache-2.0
//
// Element types, and conversions of the 8-bit and 16-bit floats: constexpr, and so callable from
// CUDA kernels, too.
//
// Thread safety: pure functions and plain values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace wideep {

enum class Dtype : uint8_t {
  kF32,
  kBf16,
  kF16,
  kF8E4M3,
  kF8E8M0,  // a power of two: float_from_e8m0 (microscaling.h)
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kF64
};

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
    case Dtype::kF8E8M0:
    case Dtype::kI8:
    case Dtype::kU8:
    case Dtype::kBool:
      return 1;
  }
  return 0;
}

// Names as in safetensors headers: "F32", "BF16", "F8_E4M3", "I64", ...
std::string_view dtype_name(Dtype dtype);
std::optional<Dtype> dtype_from_name(std::string_view name);

// Brain float: the upper half of a float32.
struct Bf16 {
  uint16_t bits = 0;

  Bf16() = default;
  // Round to nearest, ties to even; a NaN stays a (quiet) NaN.
  explicit constexpr Bf16(float value) : bits(round(value)) {}
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }

  static constexpr uint16_t round(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    // A NaN: bit 6 makes it quiet, and keeps it a NaN if its payload lies in the lower half alone.
    if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
    return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};
static_assert(sizeof(Bf16) == 2);

// The 8-bit float of OCP's FP8 format e4m3: bias 7, no infinity, NaN 0x7f, largest 448.
struct F8E4M3 {
  uint8_t bits = 0;

  F8E4M3() = default;
  // Round to nearest, ties to even; magnitudes above 448, infinity too, become 448; a NaN stays a
  // NaN. Has no branches, so that the compiler vectorises loops over it.
  explicit constexpr F8E4M3(float value) : bits(round(value)) {}
  explicit constexpr operator float() const {
    const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fu);
    // A subnormal is fraction × 2^-6: build 2^-6 × 1.fraction and subtract 2^-6.
    const uint32_t one = 121u << 23;
    const float small = std::bit_cast<float>(one | (magnitude << 20)) - std::bit_cast<float>(one);
    const uint32_t large = (magnitude << 20) + (120u << 23);  // from bias 7 to bias 127
    uint32_t u = magnitude < 8 ? std::bit_cast<uint32_t>(small) : large;
    u = magnitude == 0x7fu ? 0x7fc00000u : u;
    return std::bit_cast<float>(u | static_cast<uint32_t>(bits & 0x80u) << 24);
  }

  static constexpr uint8_t round(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = u & 0x7fffffffu;
    // Below 2^-6 the codes are 2^-9 apart. The last bit of a float near 2^14 is worth 2^-9 too, so
    // adding 2^14 rounds to a multiple of it.
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

// IEEE half to float32, exactly. Uses integer operations and one subtraction of normal numbers, so
// that it is right for subnormal halves even in the flush-to-zero mode, which kernels may set.
constexpr float float_from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
  uint32_t bits = magnitude + (112u << 23);  // from bias 15 to bias 127
  if (magnitude >= (31u << 23)) {
    bits = magnitude + (224u << 23);  // infinity and NaN: exponent 31 becomes 255
  } else if (magnitude < (1u << 23)) {
    // A subnormal is fraction × 2^-14: build 2^-14 × 1.fraction and subtract 2^-14.
    const uint32_t one = 113u << 23;
    bits =
        std::bit_cast<uint32_t>(std::bit_cast<float>(one | magnitude) - std::bit_cast<float>(one));
  }
  return std::bit_cast<float>(sign | bits);
}

}  // namespace wideep
