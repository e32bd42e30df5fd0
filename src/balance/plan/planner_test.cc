// SPDX-License-Identifier: Apache-2.0
//
// Planners by name, as other programs ask for them: valid plans, groups that stay on their node,
// and refusals. Two promises of planner wideep are held on random loads: with a weighted split and
// R − 1 spare slots every load is balanced perfectly, and with groups a plan is not worse than
// DeepSeek's.
#include "wideep/balancer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

namespace wideep::balance {
namespace {

using ::testing::HasSubstr;

std::vector<double> random_load(std::mt19937& random, int experts) {
  std::lognormal_distribution<double> lognormal(4.0, 0.2 + 0.6 * static_cast<double>(random() % 4));
  std::vector<double> load;
  for (int e = 0; e < experts; ++e) load.push_back(std::floor(lognormal(random)));
  return load;
}

LayerPlan plan_once(std::string_view name, const PlanShape& shape, const PlannerOptions& options,
                    std::span<const double> load) {
  LayerPlan plan;
  auto planner = make_planner(name, shape, options);
  EXPECT_TRUE(planner.ok()) << planner.status().message();
  const std::vector<int64_t> pairs(load.size() * load.size(), 1);
  planner.value()->plan({load, pairs}, &plan);
  return plan;
}

double imbalance(const LayerPlan& plan, std::span<const double> load) {
  return imbalance_ratio(rank_loads(plan.placement, load, plan.shares));
}

TEST(Planner, EveryNameGivesAValidPlanForBothSplits) {
  std::mt19937 random(1);
  const PlanShape shape{.num_experts = 24, .ep_size = 6, .num_slots = 36};
  const std::vector<double> load = random_load(random, 24);
  for (const std::string& name : planner_names()) {
    const LayerPlan equal = plan_once(name, shape, {}, load);
    const LayerPlan weighted = plan_once(name, shape, {.split = Split::kWeighted}, load);
    EXPECT_TRUE(check_placement(equal.placement).ok()) << name;
    EXPECT_EQ(equal.shares, equal_shares(equal.placement)) << name;
    EXPECT_TRUE(check_placement(weighted.placement).ok()) << name;
    EXPECT_LE(imbalance(weighted, load), imbalance(equal, load) + 1e-9) << name;
  }
}

TEST(Planner, WeightedIsPerfectForAnyLoadWithOneSpareSlotPerRank) {
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    const int ranks = 2 + static_cast<int>(random() % 30);
    const int per_rank = 2 + static_cast<int>(random() % 8);
    const PlanShape shape{
        .num_experts = ranks * (per_rank - 1) + 1, .ep_size = ranks, .num_slots = ranks * per_rank};
    const std::vector<double> load = random_load(random, shape.num_experts);
    const LayerPlan plan = plan_once("wideep", shape, {.split = Split::kWeighted}, load);
    ASSERT_LE(imbalance(plan, load), 1e-6) << "case " << i;
  }
}

TEST(Planner, GroupsStayOnTheirNode) {
  std::mt19937 random(3);
  const PlanShape shape{
      .num_experts = 64, .ep_size = 16, .num_slots = 96, .num_nodes = 4, .num_groups = 8};
  const std::vector<double> load = random_load(random, 64);
  for (const char* name : {"wideep", "deepseek"}) {
    const LayerPlan plan = plan_once(name, shape, {}, load);
    ASSERT_TRUE(check_placement(plan.placement).ok()) << name;
    std::vector<std::set<int>> nodes_of_group(8);
    for (int slot = 0; slot < 96; ++slot) {
      const int group = plan.placement.slot_to_expert[static_cast<size_t>(slot)] / 8;
      nodes_of_group[static_cast<size_t>(group)].insert(slot / 24);
    }
    for (const auto& nodes : nodes_of_group) EXPECT_EQ(nodes.size(), 1U) << name;
  }
}

TEST(Planner, WithGroupsNotWorseThanDeepSeek) {
  std::mt19937 random(4);
  const PlanShape shape{
      .num_experts = 64, .ep_size = 16, .num_slots = 96, .num_nodes = 2, .num_groups = 8};
  for (int i = 0; i < 50; ++i) {
    const std::vector<double> load = random_load(random, 64);
    const double ours = imbalance(plan_once("wideep", shape, {}, load), load);
    const double deepseek = imbalance(plan_once("deepseek", shape, {}, load), load);
    EXPECT_LE(ours, deepseek + 2e-3) << "case " << i;
  }
}

TEST(Planner, RefusesInvalidOptionsAndShapes) {
  const PlanShape shape{.num_experts = 8, .ep_size = 4, .num_slots = 8};
  const auto message = [](std::string_view name, const PlanShape& s) {
    return make_planner(name, s, {}).status().message();
  };
  EXPECT_THAT(message("best", shape), HasSubstr("expected one of wideep, trt, deepseek"));
  PlanShape bad = shape;
  bad.num_nodes = 3;
  EXPECT_THAT(message("wideep", bad), HasSubstr("divisor of the 4 ranks, found 3"));
  bad = shape;
  bad.num_groups = 3;
  EXPECT_THAT(message("deepseek", bad), HasSubstr("divisor of the 8 experts, found 3"));
  bad = shape;
  bad.num_slots = 36;
  EXPECT_THAT(message("wideep", bad), HasSubstr("gains nothing; expected at most 32"));
  PlanShape huge = shape;
  huge.num_slots = 1'000'000'000;
  for (const char* name : {"wideep", "trt", "deepseek"}) {
    EXPECT_THAT(message(name, huge), HasSubstr("expected at most 1048576, found 1000000000"));
  }
  bad = shape;
  bad.num_nodes = 4;
  bad.num_groups = 2;
  EXPECT_THAT(message("wideep", bad), HasSubstr("multiple of the 4 nodes, found 2"));
}

}  // namespace
}  // namespace wideep::balance
