// SPDX-License-Identifier: Apache-2.0
//
// Logits whose softmax or sigmoid is simple, so that the weights of each method are worked out by
// hand. Where methods differ in one point, as a bias, a group judged by its best expert or its best
// two, an epsilon or a floor, the example is one in which this point decides. A failure sends
// tokens to other experts than the model was trained with.
#include "model/parts/router.h"

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
  select_experts(config, logits.data(), bias.empty() ? nullptr : bias.data(), s.experts.data(),
                 s.weights.data());
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

// √softplus(log(e^x² − 1)) = x.
TEST(Router, DeepseekV4TakesRootsOfSoftplus) {
  const RoutingConfig config{
      .method = RoutingMethod::kDeepseekV4, .num_experts = 3, .top_k = 2, .scaling_factor = 1.5f};
  const auto logit = [](double x) { return static_cast<float>(std::log(std::expm1(x * x))); };
  const std::vector<float> logits = {logit(2.0), logit(1.0), logit(0.5)};
  const auto s = select(config, logits, {0.0f, 0.0f, 3.0f});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{2, 0}));
  EXPECT_NEAR(s.weights[0], 1.5 * 0.5 / 2.5, 1e-6);
  EXPECT_NEAR(s.weights[1], 1.5 * 2.0 / 2.5, 1e-6);
  // Of experts that a table names.
  const std::vector<int32_t> named = {1, 2};
  std::vector<float> weights(2);
  weigh_experts(config, logits.data(), named.data(), weights.data());
  EXPECT_NEAR(weights[0], 1.5 * 1.0 / 1.5, 1e-6);
  EXPECT_NEAR(weights[1], 1.5 * 0.5 / 1.5, 1e-6);
  EXPECT_NEAR(select(config, {400.0f, -400.0f, -400.0f}).weights[0], 1.5, 1e-6);
}

TEST(Router, DeepseekWithoutNormalisationKeepsTheSigmoids) {
  const RoutingConfig config{
      .method = RoutingMethod::kDeepseekV3, .num_experts = 2, .top_k = 1, .normalize = false};
  EXPECT_NEAR(select(config, {1.0f, 3.0f}, {0, 0}).weights[0], sigmoid(3), 1e-6);
}

// The choice is the same, the weights are nearer to each other.
TEST(Router, CappedLogits) {
  const RoutingConfig config{
      .method = RoutingMethod::kDeepseekV3, .num_experts = 3, .top_k = 2, .logits_cap = 2.0f};
  const auto s = select(config, {1.0f, -1.0f, 6.0f}, {0, 0, 0});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{2, 0}));
  const double first = sigmoid(2 * std::tanh(3.0)), second = sigmoid(2 * std::tanh(0.5));
  EXPECT_NEAR(s.weights[0], first / (first + second), 1e-6);
  EXPECT_NEAR(s.weights[1], second / (first + second), 1e-6);
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

// Of Mistral 4: softmax, and groups judged by pairs.
TEST(Router, ScoresOfASoftmaxInGroupsByPairs) {
  const RoutingConfig config{.method = RoutingMethod::kDeepseekV2,
                             .num_experts = 6,
                             .top_k = 2,
                             .num_groups = 2,
                             .top_k_groups = 1,
                             .groups_by_pairs = true,
                             .scaling_factor = 2.0f};
  const auto s =
      select(config, {std::log(8.0f), -9.0f, -9.0f, std::log(6.0f), std::log(5.0f), -9.0f});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{3, 4}));
  EXPECT_NEAR(s.weights[0], 2.0 * 6 / 11, 1e-6);
  EXPECT_NEAR(s.weights[1], 2.0 * 5 / 11, 1e-6);
}

TEST(Router, RenormalizeNaiveDividesByTheSumOfTheChosen) {
  const auto s = select({.method = RoutingMethod::kRenormalizeNaive, .num_experts = 4, .top_k = 2},
                        {0.0f, std::log(3.0f), std::log(5.0f), std::log(2.0f)});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{2, 1}));
  EXPECT_NEAR(s.weights[0], 5.0 / 8, 1e-6);
  EXPECT_NEAR(s.weights[1], 3.0 / 8, 1e-6);
}

TEST(Router, Llama4WeighsWithSigmoidsOfLogits) {
  RoutingConfig config{
      .method = RoutingMethod::kLlama4, .num_experts = 3, .top_k = 2, .normalize = false};
  const auto s = select(config, {-1.0f, 2.0f, 0.5f});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{1, 2}));
  EXPECT_NEAR(s.weights[0], sigmoid(2), 1e-6);
  EXPECT_NEAR(s.weights[1], sigmoid(0.5), 1e-6);
  config.normalize = true;
  const auto shares = select(config, {-1.0f, 2.0f, 0.5f});
  EXPECT_EQ(shares.experts, s.experts);
  EXPECT_NEAR(shares.weights[0], sigmoid(2) / (sigmoid(2) + sigmoid(0.5)), 1e-6);
  EXPECT_NEAR(shares.weights[1], sigmoid(0.5) / (sigmoid(2) + sigmoid(0.5)), 1e-6);
}

// Sigmoids of both are 1 in float32.
TEST(Router, Llama4ChoosesByLogits) {
  const RoutingConfig config{.method = RoutingMethod::kLlama4, .num_experts = 3, .top_k = 1};
  EXPECT_EQ(select(config, {30.0f, -1.0f, 40.0f}).experts, std::vector<int32_t>{2});
}

TEST(Router, RenormalizeNaiveDividesByOtherNorms) {
  const auto s = select({.method = RoutingMethod::kRenormalizeNaive,
                         .num_experts = 3,
                         .top_k = 2,
                         .norm_power = 2.0f},
                        {0.0f, std::log(3.0f), std::log(4.0f)});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{2, 1}));
  EXPECT_NEAR(s.weights[0], 4.0 / 5, 1e-6);
  EXPECT_NEAR(s.weights[1], 3.0 / 5, 1e-6);
}

// Of 4, 3.9, 3.5 and −1 the first two are near to 4; without 4, the second and third to 3.9.
TEST(Router, SparseMixerWeighsAmongNearLogits) {
  RoutingConfig config{.method = RoutingMethod::kSparseMixer,
                       .num_experts = 4,
                       .top_k = 2,
                       .sparse_distance = 0.11f};
  const std::vector<float> logits = {3.5f, 4.0f, -1.0f, 3.9f};
  const auto s = select(config, logits);
  EXPECT_EQ(s.experts, (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(s.weights[0], 1 / (1 + std::exp(-0.1)), 1e-6);
  EXPECT_NEAR(s.weights[1], 1 / (1 + std::exp(-0.4)), 1e-6);
  config.sparse_distance = 0.0f;
  EXPECT_EQ(select(config, logits).weights, (std::vector<float>{1.0f, 1.0f}));
  config.sparse_distance = 10.0f;
  EXPECT_NEAR(select(config, logits).weights[0],
              1 / (1 + std::exp(-0.1) + std::exp(-0.5) + std::exp(-5.0)), 1e-6);
  // Below zero a logit's own size counts.
  config.sparse_distance = 0.6f;
  EXPECT_NEAR(select(config, {-1.0f, -2.0f, -3.0f, -9.0f}).weights[0], 1 / (1 + std::exp(-1.0)),
              1e-6);
  EXPECT_EQ(select(config, {0.0f, 0.0f, 0.0f, 0.0f}).experts, (std::vector<int32_t>{0, 1}));
}

TEST(Router, SigmoidRenormDividesSigmoidsByTheirSum) {
  const auto s = select({.method = RoutingMethod::kSigmoidRenorm, .num_experts = 3, .top_k = 2},
                        {2.0f, -1.0f, 1.0f});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{0, 2}));
  EXPECT_NEAR(s.weights[0], sigmoid(2) / (sigmoid(2) + sigmoid(1)), 1e-6);
  EXPECT_NEAR(s.weights[1], sigmoid(1) / (sigmoid(2) + sigmoid(1)), 1e-6);
}

TEST(Router, Minimax2SelectsWithTheBiasAndWeighsWithoutIt) {
  const auto s =
      select({.method = RoutingMethod::kMinimax2, .num_experts = 3, .top_k = 2, .epsilon = 0.0f},
             {2.0f, 1.0f, -3.0f}, {0.0f, 0.0f, 1.0f});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{2, 0}));
  const double sum = sigmoid(-3) + sigmoid(2);
  EXPECT_NEAR(s.weights[0], sigmoid(-3) / sum, 1e-6);
  EXPECT_NEAR(s.weights[1], sigmoid(2) / sum, 1e-6);
}

// LFM2's epsilon is large enough to see.
TEST(Router, TheEpsilonIsAddedToTheSum) {
  const RoutingConfig config{
      .method = RoutingMethod::kDeepseekV3, .num_experts = 2, .top_k = 1, .epsilon = 0.5f};
  EXPECT_NEAR(select(config, {1.0f, 0.0f}, {0, 0}).weights[0], sigmoid(1) / (sigmoid(1) + 0.5),
              1e-6);
}

TEST(Router, ErnieSelectsProbabilitiesWithABias) {
  const RoutingConfig config{
      .method = RoutingMethod::kErnie, .num_experts = 4, .top_k = 2, .epsilon = 1e-12f};
  const std::vector<float> logits = {std::log(4.0f), std::log(3.0f), std::log(2.0f), 0.0f};
  const auto s = select(config, logits, {0.0f, 0.0f, 0.0f, 0.9f});
  EXPECT_EQ(s.experts, (std::vector<int32_t>{3, 0}));
  EXPECT_NEAR(s.weights[0], 0.2, 1e-6);  // 1 / (1 + 4)
  EXPECT_NEAR(s.weights[1], 0.8, 1e-6);
  RoutingConfig floored = config;
  floored.epsilon = 0.9f;  // above the sum 0.5 of the chosen
  EXPECT_NEAR(select(floored, logits, {0.0f, 0.0f, 0.0f, 0.9f}).weights[1], 0.4 / 0.9, 1e-6);
}

// DeepSeek-V2 judges a group by its best expert, V3 by its best two.
TEST(Router, DeepseekV2KeepsTheGroupsWithTheBestExperts) {
  RoutingConfig config{.method = RoutingMethod::kDeepseekV2,
                       .num_experts = 4,
                       .top_k = 1,
                       .num_groups = 2,
                       .top_k_groups = 1,
                       .normalize = false,
                       .scaling_factor = 16.0f};
  const std::vector<float> logits = {std::log(5.0f), 0.0f, std::log(4.0f), std::log(4.0f)};
  const auto s = select(config, logits);
  EXPECT_EQ(s.experts, (std::vector<int32_t>{0}));
  EXPECT_NEAR(s.weights[0], 16.0 * 5 / 14, 1e-5);
  config.method = RoutingMethod::kDeepseekV3;
  EXPECT_EQ(select(config, logits, std::vector<float>(4)).experts, (std::vector<int32_t>{2}));
}

constexpr RoutingMethod kMethods[] = {
    RoutingMethod::kRenormalize,   RoutingMethod::kRenormalizeNaive, RoutingMethod::kDefault,
    RoutingMethod::kDeepseekV3,    RoutingMethod::kDeepseekV2,       RoutingMethod::kLlama4,
    RoutingMethod::kSigmoidRenorm, RoutingMethod::kMinimax2,         RoutingMethod::kErnie,
    RoutingMethod::kDeepseekV4,    RoutingMethod::kSparseMixer};

// One that would turn the choice round.
TEST(Router, MethodsWithoutABiasIgnoreIt) {
  const std::vector<float> logits = {2.0f, -1.0f, 1.0f}, bias = {0.0f, 9.0f, 0.0f};
  for (const RoutingMethod method : kMethods) {
    const bool corrects = method == RoutingMethod::kDeepseekV3 ||
                          method == RoutingMethod::kMinimax2 || method == RoutingMethod::kErnie ||
                          method == RoutingMethod::kDeepseekV4;
    const RoutingConfig config{.method = method, .num_experts = 3, .top_k = 2};
    const Selected plain = select(config, logits), biased = select(config, logits, bias);
    EXPECT_EQ(plain.experts, (std::vector<int32_t>{0, 2}));
    EXPECT_EQ(biased.experts, corrects ? (std::vector<int32_t>{1, 0}) : plain.experts);
    EXPECT_EQ(biased.weights == plain.weights, !corrects);
  }
}

TEST(Router, EqualScoresGoToTheLowerIds) {
  for (const RoutingMethod method : kMethods) {
    const auto s = select({.method = method, .num_experts = 8, .top_k = 3},
                          std::vector<float>(8, 0.5f), std::vector<float>(8));
    EXPECT_EQ(s.experts, (std::vector<int32_t>{0, 1, 2}));
  }
}

}  // namespace
}  // namespace wideep::model
