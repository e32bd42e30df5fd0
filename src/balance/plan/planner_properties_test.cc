// SPDX-License-Identifier: Apache-2.0
//
// What holds for every plan of wideep, whatever the shape and the load.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "plan/placement_trt.h"
#include "wideep/balancer.h"

namespace wideep::balance {
namespace {

constexpr double kRounding = 1e-9;

struct Case {
  PlanShape shape;
  std::vector<double> load;
};

// One slot more, or none, on every rank; up to every expert on every rank; one rank.
PlanShape random_shape(std::mt19937& random) {
  PlanShape shape;
  shape.ep_size = random() % 8 == 0 ? 1 : 1 + static_cast<int>(random() % 16);
  const int per_rank = 1 + static_cast<int>(random() % 6);
  shape.num_slots = shape.ep_size * per_rank;
  const int fewest = per_rank;  // else a rank would hold an expert twice
  const auto between = static_cast<unsigned>(shape.num_slots - fewest + 1);
  const bool no_spare_slot = random() % 4 == 0;
  shape.num_experts =
      no_spare_slot ? shape.num_slots : fewest + static_cast<int>(random() % between);
  return shape;
}

std::vector<double> random_load(std::mt19937& random, int experts) {
  const unsigned kind = random() % 8;
  std::lognormal_distribution<double> tokens(6.0, 0.5 * kind);
  std::vector<double> load;
  for (int e = 0; e < experts; ++e) load.push_back(std::floor(tokens(random)));
  if (kind == 0) load.assign(load.size(), 0.0);                        // no load
  if (kind == 1) load.assign(load.size(), 3.0);                        // ties
  if (kind == 2) load[random() % load.size()] += 1e15;                 // one hot expert, huge
  if (kind == 3) std::fill_n(load.begin(), load.size() * 2 / 3, 0.0);  // zeros
  if (kind == 4) {                                                     // few distinct loads
    for (double& each : load) each = std::exp2(random() % 3);
  }
  return load;
}

LayerPlan plan_of(const Case& each, Split split) {
  LayerPlan plan;
  make_planner("wideep", each.shape, {.split = split}).value()->plan(each.load, &plan);
  return plan;
}

double imbalance(const LayerPlan& plan, const Case& each) {
  return imbalance_ratio(plan.placement, each.load, plan.shares);
}

bool doubled(const Placement& placement) {
  for (int rank = 0; rank < placement.ep_size; ++rank) {
    const auto experts = placement.experts_of_rank(rank);
    if (std::set<int32_t>(experts.begin(), experts.end()).size() < experts.size()) return true;
  }
  return false;
}

void expect_valid(const LayerPlan& plan, const Case& each) {
  ASSERT_TRUE(check_placement(plan.placement).ok()) << check_placement(plan.placement).message();
  ASSERT_EQ(plan.placement.num_slots(), each.shape.num_slots);
  ASSERT_EQ(plan.placement.ep_size, each.shape.ep_size);
  ASSERT_FALSE(doubled(plan.placement));
  std::vector<double> sums(each.load.size(), 0.0);
  for (size_t slot = 0; slot < plan.shares.size(); ++slot) {
    const int32_t expert = plan.placement.slot_to_expert[slot];
    ASSERT_GE(expert, 0) << "an empty slot";
    ASSERT_GE(plan.shares[slot], 0.0);
    sums[static_cast<size_t>(expert)] += plan.shares[slot];
  }
  for (const double sum : sums) ASSERT_NEAR(sum, 1.0, 1e-9);  // each expert is placed, and whole
}

TEST(PlannerProperties, HoldForRandomShapesAndLoads) {
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    Case each{.shape = random_shape(random), .load = {}};
    each.load = random_load(random, each.shape.num_experts);
    SCOPED_TRACE(testing::Message() << "case " << i << ": E " << each.shape.num_experts << ", R "
                                    << each.shape.ep_size << ", S " << each.shape.num_slots);
    double found[2];
    for (const Split split : {Split::kEqual, Split::kWeighted}) {
      const LayerPlan plan = plan_of(each, split), again = plan_of(each, split);
      expect_valid(plan, each);
      if (HasFatalFailure()) return;
      ASSERT_EQ(plan.placement, again.placement);
      ASSERT_EQ(plan.shares, again.shares);
      const double ratio = found[split == Split::kEqual ? 0 : 1] = imbalance(plan, each);
      ASSERT_LE(imbalance_lower_bound(each.load, each.shape, split), ratio + kRounding);
    }
    ASSERT_LE(found[1], found[0] + kRounding) << "shares make it worse";
    if (each.shape.num_slots - each.shape.num_experts >= each.shape.ep_size - 1) {
      ASSERT_LE(found[1], 1e-6);
    }
    const Placement trt = *plan_layer_trt(each.load, each.shape.ep_size, each.shape.num_slots);
    if (doubled(trt)) continue;
    const double tolerance = 2 * PlannerOptions{}.tolerance;
    ASSERT_LE(found[0],
              std::max(imbalance_ratio(trt, each.load, equal_shares(trt)), tolerance) + 1e-5);
  }
}

// Few slots on a rank and experts with many replicas: the bound is closest to what can be reached,
// and loads that are no integers divide with rounding.
TEST(PlannerProperties, NoPlanIsBelowTheLowerBound) {
  std::mt19937 random(12);
  int many_replicas = 0;
  for (int i = 0; i < 1000; ++i) {
    Case each;
    each.shape.ep_size = 2 + static_cast<int>(random() % 15);
    const int per_rank = 2 + static_cast<int>(random() % 2);
    each.shape.num_slots = each.shape.ep_size * per_rank;
    const auto spare = static_cast<unsigned>(each.shape.num_slots - per_rank);
    each.shape.num_experts = per_rank + static_cast<int>(random() % (spare + 1));
    std::lognormal_distribution<double> tokens(6.0, 1.0 + random() % 4);
    const bool fractions = random() % 2 == 0;
    for (int e = 0; e < each.shape.num_experts; ++e) {
      const double load = tokens(random);
      each.load.push_back(fractions ? load : std::floor(load));
    }
    const LayerPlan plan = plan_of(each, Split::kEqual);
    ASSERT_LE(imbalance_lower_bound(each.load, each.shape, Split::kEqual),
              imbalance(plan, each) + kRounding)
        << "case " << i << ": E " << each.shape.num_experts << ", R " << each.shape.ep_size
        << ", S " << each.shape.num_slots;
    const double min_share = *std::min_element(plan.shares.begin(), plan.shares.end());
    many_replicas += min_share < 1.0 / 7.5 ? 1 : 0;
  }
  EXPECT_GT(many_replicas, 100);
}

}  // namespace
}  // namespace wideep::balance
