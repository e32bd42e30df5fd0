// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

namespace wideep::engine {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014): a well-mixed function of a counter.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Uniform in [0, 1).
double uniform(uint64_t seed, int request, int step) {
  const uint64_t bits =
      mix(mix(mix(seed) ^ static_cast<uint64_t>(request)) ^ static_cast<uint64_t>(step));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// Vocabularies have 10^5 tokens: the two passes over all logits are written so that compilers make
// vectors of kLanes, in an order that no instruction set changes.
constexpr size_t kLanes = 16;

// The first of the largest.
int32_t largest_of(std::span<const float> logits) {
  std::array<float, kLanes> lanes;
  lanes.fill(logits[0]);
  const size_t whole = logits.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      lanes[j] = logits[i + j] > lanes[j] ? logits[i + j] : lanes[j];
    }
  }
  float largest = *std::max_element(lanes.begin(), lanes.end());
  for (size_t i = whole; i < logits.size(); ++i) largest = std::max(largest, logits[i]);
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
}

// e^x for x <= 0 to within 2e-7 of itself; 0 below −87. x = n ln 2 + r, |r| <= ln 2 / 2; e^r by its
// Taylor series, which ends at r^6 / 720.
float exp_of_negative(float x) {
  constexpr float kRound = 0x1.8p23f;  // added and taken away: the nearest integer
  const float clamped = x > -87.0f ? x : -87.0f;
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const uint32_t scaled = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23);
  return x > -87.0f ? std::bit_cast<float>(scaled) : 0.0f;
}

// In floats within a block, in double from block to block.
double log_sum_exp(std::span<const float> logits, float largest) {
  constexpr size_t kBlock = 64 * kLanes;
  double sum = 0.0;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::span<const float> block =
        logits.subspan(begin, std::min(kBlock, logits.size() - begin));
    std::array<float, kLanes> lanes{};
    const size_t whole = block.size() / kLanes * kLanes;
    for (size_t i = 0; i < whole; i += kLanes) {
      for (size_t j = 0; j < kLanes; ++j) lanes[j] += exp_of_negative(block[i + j] - largest);
    }
    for (size_t i = whole; i < block.size(); ++i) sum += exp_of_negative(block[i] - largest);
    sum += std::accumulate(lanes.begin(), lanes.end(), 0.0);
  }
  return largest + std::log(sum);
}

// Token ids by descending logit, ties to the lower id; only as many as may be sampled.
std::vector<int32_t> candidates(std::span<const float> logits, int top_k) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t count =
      top_k > 0 ? std::min<size_t>(static_cast<size_t>(top_k), order.size()) : order.size();
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  order.resize(count);
  return order;
}

// The smallest set of most likely candidates whose probability reaches top_p, and one of them
// drawn.
int32_t draw(std::span<const float> logits, const SamplingParams& params, double random) {
  const std::vector<int32_t> order = candidates(logits, params.top_k);
  std::vector<double> weights(order.size());
  const double largest = logits[order[0]];
  double total = 0.0;
  for (size_t i = 0; i < order.size(); ++i) {
    total += weights[i] = std::exp((logits[order[i]] - largest) / params.temperature);
  }
  double kept = 0.0;
  size_t count = 0;
  while (count < order.size() && kept < params.top_p * total) kept += weights[count++];
  double target = random * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    if (target < weights[i]) return order[i];
    target -= weights[i];
  }
  return order[count - 1];
}

}  // namespace

std::vector<Sampled> most_likely(std::span<const float> logits, int count) {
  const auto before = [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  std::vector<int32_t> best;  // ordered; few, so that most logits are only compared with the last
  for (int32_t token = 0; token < static_cast<int32_t>(logits.size()); ++token) {
    const bool full = static_cast<int>(best.size()) == count;
    if (full && !before(token, best.back())) continue;
    if (full) best.pop_back();
    best.insert(std::upper_bound(best.begin(), best.end(), token, before), token);
  }
  const double all = log_sum_exp(logits, logits[best[0]]);
  std::vector<Sampled> likely;
  for (const int32_t token : best) {
    likely.push_back({token, static_cast<float>(logits[token] - all)});
  }
  return likely;
}

Sampled sample(std::span<const float> logits, const SamplingParams& params, int request, int step) {
  const int32_t best = largest_of(logits);
  Sampled sampled{best, 0.0f};
  if (params.temperature > 0.0f) {
    sampled.token = draw(logits, params, uniform(params.seed, request, step));
  }
  sampled.log_probability =
      static_cast<float>(logits[sampled.token] - log_sum_exp(logits, logits[best]));
  return sampled;
}

}  // namespace wideep::engine
