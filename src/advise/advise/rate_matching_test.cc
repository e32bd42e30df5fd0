// SPDX-License-Identifier: Apache-2.0
//
// Ratios are held against numbers worked out by hand and against the blog's formula.
#include "advise/rate_matching.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace wideep::advise {
namespace {

// 6 requests of one server per second against 4: 2 : 3 on 2 · 4 + 3 · 8 = 32 ranks carry 12.
TEST(MatchRates, MatchesByHand) {
  const ServerRate prefill{.requests = 6.0, .ranks = 4}, generation{.requests = 4.0, .ranks = 8};
  const auto ratio = match_rates(prefill, generation, {});
  ASSERT_TRUE(ratio.has_value());
  EXPECT_EQ(ratio->prefill, 2);
  EXPECT_EQ(ratio->generation, 3);
  EXPECT_EQ(ratio->ranks, 32);
  EXPECT_DOUBLE_EQ(ratio->requests, 12.0);
  EXPECT_DOUBLE_EQ(ratio->requests_per_rank(), 12.0 / 32);
  // With less room the best that is left: 1 : 1 carries 4 on 12 ranks, 1 : 2 carries 6 on 20.
  const auto small = match_rates(prefill, generation, {.max_ranks = 31});
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(small->ranks, 12);
  EXPECT_FALSE(match_rates(prefill, generation, {.max_ranks = 11}).has_value());
}

// osl · rate_g ÷ (ctx_gpus · rate_g ÷ rate_c + gen_gpus), of which a whole ratio has at most as
// many.
TEST(MatchRates, NeverExceedsTheFormulaOfTheBlog) {
  for (const double ctx : {0.3, 1.0, 2.7, 19.0}) {
    for (const double gen : {0.9, 1.0, 5.3}) {
      for (const int ctx_ranks : {1, 4}) {
        const ServerRate prefill{.requests = ctx, .ranks = ctx_ranks};
        const ServerRate generation{.requests = gen, .ranks = 8};
        const double formula = gen / (ctx_ranks * gen / ctx + 8);
        EXPECT_NEAR(exact_requests_per_rank(prefill, generation), formula, 1e-12);
        const auto ratio = match_rates(prefill, generation, {.max_ranks = 1000});
        ASSERT_TRUE(ratio.has_value());
        EXPECT_LE(ratio->requests_per_rank(), formula * (1 + 1e-12));
        EXPECT_LE(std::max(ratio->prefill, ratio->generation), 16);
        const auto more = match_rates(
            prefill, generation, {.max_servers = 400, .max_generation = 400, .max_ranks = 100000});
        EXPECT_GE(more->requests_per_rank(), 0.95 * formula) << ctx << " " << gen;
      }
    }
  }
}

TEST(MatchRates, ARateTakesTheFewestServers) {
  const ServerRate prefill{.requests = 6.0, .ranks = 4}, generation{.requests = 4.0, .ranks = 8};
  const auto ratio = match_rates(prefill, generation, {.rate = 6.5});
  ASSERT_TRUE(ratio.has_value());
  EXPECT_EQ(ratio->prefill, 2);
  EXPECT_EQ(ratio->generation, 2);
  EXPECT_FALSE(match_rates(prefill, generation, {.rate = 1000.0}).has_value());
  EXPECT_FALSE(match_rates(prefill, generation, {.max_generation = 1, .rate = 6.5}).has_value());
}

}  // namespace
}  // namespace wideep::advise
