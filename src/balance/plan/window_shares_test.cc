// SPDX-License-Identifier: Apache-2.0
#include "plan/window_shares.h"

#include <gtest/gtest.h>

#include <random>

#include "plan/windowed_load.h"

namespace wideep::balance {
namespace {

double mean_imbalance(const Windows& windows, const Placement& placement, const Shares& shares) {
  double sum = 0;
  for (const auto& window : windows) sum += imbalance_ratio(placement, window, shares);
  return sum / static_cast<double>(windows.size());
}

// Expert 0 is on both ranks; a fine grid of its shares is the reference.
TEST(SharesForWindows, CloseToTheBestOfAGrid) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> tokens(1, 100);
  const Placement placement{3, 2, {0, 1, 0, 2}};
  for (int i = 0; i < 50; ++i) {
    Windows windows(static_cast<size_t>(1 + i % 5));
    for (auto& window : windows) {
      for (int e = 0; e < 3; ++e) window.push_back(tokens(random));
    }
    double best = 1.0;
    for (int step = 0; step <= 1000; ++step) {
      const double share = step / 1000.0;
      best = std::min(best, mean_imbalance(windows, placement, {share, 1.0, 1 - share, 1.0}));
    }
    const double found = mean_imbalance(windows, placement, shares_for_windows(windows, placement));
    EXPECT_LE(found, best + 0.03) << i;  // the norm is not the maximum
    if (windows.size() == 1) {
      EXPECT_LE(found, best + 0.002) << i;
    }
  }
}

TEST(SharesForWindows, NeverAboveEqualSharesAndComplete) {
  std::mt19937 random(2);
  std::lognormal_distribution<double> tokens(5.0, 1.0);
  const PlanShape shape{.num_experts = 24, .ep_size = 12, .num_slots = 36};
  const auto planner = make_planner("wideep", shape, {}).value();
  double gained = 0;
  for (int i = 0; i < 40; ++i) {
    Windows windows(static_cast<size_t>(1 + i % 6));
    for (auto& window : windows) {
      for (int e = 0; e < 24; ++e) window.push_back(std::floor(tokens(random)));
    }
    LayerPlan plan;
    planner->plan(windows[0], &plan);
    const Shares shares = shares_for_windows(windows, plan.placement);
    ASSERT_TRUE(check_shares(plan.placement, shares).ok());
    const double equal = mean_imbalance(windows, plan.placement, equal_shares(plan.placement));
    const double found = mean_imbalance(windows, plan.placement, shares);
    ASSERT_LE(found, equal + 1e-12);
    gained += equal - found;
  }
  EXPECT_GT(gained / 40, 0.02);
}

TEST(SharesForWindows, WindowsWithoutTokensAndUnusedSlots) {
  const Placement placement{2, 2, {0, kUnusedSlot, 1, 0}};
  const Shares shares = shares_for_windows(Windows{{0, 0}, {0, 0}}, placement);
  EXPECT_EQ(shares, equal_shares(placement));
}

}  // namespace
}  // namespace wideep::balance
