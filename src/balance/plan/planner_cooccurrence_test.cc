// SPDX-License-Identifier: Apache-2.0
//
// Random tokens choose experts of families, so that some pairs are worth keeping together. The
// search's running sums are held against a sum over all pairs of slots, term by term. Where a
// family is as large as a rank or a node, the best placement is known and must be found. Elsewhere
// more pairs must be together than in planner wideep's plan, at a balance within the tolerance. A
// failure is more messages, or balance that was given away for fewer.
#include "plan/planner_cooccurrence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "plan/affinity.h"
#include "plan/assessment.h"
#include "plan/node_affinity.h"

namespace wideep::balance {
namespace {

using ::testing::HasSubstr;

size_t at(int i) { return static_cast<size_t>(i); }

struct Layer {
  std::vector<double> load;
  std::vector<int64_t> pairs;
};

// Tokens choose two experts of one family and one of any; families are e % num_families.
Layer layer_of_families(int experts, int families, uint32_t seed) {
  std::mt19937 random(seed);
  Layer layer{std::vector<double>(at(experts)), std::vector<int64_t>(at(experts * experts))};
  for (int token = 0; token < 4000; ++token) {
    const int family = static_cast<int>(random()) & 0x7fffffff;
    const auto member = [&] {
      const int members = experts / families;
      const int skewed = static_cast<int>(std::min(random() % at(members), random() % at(members)));
      return skewed * families + family % families;
    };
    const int chosen[] = {member(), member(), static_cast<int>(random() % at(experts))};
    for (int a : chosen) {
      layer.load[at(a)] += 1;
      for (int b : chosen) {
        if (a != b) ++layer.pairs[at(a * experts + b)];
      }
    }
  }
  return layer;
}

LayerPlan plan_once(std::string_view name, const PlanShape& shape, const PlannerOptions& options,
                    const Layer& layer) {
  LayerPlan plan;
  const auto planner = make_planner(name, shape, options);
  EXPECT_TRUE(planner.ok()) << planner.status().message();
  planner.value()->plan({layer.load, layer.pairs}, &plan);
  return plan;
}

double imbalance(const LayerPlan& plan, const Layer& layer) {
  return imbalance_ratio(rank_loads(plan.placement, layer.load, plan.shares));
}

// The part of the pairs that are together on a rank, summed term by term.
double pairs_within_ranks(const Placement& placement, const Layer& layer) {
  const Shares shares = equal_shares(placement);
  double within = 0;
  for (int a = 0; a < placement.num_slots(); ++a) {
    for (int b = 0; b < placement.num_slots(); ++b) {
      if (a == b || placement.rank_of_slot(a) != placement.rank_of_slot(b)) continue;
      const int pair =
          placement.slot_to_expert[at(a)] * placement.num_experts + placement.slot_to_expert[at(b)];
      within += shares[at(a)] * shares[at(b)] * static_cast<double>(layer.pairs[at(pair)]);
    }
  }
  return within /
         static_cast<double>(std::accumulate(layer.pairs.begin(), layer.pairs.end(), int64_t{0}));
}

constexpr PlanShape kShape{.num_experts = 32, .ep_size = 4, .num_slots = 40};

TEST(Affinity, KeepsItsSumsUpToDate) {
  const Layer layer = layer_of_families(32, 4, 1);
  Placement placement = plan_once("wideep", kShape, {}, layer).placement;
  Affinity affinity(kShape);
  affinity.reset({layer.load, layer.pairs}, placement);
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const int a = static_cast<int>(random() % 40), b = static_cast<int>(random() % 40);
    if (!affinity.may_exchange(a, b)) continue;
    const double expected = affinity.within_rank_ratio() + affinity.gain(a, b);
    affinity.exchange(a, b);
    std::swap(placement.slot_to_expert[at(a)], placement.slot_to_expert[at(b)]);
    ASSERT_NEAR(affinity.within_rank_ratio(), expected, 1e-12);
    ASSERT_NEAR(affinity.within_rank_ratio(), pairs_within_ranks(placement, layer), 1e-12);
    ASSERT_FALSE(has_two_replicas_on_a_rank(placement));
  }
  const auto loads = rank_loads(placement, layer.load, equal_shares(placement));
  EXPECT_NEAR(affinity.max_rank_load(), imbalance_ratio(loads) + 1.0, 1e-12);
}

TEST(PlannerCooccurrence, PutsExpertsChosenTogetherOnOneRank) {
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const Layer layer = layer_of_families(32, 4, seed);
    const LayerPlan balanced = plan_once("wideep", kShape, {}, layer);
    for (const double tolerance : {0.0, 0.02, 0.2}) {
      const LayerPlan plan =
          plan_once("cooccurrence", kShape, {.cooccurrence_tolerance = tolerance}, layer);
      EXPECT_TRUE(check_placement(plan.placement).ok());
      EXPECT_FALSE(has_two_replicas_on_a_rank(plan.placement));
      EXPECT_EQ(plan.shares, equal_shares(plan.placement));
      EXPECT_LE(imbalance(plan, layer), std::max(tolerance, imbalance(balanced, layer)) + 1e-9);
      EXPECT_GE(pairs_within_ranks(plan.placement, layer),
                pairs_within_ranks(balanced.placement, layer));
      if (tolerance >= 0.02) {
        EXPECT_GT(pairs_within_ranks(plan.placement, layer),
                  1.3 * pairs_within_ranks(balanced.placement, layer));
      }
    }
  }
}

// Four families of equal load and no replicas: the best placement is known.
TEST(PlannerCooccurrence, FindsGroupsThatFitTheRanks) {
  Layer layer{std::vector<double>(16, 1.0), std::vector<int64_t>(256)};
  for (int a = 0; a < 16; ++a) {
    for (int b = 0; b < 16; ++b) layer.pairs[at(a * 16 + b)] = a != b && a % 4 == b % 4 ? 10 : 0;
  }
  const PlanShape shape{.num_experts = 16, .ep_size = 4, .num_slots = 16};
  const LayerPlan plan = plan_once("cooccurrence", shape, {}, layer);
  EXPECT_DOUBLE_EQ(pairs_within_ranks(plan.placement, layer), 1.0);
}

TEST(PlannerCooccurrence, WeightedStaysWithinTheToleranceToo) {
  const Layer layer = layer_of_families(32, 4, 7);
  const PlannerOptions options{.split = Split::kWeighted};
  const LayerPlan plan = plan_once("cooccurrence", kShape, options, layer);
  EXPECT_LE(imbalance(plan, layer), 0.02 + 1e-9);
  EXPECT_FALSE(has_two_replicas_on_a_rank(plan.placement));
  EXPECT_GT(pairs_within_ranks(plan.placement, layer),
            pairs_within_ranks(plan_once("wideep", kShape, options, layer).placement, layer));
}

// Four families, of which two fit on one of two nodes, and one on one of four: what a token needs is
// on one node or spread over several.
TEST(PlannerCooccurrence, NodesComeBeforeRanks) {
  for (const int nodes : {2, 4}) {
    PlanShape shape{.num_experts = 32, .ep_size = 8, .num_slots = 40, .num_nodes = nodes};
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      const Layer layer = layer_of_families(32, 4, seed);
      const auto saved = [&](const LayerPlan& plan) {
        NodeAffinity affinity(shape);
        affinity.reset({layer.load, layer.pairs}, plan.placement);
        return affinity.saved();
      };
      const LayerPlan plan = plan_once("cooccurrence", shape, {}, layer);
      const LayerPlan balanced = plan_once("wideep", shape, {}, layer);
      PlanShape flat = shape;
      flat.num_nodes = 1;
      const LayerPlan by_ranks = plan_once("cooccurrence", flat, {}, layer);
      EXPECT_TRUE(check_placement(plan.placement).ok());
      EXPECT_FALSE(has_two_replicas_on_a_rank(plan.placement));
      EXPECT_LE(imbalance(plan, layer), std::max(0.02, imbalance(balanced, layer)) + 1e-9);
      EXPECT_GT(saved(plan), saved(balanced) + 0.05);
      EXPECT_GT(saved(plan), saved(by_ranks));
    }
  }
}

// Families of equal load, each as large as a node: the best placement is known.
TEST(PlannerCooccurrence, FindsGroupsThatFitTheNodes) {
  Layer layer{std::vector<double>(16, 1.0), std::vector<int64_t>(256)};
  for (int a = 0; a < 16; ++a) {
    for (int b = 0; b < 16; ++b) layer.pairs[at(a * 16 + b)] = a != b && a % 4 == b % 4 ? 10 : 0;
  }
  const PlanShape shape{.num_experts = 16, .ep_size = 8, .num_slots = 16, .num_nodes = 4};
  const LayerPlan plan = plan_once("cooccurrence", shape, {}, layer);
  for (int slot = 0; slot < 16; ++slot) {
    EXPECT_EQ(plan.placement.slot_to_expert[at(slot)] % 4,
              plan.placement.slot_to_expert[at(slot / 4 * 4)] % 4);
  }
}

TEST(PlannerCooccurrence, GroupsStayOnTheirNode) {
  const Layer layer = layer_of_families(32, 4, 3);
  PlanShape shape = kShape;
  shape.num_nodes = 2;
  shape.num_groups = 4;
  const LayerPlan plan = plan_once("cooccurrence", shape, {}, layer);
  std::vector<int> node_of_group(4, -1);
  for (int slot = 0; slot < 40; ++slot) {
    int& node = node_of_group[at(plan.placement.slot_to_expert[at(slot)] / 8)];
    if (node < 0) node = slot / 20;
    EXPECT_EQ(node, slot / 20);
  }
}

TEST(PlannerCooccurrence, IsDeterministic) {
  const Layer layer = layer_of_families(32, 4, 4), other = layer_of_families(32, 8, 5);
  const auto planner = make_cooccurrence_planner(kShape, {});
  ASSERT_TRUE(planner.ok());
  LayerPlan first, between, again;
  planner.value()->plan({layer.load, layer.pairs}, &first);
  planner.value()->plan({other.load, other.pairs}, &between);
  planner.value()->plan({layer.load, layer.pairs}, &again);
  EXPECT_EQ(first.placement, again.placement);
  EXPECT_NE(first.placement, between.placement);
}

TEST(PlannerCooccurrence, ServesLayersWithoutTokens) {
  const Layer layer{std::vector<double>(32), std::vector<int64_t>(1024)};
  EXPECT_TRUE(check_placement(plan_once("cooccurrence", kShape, {}, layer).placement).ok());
}

TEST(PlannerCooccurrence, RefusesANegativeTolerance) {
  const auto planner = make_planner("cooccurrence", kShape, {.cooccurrence_tolerance = -1.0});
  ASSERT_FALSE(planner.ok());
  EXPECT_THAT(planner.status().message(), HasSubstr("at least 0, found -1"));
  EXPECT_TRUE(needs_pair_counts("cooccurrence"));
  EXPECT_FALSE(needs_pair_counts("wideep"));
}

}  // namespace
}  // namespace wideep::balance
