// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "measure/limits/loops.h"

namespace wideep::measure::limits {
namespace {

uint64_t read(const std::byte* data, size_t bytes) {
  uint64_t sums[8] = {};
  for (size_t at = 0; at < bytes; at += sizeof sums) {
    uint64_t words[8];
    std::memcpy(words, data + at, sizeof words);
    for (int i = 0; i < 8; ++i) sums[i] += words[i];
  }
  uint64_t sum = 0;
  for (const uint64_t each : sums) sum += each;
  return sum;
}

void copy(const std::byte* from, std::byte* to, size_t bytes) { std::memcpy(to, from, bytes); }

constexpr int kLanes = 32;  // enough independent chains for the compiler to fill vectors with

uint64_t f32(int64_t rounds) {
  float sums[kLanes];
  for (int i = 0; i < kLanes; ++i) sums[i] = static_cast<float>(i);
  for (int64_t round = 0; round < rounds; ++round) {
    for (float& sum : sums) sum = sum * 0.5f + 1.0f;
  }
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  return static_cast<uint64_t>(total);
}

}  // namespace

const Loops* portable_loops() {
  static constexpr Loops kTable = {
      .supported = [] { return true; }, .read = read, .copy = copy, .f32 = {f32, 2 * kLanes}};
  return &kTable;
}

}  // namespace wideep::measure::limits
