// SPDX-License-Identifier: Apache-2.0
//
// What decoders look up, as bf16 bits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/microscaling.h"
#include "kernels/e5m3.h"

namespace wideep::kernels {

// The bf16 bits of e4m3 magnitude `code` (0 … 127).
constexpr unsigned bf16_of_e4m3(unsigned code) {
  if (code == 0x7f) return 0x7fc0;
  const unsigned exponent = code >> 3, fraction = code & 7;
  float value = static_cast<float>(exponent == 0 ? fraction : 8 + fraction) * 0x1p-9f;
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
inline constexpr ByteTables kE4m3 = byte_tables([](unsigned code) { return bf16_of_e4m3(code); });

// Words by four-bit codes, twice over, so that a fifth index bit has no effect.
template <typename Word>
constexpr std::array<uint16_t, 32> nibble_table(Word word) {
  std::array<uint16_t, 32> words{};
  for (unsigned i = 0; i < 32; ++i) words[i] = static_cast<uint16_t>(word(i % 16));
  return words;
}
alignas(64) inline constexpr std::array<uint16_t, 32> kE2m1Values = nibble_table([](unsigned code) {
  return std::bit_cast<uint32_t>(float_from_e2m1(code)) >> 16;
});

// An e2m1 element times a scale, by one subtraction of bf16 bits that stops at zero. The largest
// element whose scale needs no lowering is `kTop` plus its exponent; a scale is known by how far
// below kTop its bits are; and the element 0, as zero bits, stays zero whatever is taken from it:
//
//   product = bits of kTop · element − (kTop − bits of scale)
//
// Of the magnitudes 0, ½, 1, 1½, 2, 3, 4 and 6 those with a fraction are a power of two of 1½ times
// the scale. For powers of two that is a fraction bit of the element; others have two numbers to
// subtract, and kRaisedFlag, the lowest bit of both sides, tells which to take.
inline constexpr unsigned kTop = 253 << 7;
inline constexpr unsigned kRaisedFlag = 1;

constexpr unsigned e2m1_below_top(unsigned code, unsigned raise) {
  const unsigned magnitude = code & 7;
  if (magnitude == 0) return 0;
  const bool raised = magnitude > 1 && magnitude % 2 == 1;
  return ((code & 8) << 12) + kTop + (magnitude / 2) * 128 - 128 + (raised ? raise : 0);
}
constexpr std::array<uint16_t, 32> e2m1_table(unsigned raise) {
  return nibble_table([raise](unsigned code) { return e2m1_below_top(code, raise); });
}
alignas(64) inline constexpr std::array<uint16_t, 32> kE2m1 = e2m1_table(kRaisedFlag);
alignas(64) inline constexpr std::array<uint16_t, 32> kE2m1OfPower = e2m1_table(0x40);

// The same less the bits of an e5m3 scale, and how much less that is for 1½ times the scale, in the
// steps of a bf16's last bit: 64 + 8 · fraction, or 96 − 4 · fraction where the exponent grows too.
inline constexpr unsigned kTopOfE5m3 = kTop - kE5m3Offset;
constexpr std::array<uint8_t, 16> raise_of_fractions() {
  std::array<uint8_t, 16> raise{};
  for (unsigned i = 0; i < 8; ++i) {
    raise[i] = static_cast<uint8_t>(std::min(64 + 8 * i, 96 - 4 * i) - kRaisedFlag);
  }
  return raise;
}
alignas(16) inline constexpr std::array<uint8_t, 16> kRaiseOfFraction = raise_of_fractions();

}  // namespace wideep::kernels
