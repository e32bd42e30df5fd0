// SPDX-License-Identifier: Apache-2.0
//
// Greedy tokens and log probabilities are held against a plain maximum and sums of doubles, drawn
// ones against probabilities, by 20,000 draws and bounds of four standard deviations. With allowed
// tokens, the token must be the one that masked logits give with the same random number. Logits
// that are not finite must give a token too, or a model that overflows would stop a rank.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace wideep::engine {
namespace {

const kernels::Kernels& kernels() { return *kernels::select_kernels(nullptr).value(); }

const std::vector<float> kLogits = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};

std::map<int32_t, double> frequencies(const SamplingParams& params, int draws) {
  std::map<int32_t, double> counts;
  for (int step = 0; step < draws; ++step) {
    counts[sample(kernels(), kLogits, params, {.step = step}).token] += 1.0 / draws;
  }
  return counts;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowerIdOfEquals) {
  EXPECT_EQ(sample(kernels(), kLogits, {}, {}).token, 1);
  EXPECT_EQ(sample(kernels(), std::vector<float>{1, 3, 3, 2}, {}, {}).token, 1);
}

TEST(Sampler, LogProbabilityIsOfTheWholeSoftmax) {
  EXPECT_NEAR(sample(kernels(), kLogits, {}, {}).log_probability, std::log(0.4), 1e-6);
  EXPECT_NEAR(sample(kernels(), kLogits, {.temperature = 2.0f, .top_k = 1}, {}).log_probability,
              std::log(0.4), 1e-6);
}

// Whole blocks, rests, and logits too small to count.
TEST(Sampler, LogProbabilityIsThatOfDoubles) {
  for (const size_t vocab : {1u, 15u, 17u, 1024u, 5000u}) {
    std::mt19937 rng(static_cast<unsigned>(vocab));
    std::normal_distribution<float> normal(3.0f, 8.0f);
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = normal(rng);
    logits[vocab / 2] = -200.0f;
    const auto best = std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(double{logit} - double{*best});
    const Sampled sampled = sample(kernels(), logits, {}, {});
    EXPECT_EQ(sampled.token, best - logits.begin());
    EXPECT_NEAR(sampled.log_probability, -std::log(sum), 2e-6);
  }
}

TEST(Sampler, GreedyFindsTheLargestWhereverItIs) {
  std::vector<float> logits(70, -1.0f);
  for (int at = 69; at >= 0; --at) {
    logits[static_cast<size_t>(at)] = 2.0f;
    EXPECT_EQ(sample(kernels(), logits, {}, {}).token, at);
  }
}

// Not drawn from: what a model that overflows makes.
TEST(Sampler, LogitsThatAreNotFiniteHaveATokenToo) {
  const SamplingParams drawn = {.temperature = 1.0f, .top_p = 0.9f};
  const std::vector<float> nans(40, NAN), min(40, -INFINITY);
  std::vector<float> one_nan = kLogits, infinite = kLogits;
  one_nan[1] = NAN;
  infinite[2] = INFINITY;
  for (int step = 0; step < 50; ++step) {
    EXPECT_EQ(sample(kernels(), nans, drawn, {.step = step}).token, 0);
    EXPECT_EQ(sample(kernels(), min, drawn, {.step = step}).token, 0);
    EXPECT_EQ(sample(kernels(), infinite, drawn, {.step = step}).token, 2);
    EXPECT_NE(sample(kernels(), one_nan, drawn, {.step = step}).token, 1);
  }
  EXPECT_EQ(most_likely(kernels(), one_nan, 4).back().token, 1);
  EXPECT_EQ(most_likely(kernels(), nans, 3).size(), 3u);
}

// 20,000 draws: the standard deviation of a share is below 0.0035; 0.015 is four of them.
TEST(Sampler, SharesFollowTheProbabilities) {
  const auto shares = frequencies({.temperature = 1.0f}, 20'000);
  EXPECT_NEAR(shares.at(0), 0.1, 0.015);
  EXPECT_NEAR(shares.at(1), 0.4, 0.015);
  EXPECT_NEAR(shares.at(2), 0.2, 0.015);
  EXPECT_NEAR(shares.at(3), 0.3, 0.015);
}

TEST(Sampler, TemperatureSharpens) {
  const auto shares = frequencies({.temperature = 0.5f}, 20'000);
  EXPECT_NEAR(shares.at(1), 0.16 / (0.01 + 0.16 + 0.04 + 0.09), 0.015);
}

TEST(Sampler, TopKAndTopPKeepTheMostLikely) {
  const auto top2 = frequencies({.temperature = 1.0f, .top_k = 2}, 5'000);
  EXPECT_EQ(top2.size(), 2u);
  EXPECT_NEAR(top2.at(1), 4.0 / 7, 0.03);
  const auto nucleus = frequencies({.temperature = 1.0f, .top_p = 0.65f}, 5'000);
  EXPECT_EQ(nucleus.size(), 2u);  // 0.4 + 0.3 reach it
  EXPECT_EQ(frequencies({.temperature = 1.0f, .top_p = 1e-6f}, 100).size(), 1u);
  // 0.3 is three quarters of 0.4, 0.2 half of it.
  const auto likely = frequencies({.temperature = 1.0f, .min_p = 0.7f}, 5'000);
  EXPECT_EQ(likely.size(), 2u);
  EXPECT_NEAR(likely.at(1), 4.0 / 7, 0.03);
  EXPECT_EQ(frequencies({.temperature = 1.0f, .min_p = 1.0f}, 100).size(), 1u);
}

TEST(Sampler, MostLikelyTokensInOrder) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(i * 7919 % 500) * 0.01f;  // every value twice
  }
  const std::vector<Sampled> likely = most_likely(kernels(), logits, 20);
  ASSERT_EQ(likely.size(), 20u);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::pair(-logits[a], a) < std::pair(-logits[b], b);
  });
  for (size_t i = 0; i < likely.size(); ++i) EXPECT_EQ(likely[i].token, order[i]) << i;
  const Sampled greedy = sample(kernels(), logits, {}, {});
  EXPECT_EQ(likely[0].token, greedy.token);
  EXPECT_EQ(likely[0].log_probability, greedy.log_probability);
  EXPECT_NEAR(std::exp(likely[4].log_probability - likely[0].log_probability),
              std::exp(logits[likely[4].token] - logits[likely[0].token]), 1e-5);
  EXPECT_EQ(most_likely(kernels(), std::vector<float>{1.0f, 2.0f}, 5).size(), 2u);
}

TEST(Sampler, SeedRequestAndStepAreAllThatMatters) {
  const SamplingParams params{.temperature = 1.0f, .seed = 7};
  EXPECT_EQ(sample(kernels(), kLogits, params, {.request = 3, .step = 5}).token,
            sample(kernels(), kLogits, params, {.request = 3, .step = 5}).token);
  std::set<std::vector<int32_t>> sequences;
  for (int request = 0; request < 4; ++request) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      std::vector<int32_t> tokens;
      for (int step = 0; step < 30; ++step) {
        tokens.push_back(sample(kernels(), kLogits, {.temperature = 1.0f, .seed = seed},
                                {.request = request, .step = step})
                             .token);
      }
      sequences.insert(tokens);
    }
  }
  EXPECT_EQ(sequences.size(), 16u);
}

// ---- allowed tokens ----

AllowedTokens allowed_of(const std::vector<uint64_t>& bits) {
  return {.has = [&bits](int32_t token) { return (bits[token / 64] >> (token % 64) & 1) != 0; },
          .bits = [&bits]() -> std::span<const uint64_t> { return bits; }};
}

// As if the others had no probability at all: of their own, they are drawn as without the others.
TEST(Sampler, AllowedTokensAreDrawnAmongThemselves) {
  const std::vector<uint64_t> bits = {0b1101};
  const AllowedTokens allowed = allowed_of(bits);
  const Sampled greedy = sample(kernels(), kLogits, {}, {}, &allowed);
  EXPECT_EQ(greedy.token, 3);
  EXPECT_NEAR(greedy.log_probability, std::log(0.3), 1e-6);
  std::vector<float> others = kLogits;
  others[1] = -INFINITY;
  for (int step = 0; step < 500; ++step) {
    for (const SamplingParams& params :
         {SamplingParams{.temperature = 1.0f}, SamplingParams{.temperature = 0.7f, .top_k = 2},
          SamplingParams{.temperature = 1.5f, .top_p = 0.7f}}) {
      const Sampled masked = sample(kernels(), kLogits, params, {.step = step}, &allowed);
      ASSERT_EQ(masked.token, sample(kernels(), others, params, {.step = step}).token);
      ASSERT_NEAR(masked.log_probability, kLogits[static_cast<size_t>(masked.token)], 1e-6);
    }
  }
}

TEST(Sampler, AllowedTokensOfAnyVocabularyAreThoseOfMaskedLogits) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  for (int round = 0; round < 200; ++round) {
    const size_t vocab = 1 + rng() % 3000;
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = std::round(normal(rng));  // with ties
    if (round % 5 == 0) logits[rng() % vocab] = NAN;
    std::vector<uint64_t> bits((vocab + 63) / 64);
    std::vector<float> masked(vocab, -INFINITY);
    for (size_t i = 0; i < vocab; ++i) {
      if (rng() % 4 != 0 || std::isnan(logits[i])) continue;
      bits[i / 64] |= uint64_t{1} << (i % 64);
      masked[i] = logits[i];
    }
    const auto is_set = [](uint64_t word) { return word != 0; };
    if (std::ranges::none_of(bits, is_set)) continue;
    const AllowedTokens allowed = allowed_of(bits);
    for (const float temperature : {0.0f, 1.0f}) {
      const SamplingParams params{.temperature = temperature, .top_k = round % 3, .top_p = 0.9f};
      ASSERT_EQ(sample(kernels(), logits, params, {.request = 1, .step = round}, &allowed).token,
                sample(kernels(), masked, params, {.request = 1, .step = round}).token);
    }
  }
}

}  // namespace
}  // namespace wideep::engine
