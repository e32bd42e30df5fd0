// SPDX-License-Identifier: Apache-2.0
#include "plan/load_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace wideep::balance {
namespace {

using testing::ElementsAre;

TEST(SummarizeLoads, HandValues) {
  const LoadSummary summary = summarize_loads(std::vector<double>{2, 4, 4, 6});
  EXPECT_DOUBLE_EQ(summary.mean, 4.0);
  EXPECT_DOUBLE_EQ(summary.std, std::sqrt(8.0 / 3.0));  // unbiased
  EXPECT_DOUBLE_EQ(summary.imbalance_ratio, 0.5);
}

TEST(SummarizeLoads, OneRankAndNoTokensAreBalanced) {
  EXPECT_DOUBLE_EQ(summarize_loads(std::vector<double>{7}).std, 0.0);
  EXPECT_DOUBLE_EQ(summarize_loads(std::vector<double>{7}).imbalance_ratio, 0.0);
  EXPECT_DOUBLE_EQ(summarize_loads(std::vector<double>{0, 0}).imbalance_ratio, 0.0);
}

TEST(RankLoads, ReplicasShareTheirExpertsLoadEqually) {
  const Placement placement{3, 2, {1, 2, 1, 0}};
  const std::vector<int64_t> load = {1, 100, 10};
  EXPECT_THAT(slot_loads(placement, load), ElementsAre(50.0, 10.0, 50.0, 1.0));
  EXPECT_THAT(rank_loads(placement, load), ElementsAre(60.0, 51.0));
}

}  // namespace
}  // namespace wideep::balance
