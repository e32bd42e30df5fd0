// SPDX-License-Identifier: Apache-2.0
//
// TensorRT-LLM's greedy is the reference: on random shapes and loads, with ties, zeros and one hot
// expert, a plan must not be worse where the greedy keeps replicas apart, except within twice the
// tolerance. Equal bits everywhere rest on two more properties: every instruction set gives the
// same plan, and a planner keeps nothing of the plans before. A failure means that two machines
// plan differently, or that TensorRT-LLM's planner would have served users better.
#include "plan/planner_wideep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "plan/placement_trt.h"
#include "plan/replication.h"
#include "plan/search/search.h"

namespace wideep::balance {
namespace {

using ::testing::HasSubstr;

std::vector<double> random_load(std::mt19937& random, int experts) {
  const int kind = static_cast<int>(random() % 6);
  std::lognormal_distribution<double> lognormal(6.0, 0.3 + 0.4 * kind);
  std::vector<double> load;
  for (int e = 0; e < experts; ++e) load.push_back(std::floor(lognormal(random)));
  if (kind == 3) load[random() % load.size()] = 1e12;              // one hot expert, huge counts
  if (kind == 4) std::fill(load.begin(), load.end(), 7.0);         // ties
  if (kind == 5) std::fill_n(load.begin(), experts * 2 / 3, 0.0);  // zero loads
  return load;
}

PlanShape random_shape(std::mt19937& random) {
  const int experts = 1 + static_cast<int>(random() % 80);
  const int ranks = 1 + static_cast<int>(random() % 20);
  const int min = (experts + ranks - 1) / ranks;
  const int per_rank = std::min(experts, min + static_cast<int>(random() % 4));
  return {.num_experts = experts, .ep_size = ranks, .num_slots = per_rank * ranks};
}

bool replicas_apart(const Placement& placement) {
  for (int rank = 0; rank < placement.ep_size; ++rank) {
    const auto experts = placement.experts_of_rank(rank);
    if (std::set<int32_t>(experts.begin(), experts.end()).size() != experts.size()) return false;
  }
  return true;
}

std::vector<double> share_sums(const LayerPlan& plan) {
  std::vector<double> sums(static_cast<size_t>(plan.placement.num_experts), 0.0);
  for (size_t slot = 0; slot < plan.shares.size(); ++slot) {
    sums[static_cast<size_t>(plan.placement.slot_to_expert[slot])] += plan.shares[slot];
  }
  return sums;
}

double imbalance(const Placement& placement, std::span<const double> load) {
  return imbalance_ratio(rank_loads(placement, load, equal_shares(placement)));
}

LayerPlan plan_once(const PlanShape& shape, std::span<const double> load) {
  auto planner = make_wideep_planner(shape, {});
  LayerPlan plan;
  planner.value()->plan(load, &plan);
  return plan;
}

TEST(WideepPlanner, IsValidAndNotWorseThanTheGreedyOnRandomShapes) {
  std::mt19937 random(1);
  int compared = 0;
  for (int i = 0; i < 700; ++i) {
    const PlanShape shape = random_shape(random);
    const std::vector<double> load = random_load(random, shape.num_experts);
    const LayerPlan plan = plan_once(shape, load);
    SCOPED_TRACE(testing::Message() << "case " << i << ": E " << shape.num_experts << ", R "
                                    << shape.ep_size << ", S " << shape.num_slots);
    ASSERT_TRUE(check_placement(plan.placement).ok()) << check_placement(plan.placement).message();
    ASSERT_EQ(plan.placement.num_slots(), shape.num_slots);
    ASSERT_TRUE(replicas_apart(plan.placement));
    for (double sum : share_sums(plan)) ASSERT_NEAR(sum, 1.0, 1e-12);
    const Placement greedy = *plan_layer_trt(load, shape.ep_size, shape.num_slots);
    if (!replicas_apart(greedy)) continue;
    ++compared;
    const double tolerance = 2 * PlannerOptions{}.tolerance + 1e-5;
    ASSERT_LE(imbalance(plan.placement, load), std::max(imbalance(greedy, load) + 1e-5, tolerance));
  }
  EXPECT_GT(compared, 230);
}

TEST(WideepPlanner, TheHeaviestReplicaIsAsLightAsTheGreedys) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const PlanShape shape = random_shape(random);
    // Those have better uses for replicas: search/pairs.h, window_counts.h.
    if (shape.slots_per_rank() == 2 || shape.num_slots <= 48) continue;
    std::vector<double> load = random_load(random, shape.num_experts);
    for (double& tokens : load) tokens += 1;
    const std::vector<int> counts = replicate_trt(load, shape.num_slots);
    if (*std::max_element(counts.begin(), counts.end()) > shape.ep_size) continue;
    const LayerPlan plan = plan_once(shape, load);
    double greedy = 0, ours = 0;
    for (size_t e = 0; e < load.size(); ++e) greedy = std::max(greedy, load[e] / counts[e]);
    for (size_t slot = 0; slot < plan.shares.size(); ++slot) {
      const auto expert = static_cast<size_t>(plan.placement.slot_to_expert[slot]);
      ours = std::max(ours, load[expert] * plan.shares[slot]);
    }
    ASSERT_LE(ours, greedy * (1 + 1e-4)) << "case " << i;
  }
}

TEST(WideepPlanner, EveryInstructionSetGivesTheSamePlan) {
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    const PlanShape shape = random_shape(random);
    const std::vector<double> load = random_load(random, shape.num_experts);
    std::vector<std::vector<int32_t>> placements;
    for (const search::Search* table : search::all_searches()) {
      if (!table->supported()) continue;
      setenv("WIDEEP_ISA", std::string(table->isa).c_str(), 1);
      placements.push_back(plan_once(shape, load).placement.slot_to_expert);
    }
    unsetenv("WIDEEP_ISA");
    for (const auto& placement : placements) ASSERT_EQ(placement, placements[0]) << "case " << i;
  }
}

TEST(WideepPlanner, IsDeterministicAndKeepsNoState) {
  std::mt19937 random(4);
  const PlanShape shape{.num_experts = 60, .ep_size = 12, .num_slots = 72};
  const std::vector<double> load = random_load(random, 60), other = random_load(random, 60);
  auto planner = make_wideep_planner(shape, {});
  LayerPlan first, between, again;
  planner.value()->plan(load, &first);
  planner.value()->plan(other, &between);
  planner.value()->plan(load, &again);
  EXPECT_EQ(first.placement, again.placement);
  EXPECT_EQ(first.placement, plan_once(shape, load).placement);
}

// A power of two changes no bit of what the planner computes with; another factor could change how
// a load is rounded, by less than matters here.
TEST(WideepPlanner, OnlyRatiosOfLoadMatter) {
  std::mt19937 random(5);
  for (int i = 0; i < 50; ++i) {
    const PlanShape shape = random_shape(random);
    const std::vector<double> load = random_load(random, shape.num_experts);
    const LayerPlan plan = plan_once(shape, load);
    for (const double factor : {1024.0, 3.0, 0.1, 1e-6}) {
      std::vector<double> scaled = load;
      for (double& tokens : scaled) tokens *= factor;
      ASSERT_EQ(plan_once(shape, scaled).placement, plan.placement)
          << "case " << i << ", factor " << factor;
    }
  }
}

TEST(WideepPlanner, TwoSlotsPerRankBeatTheGreedyByFar) {
  std::mt19937 random(7);
  const PlanShape shape{.num_experts = 256, .ep_size = 144, .num_slots = 288};
  std::lognormal_distribution<double> lognormal(6.0, 0.7);
  double ours = 0, greedy = 0;
  for (int i = 0; i < 20; ++i) {
    std::vector<double> load;
    for (int e = 0; e < 256; ++e) load.push_back(std::floor(lognormal(random)));
    ours += imbalance(plan_once(shape, load).placement, load) / 20;
    greedy += imbalance(*plan_layer_trt(load, 144, 288), load) / 20;
  }
  EXPECT_LT(ours, 0.9 * greedy) << "greedy " << greedy;
}

TEST(WideepPlanner, LargeShapes) {
  std::mt19937 random(6);
  const PlanShape shape{.num_experts = 4096, .ep_size = 1024, .num_slots = 8192};
  const std::vector<double> load = random_load(random, 4096);
  const LayerPlan plan = plan_once(shape, load);
  EXPECT_TRUE(check_placement(plan.placement).ok());
  EXPECT_TRUE(replicas_apart(plan.placement));
}

TEST(WideepPlanner, RefusesMoreSlotsThanAllExpertsOnAllRanks) {
  const auto planner = make_wideep_planner({.num_experts = 4, .ep_size = 2, .num_slots = 10}, {});
  ASSERT_FALSE(planner.ok());
  EXPECT_THAT(planner.status().message(), HasSubstr("10 slots for 4 experts on 2 ranks"));
  EXPECT_THAT(planner.status().message(), HasSubstr("at most 8"));
}

}  // namespace
}  // namespace wideep::balance
