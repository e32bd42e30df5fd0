// SPDX-License-Identifier: Apache-2.0
#include "plan/assessment.h"

#include <gtest/gtest.h>

namespace wideep::balance {
namespace {

ModelLoad one_layer(std::vector<double> load) {
  return {.num_experts = static_cast<int>(load.size()), .layers = {3}, .load = {std::move(load)}};
}

TEST(CountNewPairs, CountsExpertsThatARankLacked) {
  const Placement before{4, 2, {0, 1, 2, 3}};
  EXPECT_EQ(count_new_pairs(before, before), 0);
  EXPECT_EQ(count_new_pairs(before, {4, 2, {1, 0, 3, 2}}), 0);  // only places within ranks
  EXPECT_EQ(count_new_pairs(before, {4, 2, {2, 1, 0, 3}}), 2);
  EXPECT_EQ(count_new_pairs(before, {4, 2, {0, 1, 2, 2, 3, 0}}), 2);  // 2 to rank 0, 0 to rank 1
  EXPECT_EQ(count_new_pairs(before, {4, 2, {0, 1, 1, 2, 3, 3}}), 0);  // doubles need no copy
}

TEST(HasTwoReplicasOnARank, FindsRepeatedExperts) {
  EXPECT_FALSE(has_two_replicas_on_a_rank({3, 2, {0, 1, 1, 2}}));
  EXPECT_TRUE(has_two_replicas_on_a_rank({2, 2, {0, 1, 1, 1}}));
}

TEST(DefaultModelPlacement, RoundsTheSlotsUp) {
  const ModelPlacement placement = default_model_placement(one_layer({1, 1, 1, 1, 1}), 2);
  EXPECT_EQ(placement.num_slots, 6);
  EXPECT_EQ(placement.layers.at(3).ep_size, 2);
}

// Rank loads 40 and 20 of mean 30 before. The plan splits expert 0: {0, 1}, {0, 2} carry 15 + 10
// and 15 + 20, or 20 + 10 and 10 + 20 with shares 2/3 and 1/3.
TEST(Assess, ComputesEveryFigure) {
  const ModelLoad load = one_layer({30, 10, 20});
  const WindowedLoad later{.num_experts = 3, .layers = {3}, .load = {{{30, 20, 10}, {60, 20, 40}}}};
  ModelPlacement before;
  before.layers[3] = {3, 2, {0, 1, 2, 2}};
  PlannedModel plan;
  plan.placement.layers[3] = {3, 2, {0, 1, 0, 2}};
  plan.shares[3] = {2.0 / 3, 1, 1.0 / 3, 1};
  const std::vector<double> bounds = {0.0};
  const Assessment result =
      assess({.load = &load, .held_out = &later, .before = &before, .bounds = bounds}, plan);
  ASSERT_EQ(result.layers.size(), 1u);
  for (const Figures& figures : {result.layers[0], result.mean}) {
    EXPECT_NEAR(figures.imbalance_now, 1.0 / 3, 1e-12);
    EXPECT_NEAR(figures.imbalance_equal, 1.0 / 6, 1e-12);
    EXPECT_NEAR(figures.imbalance_weighted, 0.0, 1e-9);
    EXPECT_NEAR(figures.imbalance(Split::kEqual), 1.0 / 6, 1e-12);
    EXPECT_EQ(figures.moves, 1);
    EXPECT_NEAR(*figures.imbalance_now_held_out, 0.5, 1e-12);  // 50 of 30, and 80 of 60
    EXPECT_NEAR(*figures.imbalance_held_out, 1.0 / 6, 1e-12);  // 20 + 20 of 30, and none
    EXPECT_NEAR(*figures.imbalance_held_out_resplit, 0.0, 1e-9);
  }
}

TEST(Assess, HeldOutFiguresOnlyWhereThereIsHeldOutLoad) {
  const ModelLoad load = one_layer({1, 1});
  const ModelPlacement before = default_model_placement(load, 2);
  PlannedModel plan{before, {{3, {1, 1}}}};
  const std::vector<double> bounds = {0.0};
  const Assessment result = assess({.load = &load, .before = &before, .bounds = bounds}, plan);
  EXPECT_FALSE(result.layers[0].imbalance_held_out);
  EXPECT_FALSE(result.mean.imbalance_now_held_out);
  EXPECT_FALSE(result.mean.imbalance_held_out_resplit);
}

// Rank 2 lives and is idle: of loads 20, 20 and 0 the highest is half above the mean.
TEST(Assess, AnIdleLiveRankCounts) {
  const ModelLoad load = one_layer({20, 20});
  const WindowedLoad later{.num_experts = 2, .layers = {3}, .load = {{{20, 20}}}};
  ModelPlacement idle;
  idle.layers[3] = {2, 3, {0, 1, kUnusedSlot}};
  const PlannedModel plan{idle, {{3, {1, 1, 0}}}};
  const std::vector<double> bounds = {0.5};
  Measure measure{.load = &load, .held_out = &later, .before = &idle, .bounds = bounds};
  EXPECT_NEAR(assess(measure, plan).mean.imbalance_now, 0.0, 1e-12);
  measure.num_live_ranks = 3;
  const Figures figures = assess(measure, plan).mean;
  for (const double found : {figures.imbalance_now, figures.imbalance_equal,
                             figures.imbalance_weighted, *figures.imbalance_now_held_out,
                             *figures.imbalance_held_out, *figures.imbalance_held_out_resplit}) {
    EXPECT_NEAR(found, 0.5, 1e-12);
  }
}

TEST(EffectiveShape, TrtIgnoresNodesAndGroups) {
  const PlanShape shape{
      .num_experts = 8, .ep_size = 4, .num_slots = 8, .num_nodes = 2, .num_groups = 4};
  EXPECT_EQ(effective_shape("deepseek", shape), shape);
  EXPECT_EQ(effective_shape("trt", shape).num_nodes, 1);
  EXPECT_EQ(effective_shape("trt", shape).num_groups, 1);
}

}  // namespace
}  // namespace wideep::balance
