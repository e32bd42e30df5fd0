// SPDX-License-Identifier: Apache-2.0
//
// Small shapes are held against the best of all placements with the best shares, by trying each set
// of experts on each rank. Larger ones must be valid, not below the lower bound, and the same after
// the placer has planned another load. Giving up early is held both ways: a plan that is far better
// ends the search, one that is not changes nothing. A failure is imbalance left where spare slots
// are few.
#include "plan/placement_components.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace wideep::balance {
namespace {

std::vector<double> random_load(std::mt19937& random, int experts, double sigma) {
  std::lognormal_distribution<double> tokens(6.0, sigma);
  std::vector<double> load;
  for (int e = 0; e < experts; ++e) load.push_back(std::floor(tokens(random)));
  return load;
}

// The best of all placements with the best shares: each set of K experts on each rank.
double optimum(std::span<const double> load, const PlanShape& shape, Placement* placement,
               uint32_t first_set = 1) {
  std::vector<int32_t>& slots = placement->slot_to_expert;
  if (slots.size() == static_cast<size_t>(shape.num_slots)) {
    if (!check_placement(*placement).ok()) return std::numeric_limits<double>::infinity();
    return imbalance_ratio(*placement, load, resplit(*placement, load));
  }
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t set = first_set; set < 1u << shape.num_experts; ++set) {
    if (std::popcount(set) != shape.slots_per_rank()) continue;
    const size_t before = slots.size();
    for (int e = 0; e < shape.num_experts; ++e) {
      if ((set >> e & 1) != 0) slots.push_back(e);
    }
    best = std::min(best, optimum(load, shape, placement, set));
    slots.resize(before);
  }
  return best;
}

TEST(ComponentPlacer, ReachesTheOptimumOfSmallShapes) {
  std::mt19937 random(1);
  for (const PlanShape& shape :
       {PlanShape{6, 4, 8}, PlanShape{7, 4, 8}, PlanShape{7, 5, 10}, PlanShape{8, 3, 9}}) {
    ComponentPlacer placer(shape);
    for (int i = 0; i < 5; ++i) {
      const auto load = random_load(random, shape.num_experts, 0.4 * (1 + i));
      LayerPlan plan;
      placer.place(load, &plan);
      Placement placement{shape.num_experts, shape.ep_size, {}};
      EXPECT_NEAR(imbalance_ratio(plan.placement, load, plan.shares),
                  optimum(load, shape, &placement), 1e-6)
          << shape.num_experts << " experts, " << shape.ep_size << " ranks, load " << i;
    }
  }
}

TEST(ComponentPlacer, ValidPlansThatDoNotDependOnPlansBefore) {
  std::mt19937 random(2);
  for (int i = 0; i < 20; ++i) {
    const int ranks = 3 + i, per_rank = 2 + i % 4, slots = ranks * per_rank;
    const PlanShape shape{slots - 1 - i % (ranks - 2), ranks, slots};
    ComponentPlacer placer(shape);
    LayerPlan plan, again, other;
    const auto load = random_load(random, shape.num_experts, 1.0);
    placer.place(load, &plan);
    placer.place(random_load(random, shape.num_experts, 1.0), &other);
    placer.place(load, &again);
    ASSERT_TRUE(check_placement(plan.placement).ok());
    ASSERT_TRUE(check_shares(plan.placement, plan.shares).ok());
    ASSERT_EQ(plan.placement, again.placement);
    ASSERT_EQ(plan.shares, again.shares);
    ASSERT_LE(imbalance_lower_bound(load, shape, Split::kWeighted),
              imbalance_ratio(plan.placement, load, plan.shares) + 1e-9);
  }
}

// Where components are far worse than what there is, a short search shows it and a long one is not
// made; where they are better or near, they are what a long search finds.
TEST(ComponentPlacer, GivesUpWhereAPlanIsFarBetter) {
  std::mt19937 random(7);
  const PlanShape shape{32, 18, 36};
  ComponentPlacer placer(shape);
  const auto load = random_load(random, shape.num_experts, 0.7);
  LayerPlan plan, same, none;
  EXPECT_TRUE(placer.place(load, &plan));
  const double left = imbalance_ratio(plan.placement, load, plan.shares);
  ASSERT_GT(left, 0.01);
  EXPECT_TRUE(placer.place(load, &same, left));
  EXPECT_EQ(same.placement, plan.placement);
  EXPECT_FALSE(placer.place(load, &none, 0.5 * left));
  EXPECT_TRUE(none.placement.slot_to_expert.empty());
}

TEST(ComponentPlacer, LoadsWithoutTokensOrWithOneHotExpert) {
  const PlanShape shape{.num_experts = 10, .ep_size = 6, .num_slots = 12};
  ComponentPlacer placer(shape);
  LayerPlan plan;
  placer.place(std::vector<double>(10, 0.0), &plan);
  EXPECT_TRUE(check_shares(plan.placement, plan.shares).ok());
  std::vector<double> load(10, 0.0);
  load[3] = 1e15;  // two extra replicas at most: three ranks of six
  placer.place(load, &plan);
  EXPECT_NEAR(imbalance_ratio(plan.placement, load, plan.shares), 1.0, 1e-9);
}

}  // namespace
}  // namespace wideep::balance
