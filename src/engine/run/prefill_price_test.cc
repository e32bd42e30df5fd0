// SPDX-License-Identifier: Apache-2.0
//
// Prices from iterations with known times. A wrong price fetches what computing brings sooner, or
// computes again what lies in memory.
#include "run/prefill_price.h"

#include <gtest/gtest.h>

namespace wideep::run {
namespace {

Iteration timed_iteration(double seconds, std::vector<int64_t> prompt_tokens, int64_t generated) {
  Iteration iteration;
  for (const int64_t prompt : prompt_tokens) {
    engine::IterationRecord rank;
    rank.prompt_tokens = prompt;
    rank.generated_tokens = generated;
    rank.wall_ns = static_cast<int64_t>(seconds * 1e9);
    iteration.ranks.push_back(rank);
  }
  return iteration;
}

TEST(PrefillPrice, IsUnknownUntilAPromptWasComputed) {
  PrefillPrice price;
  EXPECT_EQ(price.seconds_per_token(0.0), std::nullopt);
  price.add(timed_iteration(0.5, {0}, 8), 1.0);
  EXPECT_EQ(price.seconds_per_token(1.0), std::nullopt);
  price.add(timed_iteration(0.5, {7}, 0), 2.0);  // too few to say anything
  EXPECT_EQ(price.seconds_per_token(2.0), std::nullopt);
  price.add(timed_iteration(2.0, {1000}, 0), 3.0);
  EXPECT_NEAR(*price.seconds_per_token(3.0), 2e-3, 1e-9);
}

TEST(PrefillPrice, IsThatOfTheRankWithTheMostTokens) {
  PrefillPrice price;
  price.add(timed_iteration(1.0, {100, 500, 0}, 0), 0.0);
  EXPECT_NEAR(*price.seconds_per_token(0.0), 2e-3, 1e-9);
}

TEST(PrefillPrice, AnIterationThatAlsoGeneratesIsChargedWithTheRest) {
  PrefillPrice price;
  for (int i = 0; i < 20; ++i) price.add(timed_iteration(0.1, {0}, 16), 0.0);
  price.add(timed_iteration(0.6, {500}, 16), 0.0);
  EXPECT_NEAR(*price.seconds_per_token(0.0), 1e-3, 1e-6);
}

TEST(PrefillPrice, NeverIsBelowNothing) {
  PrefillPrice price;
  price.add(timed_iteration(1.0, {0}, 16), 0.0);
  price.add(timed_iteration(0.5, {500}, 16), 0.0);
  EXPECT_EQ(*price.seconds_per_token(0.0), 0.0);
}

TEST(PrefillPrice, FollowsWhatIterationsTakeNow) {
  PrefillPrice price;
  for (int i = 0; i < 100; ++i) price.add(timed_iteration(1.0, {1024}, 0), 0.0);
  for (int i = 0; i < 100; ++i) price.add(timed_iteration(4.0, {1024}, 0), 1.0);
  EXPECT_NEAR(*price.seconds_per_token(1.0), 4.0 / 1024, 1e-4);
}

TEST(PrefillPrice, BecomesDearWhenNothingMeasuresIt) {
  PrefillPrice price;
  price.add(timed_iteration(1.0, {1000}, 0), 100.0);
  EXPECT_NEAR(*price.seconds_per_token(160.0), 1e-3, 1e-9);
  EXPECT_NEAR(*price.seconds_per_token(220.0), 2e-3, 1e-9);
  EXPECT_NEAR(*price.seconds_per_token(280.0), 4e-3, 1e-9);
  EXPECT_EQ(price.seconds_per_token(1000.0), std::nullopt);
  price.add(timed_iteration(1.0, {1000}, 0), 1000.0);
  EXPECT_NEAR(*price.seconds_per_token(1000.0), 1e-3, 1e-6);
}

TEST(IterationPace, IsTheLongestOfTheLastAndTheRunningOne) {
  IterationPace pace;
  EXPECT_EQ(pace.longest(5.0), 0.0);
  pace.set_busy(true, 5.0);
  EXPECT_EQ(pace.longest(8.0), 3.0);
  pace.add(timed_iteration(4.0, {64}, 0), 9.0);
  EXPECT_EQ(pace.longest(10.0), 4.0);
  pace.set_busy(true, 12.0);  // it has been all the time
  EXPECT_EQ(pace.longest(15.0), 6.0);
  EXPECT_EQ(pace.longest(1e9), 60.0);
  pace.set_busy(false, 15.0);
  EXPECT_EQ(pace.longest(100.0), 4.0);
  for (int i = 0; i < 16; ++i) pace.add(timed_iteration(0.5, {64}, 0), 101.0);
  EXPECT_EQ(pace.longest(102.0), 0.5);
}

}  // namespace
}  // namespace wideep::run
