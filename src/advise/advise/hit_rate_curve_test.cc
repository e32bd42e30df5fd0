// SPDX-License-Identifier: Apache-2.0
//
// Numbers that are worked out by hand. The recorded curves are held against what must be so of any
// policy and any router, and against docs/balance.md.
#include "advise/hit_rate_curve.h"

#include <gtest/gtest.h>

namespace wideep::advise {
namespace {

TEST(HitRateCurve, BetweenPointsAndToBothEnds) {
  const HitRateCurve curve{.source = "", .points = {{0.2, 0.5}, {0.6, 0.9}}};
  EXPECT_DOUBLE_EQ(curve.at(0.0), 0.0);
  EXPECT_DOUBLE_EQ(curve.at(0.1), 0.25);
  EXPECT_DOUBLE_EQ(curve.at(0.2), 0.5);
  EXPECT_DOUBLE_EQ(curve.at(0.5), 0.8);
  EXPECT_DOUBLE_EQ(curve.at(0.8), 0.95);
  EXPECT_DOUBLE_EQ(curve.at(1.0), 1.0);
  EXPECT_DOUBLE_EQ(HitRateCurve().at(0.3), 0.3);
}

TEST(RecordedHitRates, AreThoseOfBalanceCache) {
  const HitRates one = recorded_hit_rates(1), eight = recorded_hit_rates(8);
  EXPECT_DOUBLE_EQ(one.expected.at(0.25), 0.547);
  EXPECT_DOUBLE_EQ(one.expected.at(0.5), 0.785);
  EXPECT_DOUBLE_EQ(one.expected.at(0.75), 0.927);
  EXPECT_DOUBLE_EQ(one.upper->at(0.25), 0.697);
  EXPECT_DOUBLE_EQ(one.upper->at(0.5), 0.932);
  EXPECT_DOUBLE_EQ(one.upper->at(0.75), 0.991);
  EXPECT_DOUBLE_EQ(eight.expected.at(0.5), 0.685);
  EXPECT_DOUBLE_EQ(eight.upper->at(0.5), 0.790);
}

TEST(RecordedHitRates, AboveAUniformRouterAndNearlyBelowTheUpperBound) {
  for (const double tokens : {0.5, 1.0, 2.0, 8.0, 20.0, 32.0, 1000.0}) {
    const HitRates rates = recorded_hit_rates(tokens);
    for (double share = 0.05; share < 1.0; share += 0.05) {
      EXPECT_GT(rates.expected.at(share), share) << tokens;
      EXPECT_LT(rates.expected.at(share), rates.upper->at(share) + 0.01) << tokens << " " << share;
      EXPECT_GE(rates.expected.at(share), recorded_hit_rates(tokens * 2).expected.at(share));
    }
  }
}

}  // namespace
}  // namespace wideep::advise
