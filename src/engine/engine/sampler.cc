// SPDX-License-Identifier: Apache-2.0
//
// Greedy sampling is one argmax. Otherwise the tokens are sorted as far as top_k asks, weighed, cut
// by min_p and top_p, and one is drawn by the inverse of the cumulative distribution. Sums are
// doubles in the order of the sorted tokens, with ties by id, so that equal logits give an equal
// token everywhere. Weights are relative to the largest logit, so that exp() cannot overflow.
#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
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

// Uniform in [0, 1): the upper 53 bits, as many as a double's mantissa has. A hash of the counters
// instead of a generator's state, so that every rank draws the same number for the same token.
double uniform(uint64_t seed, const Draw& draw) {
  const uint64_t bits =
      mix(mix(mix(seed) ^ static_cast<uint64_t>(draw.request)) ^ static_cast<uint64_t>(draw.step));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

double log_sum_exp(const kernels::Kernels& kernels, std::span<const float> logits, float largest) {
  const double sum = kernels.sum_of_exp(logits.data(), largest, static_cast<int>(logits.size()));
  return largest + std::log(sum);
}

using Bits = std::span<const uint64_t>;  // of the allowed tokens; empty: all

// Calls each(token) for those that may be sampled and whose logit is no NaN, in order.
template <typename Each>
void for_allowed(std::span<const float> logits, Bits allowed, Each each) {
  if (allowed.empty()) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!std::isnan(logits[i])) each(static_cast<int32_t>(i));
    }
    return;
  }
  for (size_t word = 0; word < allowed.size(); ++word) {
    for (uint64_t rest = allowed[word]; rest != 0; rest &= rest - 1) {
      const size_t i = 64 * word + static_cast<size_t>(std::countr_zero(rest));
      if (!std::isnan(logits[i])) each(static_cast<int32_t>(i));
    }
  }
}

// Ties to the lower id. fallback: where no allowed token has a logit. Most blocks have no logit
// above the best one so far, whether it is allowed or not: the kernel finds that in a tenth of the
// time that it takes to look at each allowed token.
int32_t best_of(const kernels::Kernels& kernels, std::span<const float> logits, Bits allowed,
                int32_t fallback) {
  constexpr size_t kBlock = 8;  // words
  int32_t best = -1;
  for (size_t word = 0; word < allowed.size(); word += kBlock) {
    const Bits bits = allowed.subspan(word, std::min(kBlock, allowed.size() - word));
    if (std::ranges::none_of(bits, [](uint64_t each) { return each != 0; })) continue;
    const size_t begin = 64 * word;
    const auto block = logits.subspan(begin, std::min(64 * kBlock, logits.size() - begin));
    const float largest = block[kernels.argmax(block.data(), static_cast<int>(block.size()))];
    if (best >= 0 && !(largest > logits[best])) continue;
    for_allowed(block, bits, [&](int32_t token) {
      const int32_t id = static_cast<int32_t>(begin) + token;
      if (best < 0 || logits[id] > logits[best]) best = id;
    });
  }
  return best < 0 ? fallback : best;
}

// Token ids by descending logit, ties to the lower id; only as many as may be sampled.
std::vector<int32_t> candidates(std::span<const float> logits, int top_k, Bits allowed) {
  std::vector<int32_t> order;
  if (allowed.empty()) order.reserve(logits.size());
  for_allowed(logits, allowed, [&](int32_t token) { order.push_back(token); });
  const size_t count =
      top_k > 0 ? std::min<size_t>(static_cast<size_t>(top_k), order.size()) : order.size();
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  order.resize(count);
  return order;
}

// The smallest set of most likely candidates whose probability reaches top_p, and one of them
// drawn. REQUIRES: the largest logit of these is finite.
int32_t drawn_token(std::span<const float> logits, const SamplingParams& params, double random,
                    Bits allowed) {
  const std::vector<int32_t> order = candidates(logits, params.top_k, allowed);
  std::vector<double> weights(order.size());
  const double largest = logits[order[0]];
  double total = 0.0;
  size_t likely = order.size();  // candidates that min_p leaves
  for (size_t i = 0; i < likely; ++i) {
    weights[i] = std::exp((logits[order[i]] - largest) / params.temperature);
    if (weights[i] < params.min_p || std::isinf(logits[order[i]])) {
      likely = i;
    } else {
      total += weights[i];
    }
  }
  // Nucleus sampling (Holtzman et al. 2020): the most likely candidates up to top_p of the mass.
  double kept = 0.0;
  size_t count = 0;
  while (count < likely && kept < params.top_p * total) kept += weights[count++];
  // Inverse of the cumulative distribution over the kept candidates. The last one takes the rest,
  // so that rounding cannot run past the end.
  double target = random * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    if (target < weights[i]) return order[i];
    target -= weights[i];
  }
  return order[count - 1];
}

}  // namespace

bool are_numbers(const kernels::Kernels& kernels, std::span<const float> logits) {
  // Without an early exit, so that the compiler vectorises the loop.
  bool has_nan = false;
  for (const float logit : logits) has_nan |= logit != logit;
  return !has_nan &&
         std::isfinite(logits[kernels.argmax(logits.data(), static_cast<int>(logits.size()))]);
}

float log_probability(const kernels::Kernels& kernels, std::span<const float> logits,
                      int32_t token) {
  const float largest = logits[kernels.argmax(logits.data(), static_cast<int>(logits.size()))];
  return static_cast<float>(logits[token] - log_sum_exp(kernels, logits, largest));
}

std::vector<Sampled> most_likely(const kernels::Kernels& kernels, std::span<const float> logits,
                                 int count) {
  const auto logit = [&](int32_t token) {
    return std::isnan(logits[token]) ? -INFINITY : logits[token];
  };
  const auto before = [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  };
  // `best` is sorted and short: most logits cost one comparison with its last element.
  std::vector<int32_t> best;
  for (int32_t token = 0; token < static_cast<int32_t>(logits.size()); ++token) {
    const bool full = static_cast<int>(best.size()) == count;
    if (full && !before(token, best.back())) continue;
    if (full) best.pop_back();
    best.insert(std::upper_bound(best.begin(), best.end(), token, before), token);
  }
  const double all = log_sum_exp(kernels, logits, logit(best[0]));
  std::vector<Sampled> likely;
  for (const int32_t token : best) {
    likely.push_back({token, static_cast<float>(logit(token) - all)});
  }
  return likely;
}

Sampled sample(const kernels::Kernels& kernels, std::span<const float> logits,
               const SamplingParams& params, const Draw& draw, const AllowedTokens* allowed) {
  const int32_t likeliest = kernels.argmax(logits.data(), static_cast<int>(logits.size()));
  const float largest = logits[likeliest];
  int32_t best = likeliest;
  Bits bits;
  // Greedy, the likeliest token of all is the likeliest allowed one if it is allowed.
  if (allowed != nullptr && (params.temperature > 0.0f || !allowed->has(likeliest))) {
    bits = allowed->bits();
    best = best_of(kernels, logits, bits, likeliest);
  }
  Sampled sampled{best, 0.0f};
  // Without a finite maximum (a broken model) softmax is undefined; the largest logit is returned.
  if (params.temperature > 0.0f && std::isfinite(logits[best])) {
    sampled.token = drawn_token(logits, params, uniform(params.seed, draw), bits);
  }
  sampled.log_probability =
      static_cast<float>(logits[sampled.token] - log_sum_exp(kernels, logits, largest));
  return sampled;
}

}  // namespace wideep::engine
