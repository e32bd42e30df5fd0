// SPDX-License-Identifier: Apache-2.0
//
// With dead ranks every planner has a reference: the plan it makes for the live ranks alone. Ranks
// of unequal memory have none; there a plan must use every usable slot, keep replicas apart and not
// be below the bound. A failure means that an expert is placed where nobody serves it, or that a
// group which has lost a rank is balanced worse than it could be.
#include "plan/planner_masked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "plan/live_ranks.h"

namespace wideep::balance {
namespace {

using ::testing::HasSubstr;

constexpr Split kSplits[] = {Split::kEqual, Split::kWeighted};

std::vector<double> random_load(std::mt19937& random, int experts) {
  const int kind = static_cast<int>(random() % 5);
  std::lognormal_distribution<double> lognormal(6.0, 0.3 + 0.4 * kind);
  std::vector<double> load;
  for (int e = 0; e < experts; ++e) load.push_back(std::floor(lognormal(random)));
  if (kind == 3) load[random() % load.size()] = 1e12;
  if (kind == 4) std::fill_n(load.begin(), experts * 2 / 3, 0.0);
  return load;
}

// Some ranks dead, the others with all slots.
PlanShape shape_with_dead_ranks(std::mt19937& random) {
  const int experts = 1 + static_cast<int>(random() % 50);
  const int live = 1 + static_cast<int>(random() % 10), dead = static_cast<int>(random() % 4);
  const int min = (experts + live - 1) / live;
  const int per_rank = std::min(experts, min + static_cast<int>(random() % 3));
  PlanShape shape{.num_experts = experts, .ep_size = live + dead, .num_slots = 0};
  shape.num_slots = per_rank * shape.ep_size;
  shape.rank_slots.assign(static_cast<size_t>(live), per_rank);
  shape.rank_slots.resize(static_cast<size_t>(shape.ep_size), 0);
  std::shuffle(shape.rank_slots.begin(), shape.rank_slots.end(), random);
  return shape;
}

// Any number of slots on each rank that holds all experts.
PlanShape shape_with_unequal_memory(std::mt19937& random) {
  const int experts = 1 + static_cast<int>(random() % 40);
  const int ranks = 1 + static_cast<int>(random() % 10);
  const int min = (experts + ranks - 1) / ranks;
  const int max = min + static_cast<int>(random() % static_cast<unsigned>(experts - min + 1));
  PlanShape shape{.num_experts = experts, .ep_size = ranks, .num_slots = max * ranks};
  for (int rank = 0; rank < ranks; ++rank) {
    shape.rank_slots.push_back(static_cast<int>(random() % static_cast<unsigned>(max + 1)));
  }
  for (int& slots : shape.rank_slots) {
    while (slots < max && shape.num_usable_slots() < experts) ++slots;
  }
  return shape;
}

LayerPlan plan_once(std::string_view name, const PlanShape& shape, std::span<const double> load,
                    Split split) {
  auto planner = make_planner(name, shape, {.split = split});
  LayerPlan plan;
  const std::vector<int64_t> pairs(load.size() * load.size(), 1);
  planner.value()->plan({load, pairs}, &plan);
  return plan;
}

void check_plan(const PlanShape& shape, const LayerPlan& plan, bool apart) {
  ASSERT_TRUE(check_placement(plan.placement).ok()) << check_placement(plan.placement).message();
  ASSERT_EQ(plan.placement.num_slots(), shape.num_slots);
  std::vector<double> sums(static_cast<size_t>(shape.num_experts), 0.0);
  for (int slot = 0; slot < shape.num_slots; ++slot) {
    const int32_t expert = plan.placement.slot_to_expert[static_cast<size_t>(slot)];
    const double share = plan.shares[static_cast<size_t>(slot)];
    const int rank = plan.placement.rank_of_slot(slot);
    const bool usable = slot % shape.slots_per_rank() < shape.usable_slots_of(rank);
    ASSERT_EQ(expert != kUnusedSlot, usable) << "slot " << slot;
    ASSERT_GE(share, 0.0);
    if (usable) sums[static_cast<size_t>(expert)] += share;
    if (!usable) {
      ASSERT_EQ(share, 0.0);
    }
  }
  for (double sum : sums) ASSERT_NEAR(sum, 1.0, 1e-11);
  for (int rank = 0; apart && rank < shape.ep_size; ++rank) {
    const auto experts = plan.placement.experts_of_rank(rank).first(
        static_cast<size_t>(shape.usable_slots_of(rank)));
    ASSERT_EQ(std::set<int32_t>(experts.begin(), experts.end()).size(), experts.size());
  }
}

TEST(MaskedPlanner, PlansTheLiveRanksAsIfAlone) {
  std::mt19937 random(1);
  for (int i = 0; i < 150; ++i) {
    const PlanShape shape = shape_with_dead_ranks(random);
    const std::vector<double> load = random_load(random, shape.num_experts);
    const LiveRanks live(shape);
    for (const std::string& name : planner_names()) {
      if (needs_pair_counts(name) && i % 25 != 0) continue;  // takes longer
      for (Split split : kSplits) {
        SCOPED_TRACE(testing::Message() << "case " << i << ", planner " << name);
        const LayerPlan plan = plan_once(name, shape, load, split);
        ASSERT_NO_FATAL_FAILURE(check_plan(shape, plan, name == "wideep"));
        const LayerPlan small = plan_once(name, live.shape(), load, split);
        Placement kept;
        live.contract(plan.placement, &kept);
        ASSERT_EQ(kept, small.placement);
        ASSERT_NEAR(imbalance_ratio(plan.placement, load, plan.shares),
                    imbalance_ratio(small.placement, load, small.shares), 1e-12);
        ASSERT_EQ(imbalance_lower_bound(load, shape, split),
                  imbalance_lower_bound(load, live.shape(), split));
      }
    }
  }
}

TEST(MaskedPlanner, UnequalMemoryIsUsedToTheLastSlotAndNotBelowTheBound) {
  std::mt19937 random(2);
  for (int i = 0; i < 600; ++i) {
    const PlanShape shape = shape_with_unequal_memory(random);
    const std::vector<double> load = random_load(random, shape.num_experts);
    for (Split split : kSplits) {
      SCOPED_TRACE(testing::Message() << "case " << i);
      const LayerPlan plan = plan_once("wideep", shape, load, split);
      ASSERT_NO_FATAL_FAILURE(check_plan(shape, plan, true));
      const double reached = imbalance_ratio(plan.placement, load, plan.shares);
      ASSERT_GE(reached, imbalance_lower_bound(load, shape, split) - 1e-9);
      ASSERT_EQ(plan_once("wideep", shape, load, split).shares, plan.shares);
    }
  }
}

TEST(MaskedPlanner, UnequalMemoryIsBalancedAsWellAsEqualMemory) {
  std::mt19937 random(3);
  std::lognormal_distribution<double> lognormal(6.0, 0.7);
  PlanShape shape{.num_experts = 128, .ep_size = 16, .num_slots = 192};
  for (int rank = 0; rank < 16; ++rank) shape.rank_slots.push_back(rank % 4 == 0 ? 7 : 11);
  double equal = 0, weighted = 0;
  for (int i = 0; i < 10; ++i) {
    std::vector<double> load;
    for (int e = 0; e < 128; ++e) load.push_back(std::floor(lognormal(random)));
    const LayerPlan even = plan_once("wideep", shape, load, Split::kEqual);
    const LayerPlan shared = plan_once("wideep", shape, load, Split::kWeighted);
    equal += imbalance_ratio(even.placement, load, even.shares) / 10;
    weighted += imbalance_ratio(shared.placement, load, shared.shares) / 10;
  }
  EXPECT_LT(equal, 0.002);
  EXPECT_LT(weighted, 0.001);
}

// The load alone asks for 4, 4, 1 and 1 replicas, but two ranks have room for every expert once.
TEST(MaskedPlanner, ReplicasStayApartWhereBigRanksNeedAllExperts) {
  const std::vector<double> load = {100, 100, 1, 1};
  const PlanShape shape{
      .num_experts = 4, .ep_size = 4, .num_slots = 16, .rank_slots = {4, 4, 1, 1}};
  ASSERT_NO_FATAL_FAILURE(check_plan(shape, plan_once("wideep", shape, load, Split::kEqual), true));
}

TEST(MaskedPlanner, LowerBoundCountsTheMemoryOfSmallRanks) {
  const PlanShape shape{.num_experts = 6, .ep_size = 3, .num_slots = 15, .rank_slots = {1, 1, 5}};
  const std::vector<double> load(6, 1.0);
  EXPECT_NEAR(imbalance_lower_bound(load, shape, Split::kWeighted), 1.0,
              1e-6);  // 4 where 2 is even
  EXPECT_NEAR(imbalance_lower_bound(load, shape, Split::kEqual), 1.0, 1e-6);
}

TEST(MaskedPlanner, IsDeterministicAndKeepsNoState) {
  std::mt19937 random(4);
  const PlanShape shape{
      .num_experts = 12, .ep_size = 4, .num_slots = 24, .rank_slots = {6, 0, 5, 3}};
  const std::vector<double> load = random_load(random, 12), other = random_load(random, 12);
  for (Split split : kSplits) {
    auto planner = make_planner("wideep", shape, {.split = split});
    LayerPlan first, again;
    planner.value()->plan(load, &first);
    planner.value()->plan(other, &again);
    planner.value()->plan(load, &again);
    EXPECT_EQ(first.placement, again.placement);
    EXPECT_EQ(first.shares, again.shares);
  }
}

TEST(MaskedPlanner, ErrorsNameWhatDoesNotFit) {
  const auto refusal = [](std::string_view name, const PlanShape& shape) {
    return make_planner(name, shape, {}).status().message();
  };
  PlanShape shape{.num_experts = 8, .ep_size = 4, .num_slots = 16, .rank_slots = {4, 4, 4}};
  EXPECT_THAT(refusal("wideep", shape), HasSubstr("each of 4 ranks, found 3"));
  shape.rank_slots = {4, 4, 4, 5};
  EXPECT_THAT(refusal("trt", shape), HasSubstr("rank 3: expected 0 to 4 usable slots"));
  shape.rank_slots = {4, 0, 0, 0};
  EXPECT_THAT(refusal("wideep", shape), HasSubstr("4 usable slots on 1 live ranks cannot hold 8"));
  shape.rank_slots = {4, 3, 0, 4};
  EXPECT_THAT(refusal("deepseek", shape), HasSubstr("found 3 to 4; use planner wideep"));
  shape.num_nodes = shape.num_groups = 2;
  EXPECT_THAT(refusal("wideep", shape), HasSubstr("2 groups kept on 2 nodes"));
  shape = {.num_experts = 2, .ep_size = 2, .num_slots = 8, .rank_slots = {4, 1}};
  EXPECT_THAT(refusal("wideep", shape), HasSubstr("4 usable slots for 2 experts"));
}

}  // namespace
}  // namespace wideep::balance
