// SPDX-License-Identifier: Apache-2.0
//
// What decoders look up, as bf16 bits.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace wideep::kernels {

// The bf16 bits of e4m3 magnitude `code` (0 … 127) times `factor` (1 or 1.5): exact.
constexpr uint16_t bf16_of_e4m3(unsigned code, float factor) {
  if (code == 0x7f) return 0x7fc0;
  const unsigned exponent = code >> 3, fraction = code & 7;
  float value = static_cast<float>(exponent == 0 ? fraction : 8 + fraction) * 0x1p-9f * factor;
  for (unsigned e = 1; e < exponent; ++e) value *= 2.0f;
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

// Those of all magnitudes, as low bytes and high bytes.
struct ByteTables {
  alignas(64) std::array<uint8_t, 128> low, high;
};
constexpr ByteTables e4m3_tables(float factor) {
  ByteTables tables{};
  for (unsigned code = 0; code < 128; ++code) {
    tables.low[code] = static_cast<uint8_t>(bf16_of_e4m3(code, factor) & 0xff);
    tables.high[code] = static_cast<uint8_t>(bf16_of_e4m3(code, factor) >> 8);
  }
  return tables;
}
inline constexpr ByteTables kE4m3 = e4m3_tables(1.0f);
inline constexpr ByteTables kE4m3Raised = e4m3_tables(1.5f);

// An e2m1 element times a scale, in integer steps on bf16 bits: of the magnitudes 0, ½, 1, 1½, 2,
// 3, 4 and 6, those with a fraction are a power of two of the scale raised by one half, the others
// of the scale itself, and a power of two moves the exponent only:
//
//   product = (raised ? bits of 1½ · scale : bits of scale) + step      (0 where the element is 0)
//
// Steps carry two flags in their lowest bits, which whoever adds them has taken off the other side.
inline constexpr int kRaisedFlag = 1, kNonzeroFlag = 2;

constexpr uint16_t e2m1_step(unsigned code) {
  const unsigned magnitude = code & 7;
  if (magnitude == 0) return 0;
  const bool raised = magnitude > 1 && magnitude % 2 == 1;
  const int exponent = static_cast<int>(magnitude / 2) - 1;
  return static_cast<uint16_t>(((code & 8) << 12) + static_cast<unsigned>(exponent * 128) +
                               kNonzeroFlag + (raised ? kRaisedFlag : 0));
}
// The same where the scale is a power of two: raising it sets its highest fraction bit.
constexpr uint16_t e2m1_step_of_power(unsigned code) {
  const uint16_t step = e2m1_step(code);
  return static_cast<uint16_t>((step & kRaisedFlag) != 0 ? step - kRaisedFlag + 0x40 : step);
}

// Twice over, so that a fifth index bit has no effect.
constexpr std::array<uint16_t, 32> e2m1_steps(uint16_t (*step)(unsigned)) {
  std::array<uint16_t, 32> steps{};
  for (unsigned i = 0; i < 32; ++i) steps[i] = step(i % 16);
  return steps;
}
alignas(64) inline constexpr std::array<uint16_t, 32> kE2m1Steps = e2m1_steps(e2m1_step);
alignas(64) inline constexpr std::array<uint16_t, 32> kE2m1StepsOfPower =
    e2m1_steps(e2m1_step_of_power);

}  // namespace wideep::kernels
