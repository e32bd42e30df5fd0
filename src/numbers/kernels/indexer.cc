// SPDX-License-Identifier: Apache-2.0
#include "kernels/indexer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace wideep::kernels {
namespace {

constexpr size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// An integer in the order of the scores: larger for larger scores, 0 for NaN.
uint32_t rank_of(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // −0 + 0 is 0
  const auto all_if_negative = static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
  return std::isnan(score) ? 0 : bits ^ (all_if_negative | 0x80000000u);
}

// What is known of the rank of the k-th largest score.
struct Threshold {
  uint32_t bits = 0;  // its upper bits; lower ones are zero
  uint32_t mask = 0;  // which bits those are
  int left = 0;       // how many of the scores with these bits are among the k largest
};

// Finds kBits more bits, those from `shift` on: counts the scores that have the known bits by these
// bits, then goes down from the largest.
template <int kBits>
void refine(const float* scores, int n, int shift, Threshold* threshold) {
  constexpr uint32_t kDigits = uint32_t{1} << kBits;
  // Neighbours often have the same digit: counting them apart, no addition waits for the one
  // before.
  constexpr int kApart = 4;
  std::array<std::array<int, kDigits>, kApart> parts = {};
  for (int i = 0; i < n; ++i) {
    const uint32_t rank = rank_of(scores[i]);
    if ((rank & threshold->mask) != threshold->bits) continue;
    ++parts[static_cast<size_t>(i % kApart)][rank >> shift & (kDigits - 1)];
  }
  std::array<int, kDigits>& counts = parts[0];
  for (size_t part = 1; part < kApart; ++part) {
    for (size_t digit = 0; digit < kDigits; ++digit) counts[digit] += parts[part][digit];
  }
  uint32_t digit = kDigits - 1;
  for (; counts[digit] < threshold->left; --digit) threshold->left -= counts[digit];
  threshold->bits |= digit << shift;
  threshold->mask |= (kDigits - 1) << shift;
}

}  // namespace

size_t index_scratch_bytes(const IndexArgs& args) {
  const size_t key = static_cast<size_t>(padded_key_dim(args.dim));
  return aligned(static_cast<size_t>(args.num_rows()) * key * sizeof(float)) +
         aligned(kPageTokens * key * sizeof(float));
}

int select_top(const float* scores, int n, int k, int32_t* positions) {
  Threshold threshold{.left = std::min(n, k)};
  if (threshold.left <= 0) return 0;
  if (k < n) {
    refine<11>(scores, n, 21, &threshold);
    refine<11>(scores, n, 10, &threshold);
    refine<10>(scores, n, 0, &threshold);
  } else {
    threshold.left = n;  // all ranks are at least 0
  }
  int count = 0;
  for (int i = 0; i < n; ++i) {
    const uint32_t rank = rank_of(scores[i]);
    const bool equal = rank == threshold.bits && threshold.left > 0;
    if (rank <= threshold.bits && !equal) continue;
    threshold.left -= equal;
    positions[count++] = i;
  }
  return count;
}

}  // namespace wideep::kernels
