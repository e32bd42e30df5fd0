// SPDX-License-Identifier: Apache-2.0
//
// What decoders look up, as bf16 bits.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace wideep::kernels {

// The bf16 bits of e4m3 magnitude `code` (0 … 127) times `factor` (1 or 1.5): exact.
constexpr unsigned bf16_of_e4m3(unsigned code, float factor) {
  if (code == 0x7f) return 0x7fc0;
  const unsigned exponent = code >> 3, fraction = code & 7;
  float value = static_cast<float>(exponent == 0 ? fraction : 8 + fraction) * 0x1p-9f * factor;
  for (unsigned e = 1; e < exponent; ++e) value *= 2.0f;
  return std::bit_cast<uint32_t>(value) >> 16;
}

// Words by seven-bit codes, as low bytes and high bytes.
struct ByteTables {
  alignas(64) std::array<uint8_t, 128> low, high;
};
template <typename Word>
constexpr ByteTables byte_tables(Word word) {
  ByteTables tables{};
  for (unsigned code = 0; code < 128; ++code) {
    tables.low[code] = static_cast<uint8_t>(word(code) & 0xff);
    tables.high[code] = static_cast<uint8_t>(word(code) >> 8);
  }
  return tables;
}
inline constexpr ByteTables kE4m3 =
    byte_tables([](unsigned code) { return bf16_of_e4m3(code, 1.0f); });

// An e2m1 element times a scale, by one subtraction of bf16 bits that stops at zero. The largest
// element whose scale needs no lowering is `kTop` plus its exponent; a scale is known by how far
// below kTop its bits are; and the element 0, as zero bits, stays zero whatever is taken from it:
//
//   product = bits of kTop · element − (kTop − bits of scale)
//
// Of the magnitudes 0, ½, 1, 1½, 2, 3, 4 and 6 those with a fraction are a power of two of 1½ times
// the scale. For powers of two that is a fraction bit of the element; others are looked up both
// ways, and kRaisedFlag, the lowest bit of both sides of the subtraction, tells which way to take.
inline constexpr unsigned kTop = 253 << 7;
inline constexpr unsigned kRaisedFlag = 1;

constexpr unsigned e2m1_below_top(unsigned code, unsigned raise) {
  const unsigned magnitude = code & 7;
  if (magnitude == 0) return 0;
  const bool raised = magnitude > 1 && magnitude % 2 == 1;
  return ((code & 8) << 12) + kTop + (magnitude / 2) * 128 - 128 + (raised ? raise : 0);
}
// Twice over, so that a fifth index bit has no effect.
constexpr std::array<uint16_t, 32> e2m1_table(unsigned raise) {
  std::array<uint16_t, 32> words{};
  for (unsigned i = 0; i < 32; ++i) {
    words[i] = static_cast<uint16_t>(e2m1_below_top(i % 16, raise));
  }
  return words;
}
alignas(64) inline constexpr std::array<uint16_t, 32> kE2m1 = e2m1_table(kRaisedFlag);
alignas(64) inline constexpr std::array<uint16_t, 32> kE2m1OfPower = e2m1_table(0x40);

// kTop less the bits of e4m3 scales, and of 1½ times them.
constexpr unsigned e4m3_below_top(unsigned code, float factor) {
  const unsigned bits = bf16_of_e4m3(code, factor);
  return bits > kTop ? 0 : kTop - bits;
}
inline constexpr ByteTables kE4m3Below =
    byte_tables([](unsigned code) { return e4m3_below_top(code, 1.0f); });
inline constexpr ByteTables kE4m3RaisedBelow =
    byte_tables([](unsigned code) { return e4m3_below_top(code, 1.5f) + kRaisedFlag; });

}  // namespace wideep::kernels
