// SPDX-License-Identifier: Apache-2.0
//
// The bound is held against the optimum itself where shapes are so small that every placement can
// be tried, groups on nodes included, and against plans where they are larger. It must not be above
// either; how far below the optimum it may be in the mean is a number of each test, so that a
// weaker bound is noticed. A bound that is too high calls a plan optimal which is not.
#include "wideep/balancer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "plan/placement_trt.h"

namespace wideep::balance {
namespace {

// The best of all valid placements, by trying each set of K experts on each rank.
class ExhaustiveSearch {
 public:
  ExhaustiveSearch(std::span<const double> load, const PlanShape& shape, Split split)
      : load_(load),
        shape_(shape),
        split_(split),
        placement_{shape.num_experts, shape.ep_size, {}} {}

  // Infinite when there is no valid placement.
  double best_imbalance() {
    place_rank(0, 1);
    return best_;
  }

 private:
  // Ranks are alike without nodes: sets in ascending order only.
  void place_rank(int rank, uint32_t first_set) {
    if (rank == shape_.ep_size) return evaluate();
    for (uint32_t set = first_set; set < 1u << shape_.num_experts; ++set) {
      if (std::popcount(set) != shape_.slots_per_rank()) continue;
      const auto before = placement_.slot_to_expert.size();
      for (int e = 0; e < shape_.num_experts; ++e) {
        if ((set >> e & 1) != 0) placement_.slot_to_expert.push_back(e);
      }
      place_rank(rank + 1, shape_.num_nodes > 1 ? 1 : set);
      placement_.slot_to_expert.resize(before);
    }
  }

  void evaluate() {
    if (!check_placement(placement_).ok() || !groups_stay()) return;
    const Shares shares =
        split_ == Split::kEqual ? equal_shares(placement_) : resplit(placement_, load_);
    best_ = std::min(best_, imbalance_ratio(rank_loads(placement_, load_, shares)));
  }

  // Each group on one node, G / N groups per node.
  bool groups_stay() const {
    if (shape_.num_nodes == 1) return true;
    const int group_size = shape_.num_experts / shape_.num_groups;
    std::vector<int> node_of_group(static_cast<size_t>(shape_.num_groups), -1);
    for (int slot = 0; slot < placement_.num_slots(); ++slot) {
      const int expert = placement_.slot_to_expert[static_cast<size_t>(slot)];
      int& node = node_of_group[static_cast<size_t>(expert / group_size)];
      const int here = slot / (shape_.num_slots / shape_.num_nodes);
      if (node >= 0 && node != here) return false;
      node = here;
    }
    return std::count(node_of_group.begin(), node_of_group.end(), 0) ==
           shape_.num_groups / shape_.num_nodes;
  }

  std::span<const double> load_;
  PlanShape shape_;
  Split split_;
  Placement placement_;
  double best_ = std::numeric_limits<double>::infinity();
};

std::vector<double> random_load(int num_experts, double spread, std::mt19937& random) {
  std::lognormal_distribution<double> tokens(4.0, spread);
  std::vector<double> load(static_cast<size_t>(num_experts));
  for (double& of_expert : load) of_expert = std::floor(tokens(random));
  return load;
}

// Every S = R·K ≤ 8 with E ≤ 6 experts, R ≤ 4.
std::vector<PlanShape> small_shapes() {
  std::vector<PlanShape> shapes;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (int slots = ranks; slots <= 8; slots += ranks) {
      for (int experts = slots / ranks; experts <= std::min(6, slots); ++experts) {
        shapes.push_back({experts, ranks, slots});
      }
    }
  }
  return shapes;
}

// Gap: optimum − bound, mean over shapes and loads with the optimum above 0.
double mean_gap(const std::vector<PlanShape>& shapes, Split split, int rounds) {
  std::mt19937 random(9);
  double gap = 0.0;
  int count = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const PlanShape& shape : shapes) {
      const auto load = random_load(shape.num_experts, 0.3 + 0.4 * (round % 4), random);
      const double optimum = ExhaustiveSearch(load, shape, split).best_imbalance();
      if (!std::isfinite(optimum)) continue;
      const double bound = imbalance_lower_bound(load, shape, split);
      EXPECT_LE(bound, optimum + 1e-9)
          << "E " << shape.num_experts << " R " << shape.ep_size << " S " << shape.num_slots;
      if (optimum < 1e-9) continue;
      gap += optimum - bound;
      ++count;
    }
  }
  EXPECT_GT(count, 0);
  return gap / std::max(count, 1);
}

TEST(LowerBound, NeverAboveTheOptimumOfEqualSplit) {
  EXPECT_LT(mean_gap(small_shapes(), Split::kEqual, 40), 0.02);
}

TEST(LowerBound, NeverAboveTheOptimumOfWeightedSplit) {
  EXPECT_LT(mean_gap(small_shapes(), Split::kWeighted, 40), 0.01);
}

TEST(LowerBound, NeverAboveTheOptimumWithGroupsOnNodes) {
  const std::vector<PlanShape> shapes = {{4, 2, 4, 2, 2}, {4, 2, 4, 2, 4}, {4, 2, 6, 2, 2},
                                         {4, 4, 8, 2, 2}, {4, 4, 8, 2, 4}, {6, 2, 8, 2, 2}};
  EXPECT_LT(mean_gap(shapes, Split::kEqual, 40), 1e-6);
  EXPECT_LT(mean_gap(shapes, Split::kWeighted, 40), 1e-6);
}

bool has_duplicates(const Placement& placement) {
  for (int rank = 0; rank < placement.ep_size; ++rank) {
    std::vector<int32_t> experts(placement.experts_of_rank(rank).begin(),
                                 placement.experts_of_rank(rank).end());
    std::sort(experts.begin(), experts.end());
    if (std::adjacent_find(experts.begin(), experts.end()) != experts.end()) return true;
  }
  return false;
}

TEST(LowerBound, NeverAboveAPlan) {
  std::mt19937 random(10);
  int compared = 0;
  for (int round = 0; round < 400; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 20);
    const int slots = ranks * (1 + static_cast<int>(random() % 9));
    const int experts = slots - static_cast<int>(random() % (static_cast<unsigned>(slots) / 2 + 1));
    const auto load = random_load(experts, 0.2 + 0.3 * (round % 5), random);
    const Result<Placement> plan = plan_layer_trt(load, ranks, slots);
    ASSERT_TRUE(plan.ok());
    if (has_duplicates(*plan)) continue;
    ++compared;
    const PlanShape shape{experts, ranks, slots};
    const double equal = imbalance_ratio(rank_loads(*plan, load, equal_shares(*plan)));
    EXPECT_LE(imbalance_lower_bound(load, shape, Split::kEqual), equal + 1e-9) << "round " << round;
    const double weighted = imbalance_ratio(rank_loads(*plan, load, resplit(*plan, load)));
    EXPECT_LE(imbalance_lower_bound(load, shape, Split::kWeighted), weighted + 1e-9)
        << "round " << round;
  }
  EXPECT_GT(compared, 100);
}

// The load of a replica, w / r, and the count of replicas below a size, w / size, round
// differently.
TEST(LowerBound, RoundingDoesNotLiftItAboveAPlan) {
  const std::vector<double> load = {15, 6, 102, 1819, 67760, 2504, 734, 2523, 2, 619637, 14023};
  const PlanShape shape{.num_experts = 11, .ep_size = 9, .num_slots = 18};
  LayerPlan plan;
  make_planner("wideep", shape, {.split = Split::kEqual}).value()->plan(load, &plan);
  const double found = imbalance_ratio(plan.placement, load, plan.shares);
  EXPECT_NEAR(found, 0.037965, 1e-6);
  EXPECT_NEAR(imbalance_lower_bound(load, shape, Split::kEqual), found, 1e-6);
}

TEST(LowerBound, SpareSlotOnEveryRankBalancesAnyWeightedLoad) {
  const std::vector<double> load = {1000, 1, 1, 1, 1, 1};
  EXPECT_EQ(imbalance_lower_bound(load, {6, 4, 12}, Split::kWeighted), 0.0);
  EXPECT_GT(imbalance_lower_bound(load, {6, 4, 8}, Split::kWeighted), 0.0);
  EXPECT_GT(imbalance_lower_bound(load, {6, 3, 6}, Split::kEqual), 1.9);
  EXPECT_EQ(imbalance_lower_bound(std::vector<double>{0, 0}, {2, 2, 2}, Split::kEqual), 0.0);
}

}  // namespace
}  // namespace wideep::balance
