// SPDX-License-Identifier: Apache-2.0
#include "plan/placement_exact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

namespace wideep::balance {
namespace {

std::vector<double> random_load(std::mt19937& random, int experts) {
  std::lognormal_distribution<double> lognormal(3.0, static_cast<double>(random() % 5));
  std::vector<double> load;
  for (int e = 0; e < experts; ++e) load.push_back(random() % 4 == 0 ? 0.0 : lognormal(random));
  load[random() % load.size()] += 1.0;
  return load;
}

// Shapes with one spare slot per rank but one, or more.
PlanShape random_shape(std::mt19937& random) {
  const int ranks = 1 + static_cast<int>(random() % 40);
  const int per_rank = 1 + static_cast<int>(random() % 12);
  const int max = ranks * per_rank - (ranks - 1);
  const int min = per_rank;  // S ≤ E·R
  const int experts = min + static_cast<int>(random() % static_cast<unsigned>(max - min + 1));
  return {.num_experts = experts, .ep_size = ranks, .num_slots = ranks * per_rank};
}

TEST(PlaceExact, EveryRankCarriesTheMeanForAnyLoad) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const PlanShape shape = random_shape(random);
    const std::vector<double> load = random_load(random, shape.num_experts);
    LayerPlan plan;
    place_exact(load, shape, &plan);
    SCOPED_TRACE(testing::Message() << "case " << i << ": E " << shape.num_experts << ", R "
                                    << shape.ep_size << ", S " << shape.num_slots);
    ASSERT_TRUE(check_placement(plan.placement).ok()) << check_placement(plan.placement).message();
    std::vector<double> sums(load.size(), 0.0);
    for (size_t slot = 0; slot < plan.shares.size(); ++slot) {
      ASSERT_GE(plan.shares[slot], 0.0);
      sums[static_cast<size_t>(plan.placement.slot_to_expert[slot])] += plan.shares[slot];
    }
    for (double sum : sums) ASSERT_NEAR(sum, 1.0, 1e-9);
    ASSERT_LE(imbalance_ratio(rank_loads(plan.placement, load, plan.shares)), 1e-9);
  }
}

TEST(PlaceExact, KeepsReplicasApart) {
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    const PlanShape shape = random_shape(random);
    LayerPlan plan;
    place_exact(random_load(random, shape.num_experts), shape, &plan);
    for (int rank = 0; rank < shape.ep_size; ++rank) {
      const auto experts = plan.placement.experts_of_rank(rank);
      ASSERT_EQ(std::set<int32_t>(experts.begin(), experts.end()).size(), experts.size())
          << "case " << i << ", rank " << rank;
    }
  }
}

TEST(PlaceExact, SharesOfOneHotExpert) {
  const PlanShape shape{.num_experts = 3, .ep_size = 2, .num_slots = 4};
  const std::vector<double> load = {8, 1, 1};
  LayerPlan plan;
  place_exact(load, shape, &plan);
  const std::vector<double> ranks = rank_loads(plan.placement, load, plan.shares);
  EXPECT_DOUBLE_EQ(ranks[0], 5);
  EXPECT_DOUBLE_EQ(ranks[1], 5);
}

TEST(PlaceExact, NeedsASpareSlotOnAllRanksButOne) {
  EXPECT_TRUE(exact_placement_exists({.num_experts = 7, .ep_size = 4, .num_slots = 12}));
  EXPECT_TRUE(exact_placement_exists({.num_experts = 9, .ep_size = 4, .num_slots = 12}));
  EXPECT_FALSE(exact_placement_exists({.num_experts = 10, .ep_size = 4, .num_slots = 12}));
}

}  // namespace
}  // namespace wideep::balance
