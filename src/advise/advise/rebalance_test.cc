// SPDX-License-Identifier: Apache-2.0
#include "advise/rebalance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "advise/mixture_testing.h"

namespace wideep::advise {
namespace {

using testing::HasSubstr;

model::ModelConfig mixture() { return mixture_of(2, 32); }

std::vector<double> falling() {
  std::vector<double> load(32);
  for (size_t e = 0; e < load.size(); ++e) load[e] = std::pow(1.0 + static_cast<double>(e), -0.5);
  return load;
}

balance::WindowedLoad windows_of(const balance::Windows& windows) {
  return {.num_experts = 32, .layers = {0, 1}, .load = {windows, windows}};
}

const RebalanceOptions kOptions{
    .ep = 8, .num_slots = 40, .tokens = 2048.0, .format = kernels::WeightFormat::kFp8};

Result<Rebalances> replay(const balance::Windows& windows, RebalanceOptions options = kOptions) {
  return replay_rebalances(cost::shipped_hardware("h100_sxm").value(), mixture(),
                           windows_of(windows), options);
}

TEST(Rebalances, ASteadyLoadMovesOnce) {
  const auto found = replay({falling(), falling(), falling()});
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_EQ(found->steps.size(), 2u);
  const Rebalance& first = found->steps[0];
  EXPECT_GT(first.moves, 0);
  EXPECT_GT(first.saved_of_iteration(), 0.0);
  EXPECT_LT(first.imbalance_moved, first.imbalance_kept);
  EXPECT_DOUBLE_EQ(first.experts_never, first.experts_kept);
  EXPECT_EQ(found->steps[1].moves, 0);
  EXPECT_EQ(found->steps[1].busiest_bytes, 0.0);
  EXPECT_DOUBLE_EQ(found->steps[1].experts_moved, first.experts_moved);
}

// The busiest rank receives at least its part of all copies, and no more than it has slots.
TEST(Rebalances, BytesAreThoseOfTheBusiestRank) {
  const auto found = replay({falling(), falling()});
  ASSERT_TRUE(found.ok());
  const double expert = 3.0 * 2048 * 1024 * (1.0 + 4.0 / (128 * 128));
  const double copies = found->steps[0].busiest_bytes / expert;
  EXPECT_GE(copies + 0.01, static_cast<double>(found->steps[0].moves) / 8);
  EXPECT_LE(copies, 2 * 5 + 0.01);
}

// What was planned by a load that is gone may cost more than it saves.
TEST(Rebalances, ALoadThatTurnsRoundIsJudgedByWhatComes) {
  std::vector<double> reversed = falling();
  std::ranges::reverse(reversed);
  const auto found = replay({falling(), reversed});
  ASSERT_TRUE(found.ok());
  const auto steady = replay({falling(), falling()});
  EXPECT_LT(found->steps[0].saved_of_iteration(), steady->steps[0].saved_of_iteration());
}

TEST(Rebalances, ASlowLinkPaysLater) {
  const auto found = replay({falling(), falling()});
  ASSERT_TRUE(found.ok());
  ASSERT_GE(found->links.size(), 2u);
  for (const MoveLink& link : found->links) {
    const double paid = iterations_until_paid(found->steps[0], link);
    EXPECT_NEAR(paid * found->steps[0].saved_of_iteration() * link.bandwidth,
                found->steps[0].busiest_bytes, 1e-6 * found->steps[0].busiest_bytes);
  }
  const MoveLink slow{.bandwidth = 1e6}, fast{.bandwidth = 1e12};
  EXPECT_GT(iterations_until_paid(found->steps[0], slow),
            iterations_until_paid(found->steps[0], fast));
  EXPECT_LT(iterations_until_paid({.moves = 1, .busiest_bytes = 1.0}, slow), 0.0);
}

TEST(Rebalances, RefuseWhatCannotBeJudged) {
  const auto one = replay({falling()});
  ASSERT_FALSE(one.ok());
  EXPECT_THAT(one.status().message(), HasSubstr("at least 2 windows of iterations, found 1"));
  RebalanceOptions options = kOptions;
  options.num_slots = 30;
  EXPECT_FALSE(replay({falling(), falling()}, options).ok());
  options = kOptions;
  options.format = kernels::WeightFormat::kInt4h;
  EXPECT_FALSE(replay({falling(), falling()}, options).ok());
}

}  // namespace
}  // namespace wideep::advise
