// SPDX-License-Identifier: Apache-2.0
#include "measure/serving/routing_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::measure {
namespace {

using testing::HasSubstr;

RoutingPair pair(double learned_ms, double perfect_ms) {
  return {.learned = {.critical_path_ms = learned_ms, .tokens_per_second = 1e3 / learned_ms},
          .perfect = {.critical_path_ms = perfect_ms, .tokens_per_second = 1e3 / perfect_ms}};
}

TEST(RoutingVerdict, OverTenPercentMatters) {
  const RoutingVerdict verdict = judge_routing({pair(112, 100), pair(500, 100), pair(111, 100)});
  EXPECT_NEAR(verdict.gain, 0.12, 1e-12);
  EXPECT_NEAR(verdict.low, 0.11, 1e-12);
  EXPECT_NEAR(verdict.high, 4.0, 1e-12);
  EXPECT_TRUE(verdict.imbalance_matters);
  EXPECT_EQ(verdict.medians.learned.critical_path_ms, 112);
  EXPECT_EQ(verdict.medians.perfect.tokens_per_second, 10);
  EXPECT_THAT(verdict.text(), HasSubstr("12.0 % faster"));
  EXPECT_THAT(verdict.text(), HasSubstr("imbalance matters"));
}

TEST(RoutingVerdict, TenPercentOrLessDoesNotMatter) {
  EXPECT_FALSE(judge_routing({pair(109.9, 100)}).imbalance_matters);
  const RoutingVerdict slower = judge_routing({pair(90, 100)});
  EXPECT_FALSE(slower.imbalance_matters);
  EXPECT_THAT(slower.text(), HasSubstr("10.0 % slower"));
}

}  // namespace
}  // namespace wideep::measure
