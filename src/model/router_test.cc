// SPDX-License-Identifier: Apache-2.0
#include "model/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace wideep::model {
namespace {

struct Selected {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Selected select(const RoutingConfig& config, const std::vector<float>& logits,
                const std::vector<float>& bias = {}) {
  Selected s{std::vector<int32_t>(config.top_k), std::vector<float>(config.top_k)};
  select_experts(config, logits.data(), bias.data(), s.experts.data(), s.weights.data());
  return s;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(Router, DefaultKeepsTheSoftmaxOverAll) {
  const auto s = select({.method = RoutingMethod::kDefault, .num_experts = 4, .top_k = 2},
                        {0.0f, std::log(2.0f), std::log(5.0f), std::log(2.0f)});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{2, 1}));  // the tie goes to expert 1
  EXPECT_NEAR(s.weights[0], 0.5, 1e-6);
  EXPECT_NEAR(s.weights[1], 0.2, 1e-6);
}

TEST(Router, RenormalizeIsTheSoftmaxOverTheChosen) {
  const auto s = select({.method = RoutingMethod::kRenormalize, .num_experts = 4, .top_k = 2},
                        {0.0f, std::log(3.0f), std::log(5.0f), std::log(2.0f)});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{2, 1}));
  EXPECT_NEAR(s.weights[0], 5.0 / 8, 1e-6);
  EXPECT_NEAR(s.weights[1], 3.0 / 8, 1e-6);
}

TEST(Router, DeepseekSelectsWithTheBiasAndWeighsWithoutIt) {
  const RoutingConfig config{
      .method = RoutingMethod::kDeepseekV3, .num_experts = 3, .top_k = 2, .scaling_factor = 2.5f};
  const auto s = select(config, {2.0f, 1.0f, 0.0f}, {0.0f, 0.0f, 1.0f});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{2, 0}));
  const double sum = sigmoid(0) + sigmoid(2);
  EXPECT_NEAR(s.weights[0], 2.5 * sigmoid(0) / sum, 1e-6);
  EXPECT_NEAR(s.weights[1], 2.5 * sigmoid(2) / sum, 1e-6);
}

TEST(Router, DeepseekWithoutNormalisationKeepsTheSigmoids) {
  const RoutingConfig config{
      .method = RoutingMethod::kDeepseekV3, .num_experts = 2, .top_k = 1, .normalize = false};
  EXPECT_NEAR(select(config, {1.0f, 3.0f}, {0, 0}).weights[0], sigmoid(3), 1e-6);
}

// Group 0 holds the single best expert, group 1 the best pair: only group 1 is kept.
TEST(Router, DeepseekKeepsTheGroupWithTheBestTwo) {
  const RoutingConfig config{.method = RoutingMethod::kDeepseekV3,
                             .num_experts = 6,
                             .top_k = 2,
                             .num_groups = 2,
                             .top_k_groups = 1};
  const auto s = select(config, {4.0f, -9.0f, -9.0f, 1.0f, 2.0f, -9.0f}, std::vector<float>(6));
  EXPECT_EQ(s.experts, (std::vector<int32_t>{4, 3}));
}

// A dropped group stays dropped where s + bias < 0 in the kept one (−∞, not 0, masks it).
TEST(Router, DeepseekNegativeScoresDoNotReviveDroppedGroups) {
  const RoutingConfig config{.method = RoutingMethod::kDeepseekV3,
                             .num_experts = 4,
                             .top_k = 2,
                             .num_groups = 2,
                             .top_k_groups = 1};
  const auto s = select(config, {0.0f, -1.0f, -2.0f, -3.0f}, {-5.0f, -5.0f, -7.0f, -7.0f});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{0, 1}));
}

TEST(Router, EqualScoresGoToTheLowerIds) {
  for (auto method :
       {RoutingMethod::kDefault, RoutingMethod::kRenormalize, RoutingMethod::kDeepseekV3}) {
    const auto s = select({.method = method, .num_experts = 8, .top_k = 3},
                          std::vector<float>(8, 0.5f), std::vector<float>(8));
    EXPECT_EQ(s.experts, (std::vector<int32_t>{0, 1, 2}));
  }
}

}  // namespace
}  // namespace wideep::model
