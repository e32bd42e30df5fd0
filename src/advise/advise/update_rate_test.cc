// SPDX-License-Identifier: Apache-2.0
//
// The hottest experts change at a known window, so it is known which rates can follow: a steady
// load needs none, a higher rate is no later, a slow link delays. What copies take of the link and
// of memory is worked out by hand. A failure means that a rate is recommended for a price or a gain
// that it does not have.
#include "advise/update_rate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "advise/mixture_testing.h"
#include "cost/expert_load.h"

namespace wideep::advise {
namespace {

using testing::HasSubstr;

constexpr int kExperts = 32, kLayers = 8, kTopK = 4;

model::ModelConfig mixture() { return mixture_of(kLayers, kExperts); }

// The hottest expert is `first`, as many tokens as `tokens` choose.
std::vector<double> falling(int first, double tokens) {
  std::vector<double> load(kExperts);
  double all = 0.0;
  for (int e = 0; e < kExperts; ++e) all += load[(first + e) % kExperts] = std::pow(1.0 + e, -0.6);
  for (double& each : load) each *= tokens * kTopK / all;
  return load;
}

constexpr UpdateRateOptions kOptions{
    .layout = {.ep = 8, .num_slots = 40, .format = kernels::WeightFormat::kFp8},
    .tokens = 8192.0,
    .iteration_seconds = 0.02,
    .spare_bytes = 1e12};

// Windows of `iterations` iterations each, in which the hottest experts are these.
Result<UpdateRates> weigh(const std::vector<int>& hottest, double iterations,
                          UpdateRateOptions options = kOptions) {
  balance::WindowedLoad windows{.num_experts = kExperts};
  balance::ModelLoad planned{.num_experts = kExperts};
  balance::Windows of_layer;
  for (const int first : hottest) of_layer.push_back(falling(first, iterations * options.tokens));
  for (int layer = 0; layer < kLayers; ++layer) {
    windows.layers.push_back(layer);
    planned.layers.push_back(layer);
    windows.load.push_back(of_layer);
    planned.load.push_back(of_layer[0]);
  }
  return weigh_update_rates(cost::shipped_hardware("h100_sxm").value(), mixture(), planned, windows,
                            options);
}

TEST(UpdateRates, ASteadyLoadNeedsNone) {
  const auto found = weigh({0, 0, 0, 0}, 100);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->best, 0);
  EXPECT_THAT(found->reason, HasSubstr("updates 0 (static): imbalance"));
  ASSERT_EQ(found->rates.size(), 5u);  // 0, 1, 2, 4, 8
}

TEST(UpdateRates, ALoadThatTurnsOnceIsFollowed) {
  const auto found = weigh({0, 16, 16, 16}, 100);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_GT(found->best, 0);
  const UpdateRate& still = found->rates.front();
  EXPECT_NEAR(still.age, 200.0, 1e-6);  // the first window is 1, 2 and 3 windows before the others
  for (size_t i = 1; i < found->rates.size(); ++i) {
    const UpdateRate& each = found->rates[i];
    EXPECT_LT(each.experts, still.experts);
    EXPECT_LT(each.imbalance, still.imbalance);
    EXPECT_GT(each.moves, 0.0);
  }
}

// A round of turns takes 9 iterations (8 layers and an empty turn) at rate 1 and 2 at rate 8: with
// windows of 6 iterations the slow one is later, and the load that it follows is older.
TEST(UpdateRates, AHigherRateIsEarlier) {
  const auto found = weigh({0, 16, 16, 16, 16}, 6);
  ASSERT_TRUE(found.ok()) << found.status().message();
  for (size_t i = 2; i < found->rates.size(); ++i) {
    EXPECT_LE(found->rates[i].age, found->rates[i - 1].age + 1e-9);
    EXPECT_LE(found->rates[i].experts, found->rates[i - 1].experts + 1e-9);
  }
  EXPECT_LT(found->rates.back().experts, found->rates[1].experts);
}

// By hand: the moves of one window, spread over the iterations of all that judge; what the link is
// busy for; what is written to the memory.
TEST(UpdateRates, CopiesTakeTheLinkAndTheMemory) {
  const auto found = weigh({0, 16, 16, 16}, 100);
  ASSERT_TRUE(found.ok()) << found.status().message();
  const cost::Hardware hardware = cost::shipped_hardware("h100_sxm").value();
  for (size_t i = 1; i < found->rates.size(); ++i) {
    const UpdateRate& each = found->rates[i];
    EXPECT_DOUBLE_EQ(each.link_share, each.bytes / hardware.host_link.bandwidth / 0.02);
    EXPECT_DOUBLE_EQ(each.copying, each.bytes / hardware.memory_bandwidth);
    EXPECT_DOUBLE_EQ(each.moves, found->rates[1].moves);
    const double moves = each.moves * 300;  // an integer
    EXPECT_NEAR(moves, std::round(moves), 1e-6);
    const double expert = 3.0 * 2048 * 1024 * cost::bytes_per_weight(kernels::WeightFormat::kFp8);
    EXPECT_GE(each.bytes * 300 * 8 + 1.0, moves * expert);
    EXPECT_DOUBLE_EQ(each.spare_bytes, 5 * std::min(each.rate, 2) * expert);
  }
}

// A link on which a window's copies take longer than the window brings them too late.
TEST(UpdateRates, ASlowLinkDelays) {
  UpdateRateOptions hasty = kOptions;
  hasty.iteration_seconds = 1e-5;
  const auto slow = weigh({0, 16, 16, 16}, 20, hasty), fast = weigh({0, 16, 16, 16}, 20);
  ASSERT_TRUE(slow.ok() && fast.ok());
  EXPECT_GT(slow->rates.back().experts, fast->rates.back().experts);
  EXPECT_DOUBLE_EQ(slow->rates.front().experts, fast->rates.front().experts);
}

TEST(UpdateRates, SayWhyNothingCanBeTold) {
  EXPECT_THAT(weigh({0}, 100)->reason, HasSubstr("statistics of one window do not tell"));
  UpdateRateOptions options = kOptions;
  options.layout.ep = 1;
  options.layout.num_slots = 32;
  EXPECT_THAT(weigh({0, 16}, 100, options)->reason, HasSubstr("every rank has all experts"));
  options = kOptions;
  options.spare_bytes = 1e3;
  const auto full = weigh({0, 16}, 100, options);
  EXPECT_EQ(full->best, 0);
  EXPECT_THAT(full->reason, HasSubstr("do not fit beside this batch"));
}

TEST(UpdateRates, RefuseStatisticsOfAnotherModel) {
  balance::ModelLoad planned = cost::uniform_load(kExperts, {0, 1});
  const balance::WindowedLoad windows{
      .num_experts = kExperts, .layers = {0, 1}, .load = {{planned.load}, {planned.load}}};
  const auto found = weigh_update_rates(cost::shipped_hardware("h100_sxm").value(), mixture(),
                                        planned, windows, kOptions);
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().message(), HasSubstr("2 layers of 32 experts, but the model has 8"));
}

}  // namespace
}  // namespace wideep::advise
