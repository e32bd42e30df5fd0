// SPDX-License-Identifier: Apache-2.0
//
// The lookup tables of decoders.
#pragma once

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

// 16-bit words indexed by seven-bit codes, as a table of low bytes and a table of high bytes.
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

// The bf16 bits of e2m1 elements, repeated twice, so that a fifth index bit has no effect.
alignas(64) inline constexpr std::array<uint16_t, 32> kE2m1Values = [] {
  std::array<uint16_t, 32> words{};
  for (unsigned i = 0; i < 32; ++i) {
    words[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(float_from_e2m1(i)) >> 16);
  }
  return words;
}();

// The int8 operand of an e2m1 element: twice its value, which is an integer, plus kE2m1Offset, so
// that it is not negative. Repeated four times, so that two more index bits have no effect.
inline constexpr int kE2m1Offset = 12;
constexpr std::array<uint8_t, 64> e2m1_table() {
  std::array<uint8_t, 64> bytes{};
  for (unsigned i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(static_cast<int>(2.0f * float_from_e2m1(i)) + kE2m1Offset);
  }
  return bytes;
}
alignas(64) inline constexpr std::array<uint8_t, 64> kE2m1 = e2m1_table();

// The float32 bits of half an e5m3 scale are its code · 2^20 plus this.
inline constexpr uint32_t kHalfE5m3Offset = kE5m3Offset - (1u << 23);

}  // namespace wideep::kernels
