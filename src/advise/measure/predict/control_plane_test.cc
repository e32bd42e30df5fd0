// SPDX-License-Identifier: Apache-2.0
#include "measure/predict/control_plane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cost/expert_load.h"

namespace wideep::measure {
namespace {

TEST(SlotsFor, AreEquallyManyOnEachRank) {
  EXPECT_EQ(slots_for(256, 32, 1), 256);
  EXPECT_EQ(slots_for(256, 32, 32), 288);
  EXPECT_EQ(slots_for(256, 32, 64), 320);   // 5 on each
  EXPECT_EQ(slots_for(256, 32, 256), 512);  // one more than its expert on each
  EXPECT_EQ(slots_for(256, 32, 1024), 1024);
  for (const int ranks : {2, 3, 7, 100, 512}) {
    EXPECT_EQ(slots_for(256, 32, ranks) % ranks, 0);
    EXPECT_GE(slots_for(256, 32, ranks), 256);
  }
}

TEST(FitLinear, FindsAStraightLine) {
  const std::vector<int> ranks = {8, 16, 32, 64};
  std::vector<double> costs;
  for (const int each : ranks) costs.push_back(3e-6 + 2e-7 * each);
  const LinearCost fit = fit_linear(ranks, costs);
  EXPECT_NEAR(fit.base, 3e-6, 1e-12);
  EXPECT_NEAR(fit.per_rank, 2e-7, 1e-13);
  EXPECT_NEAR(fit.at(1024), 3e-6 + 2e-7 * 1024, 1e-10);
}

// Relative errors count: a slow group does not outweigh the fast ones.
TEST(FitLinear, WeighsRelativeErrors) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> noise(0.99, 1.01);
  const std::vector<int> ranks = {2, 8, 64, 1024};
  for (int round = 0; round < 20; ++round) {
    std::vector<double> costs;
    for (const int each : ranks) costs.push_back((1.0 + 0.1 * each) * noise(random));
    const LinearCost fit = fit_linear(ranks, costs);
    for (size_t i = 0; i < ranks.size(); ++i) EXPECT_NEAR(fit.at(ranks[i]) / costs[i], 1.0, 0.03);
  }
}

TEST(ControlPlane, RunsForReal) {
  const balance::ModelLoad load = cost::uniform_load(16, {0, 1, 2});
  const auto cost = run_control_plane(
      load, {.num_ranks = 8, .spare_slots = 8, .top_k = 2, .tokens = 4, .calls = 3});
  ASSERT_TRUE(cost.ok()) << cost.status().message();
  EXPECT_EQ(cost->num_slots, 24);
  EXPECT_LT(cost->imbalance, 1e-3);
  for (const double each : {cost->plan, cost->agree, cost->split, cost->exchange}) {
    EXPECT_GT(each, 0.0);
    EXPECT_LT(each, 1.0);
  }
  EXPECT_GT(cost->memory, 0.0);
  EXPECT_GT(cost->memory_of_sizes, 2 * 4 * 16 + 8 * 4 * 16);
}

TEST(ControlPlane, AShapeThatNoPlannerServesIsAnError) {
  // A rank would have to hold an expert twice.
  const auto cost =
      run_control_plane(cost::uniform_load(4, {0}), {.num_ranks = 2, .spare_slots = 8, .top_k = 2});
  ASSERT_FALSE(cost.ok());
  EXPECT_THAT(cost.status().message(), testing::HasSubstr("slots"));
  const auto top_k = run_control_plane(cost::uniform_load(4, {0}), {.num_ranks = 2});
  ASSERT_FALSE(top_k.ok());
  EXPECT_THAT(top_k.status().message(), testing::HasSubstr("top_k: expected at most 4"));
}

}  // namespace
}  // namespace wideep::measure
