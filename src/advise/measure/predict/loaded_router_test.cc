// SPDX-License-Identifier: Apache-2.0
#include "measure/predict/loaded_router.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "measure/predict/engine_scale.h"
#include "model/parts/router.h"

namespace wideep::measure {
namespace {

constexpr float kDeviation = 2.0f;

// The counts of tokens that the fit has not seen.
std::vector<double> counts_of(const model::RoutingConfig& routing, const std::vector<float>& bias) {
  std::mt19937_64 random(77);
  std::normal_distribution<float> normal(0.0f, kDeviation);
  std::vector<float> logits(static_cast<size_t>(routing.num_experts)), weights(8);
  std::vector<int32_t> chosen(8);
  std::vector<double> counts(logits.size());
  for (int token = 0; token < 4000; ++token) {
    for (float& each : logits) each = normal(random);
    model::select_experts(routing, logits.data(), bias.data(), chosen.data(), weights.data());
    for (const int32_t expert : chosen) counts[static_cast<size_t>(expert)] += 1.0;
  }
  return counts;
}

TEST(BiasForLoad, NewTokensFollowTheLoad) {
  const model::RoutingConfig routing = scaled_model().routing;
  ASSERT_EQ(routing.top_k, 8);
  // Some experts get thirty times as much as others, in no order.
  std::vector<double> load;
  for (int e = 0; e < routing.num_experts; ++e) load.push_back(1.0 / (4.0 + (e * 37) % 128));
  const std::vector<double> followed = counts_of(routing, bias_for_load(routing, load, kDeviation));
  EXPECT_LT(load_distance(followed, load), 0.08);
  // Without it, tokens choose all alike.
  const std::vector<float> none(load.size(), 0.0f);
  EXPECT_GT(load_distance(counts_of(routing, none), load), 0.25);
}

TEST(LoadDistance, IsThePartThatWouldHaveToMove) {
  EXPECT_DOUBLE_EQ(load_distance({1.0, 3.0}, {2.0, 6.0}), 0.0);
  EXPECT_DOUBLE_EQ(load_distance({1.0, 0.0}, {0.0, 5.0}), 1.0);
  EXPECT_DOUBLE_EQ(load_distance({1.0, 1.0}, {3.0, 1.0}), 0.25);
}

TEST(LoadedTensors, DifferFromRandomOnesInTheBiasOnly) {
  const model::RoutingConfig routing = scaled_model().routing;
  balance::ModelLoad load{.num_experts = routing.num_experts, .layers = {2}};
  load.load.emplace_back(256, 1.0);
  load.load[0][7] = 20.0;
  const LoadedTensors loaded(1, routing, load);
  const weights::RandomTensors random(1);
  const auto name = [](int layer) {
    return fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", layer);
  };
  const auto bias = loaded.tensor(name(2), {256});
  ASSERT_TRUE(bias.ok());
  ASSERT_EQ((*bias)->dtype, Dtype::kF32);
  const auto* values = reinterpret_cast<const float*>((*bias)->bytes.data());
  EXPECT_GT(values[7], values[8] + 0.02f);
  for (const std::string& other : {name(3), std::string("model.norm.weight")}) {
    const auto a = loaded.tensor(other, {256}), b = random.tensor(other, {256});
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_TRUE(std::ranges::equal((*a)->bytes, (*b)->bytes)) << other;
  }
}

}  // namespace
}  // namespace wideep::measure
