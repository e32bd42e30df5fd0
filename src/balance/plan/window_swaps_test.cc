// SPDX-License-Identifier: Apache-2.0
#include "plan/window_swaps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/windowed_load.h"

namespace wideep::balance {
namespace {

using ::testing::ElementsAre;

LayerPlan equal_plan(int num_experts, int ep_size, std::vector<int32_t> slots) {
  LayerPlan plan{{num_experts, ep_size, std::move(slots)}, {}};
  plan.shares = equal_shares(plan.placement);
  return plan;
}

Windows random_windows(std::mt19937& random, int count, int experts) {
  std::lognormal_distribution<double> tokens(5.0, 1.0);
  Windows windows(static_cast<size_t>(count));
  for (auto& window : windows) {
    for (int e = 0; e < experts; ++e) window.push_back(std::floor(tokens(random)));
  }
  return windows;
}

double sum_of_squares(const Windows& windows, const LayerPlan& plan) {
  double sum = 0;
  for (const auto& window : parts_of_windows(windows)) {
    for (const double load : rank_loads(plan.placement, window, plan.shares)) sum += load * load;
  }
  return sum;
}

TEST(SwapForWindows, SeparatesExpertsThatAreHotTogether) {
  // Balanced in sum; in each window one rank has all.
  const Windows windows = {{9, 9, 0, 0}, {0, 0, 9, 9}};
  LayerPlan plan = equal_plan(4, 2, {0, 1, 2, 3});
  swap_for_windows(windows, {.num_experts = 4, .ep_size = 2, .num_slots = 4}, &plan);
  for (const auto& window : windows) {
    EXPECT_NEAR(imbalance_ratio(plan.placement, window, plan.shares), 0.0, 1e-12);
  }
}

TEST(SwapForWindows, KeepsReplicasInPlaceAndNeverWorsens) {
  std::mt19937 random(1);
  const PlanShape shape{.num_experts = 24, .ep_size = 6, .num_slots = 36};
  const auto planner = make_planner("wideep", shape, {}).value();
  for (int i = 0; i < 50; ++i) {
    const Windows windows = random_windows(random, 1 + i % 6, 24);
    LayerPlan before;
    planner->plan(windows[0], &before);
    LayerPlan after = before;
    swap_for_windows(windows, shape, &after);
    ASSERT_TRUE(check_placement(after.placement).ok());
    ASSERT_LE(sum_of_squares(windows, after), sum_of_squares(windows, before) + 1e-12);
    ASSERT_EQ(after.shares, equal_shares(after.placement));
    for (size_t slot = 0; slot < 36; ++slot) {
      if (before.shares[slot] == 1.0) continue;
      ASSERT_EQ(after.placement.slot_to_expert[slot], before.placement.slot_to_expert[slot]);
    }
  }
}

TEST(SwapForWindows, GroupsStayOnTheirNode) {
  std::mt19937 random(2);
  const PlanShape shape{
      .num_experts = 16, .ep_size = 4, .num_slots = 16, .num_nodes = 2, .num_groups = 4};
  LayerPlan plan = equal_plan(16, 4, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  swap_for_windows(random_windows(random, 4, 16), shape, &plan);
  for (size_t slot = 0; slot < 16; ++slot) {
    EXPECT_EQ(plan.placement.slot_to_expert[slot] < 8, slot < 8) << "slot " << slot;
  }
}

TEST(SwapForWindows, UnusedSlotsStayUnused) {
  const Windows windows = {{9, 9, 0, 0}, {0, 0, 9, 9}};
  LayerPlan plan = equal_plan(4, 3, {0, 1, kUnusedSlot, kUnusedSlot, 2, 3});
  swap_for_windows(windows, {.num_experts = 4, .ep_size = 3, .num_slots = 6}, &plan);
  EXPECT_THAT(plan.placement.experts_of_rank(1), ElementsAre(kUnusedSlot, kUnusedSlot));
  for (const auto& window : windows) {
    EXPECT_NEAR(imbalance_ratio(plan.placement, window, plan.shares), 0.0, 1e-12);
  }
}

}  // namespace
}  // namespace wideep::balance
