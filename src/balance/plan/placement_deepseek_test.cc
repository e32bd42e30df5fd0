// SPDX-License-Identifier: Apache-2.0
//
// A few golden plans of DeepSeek's code fix the rules; a slow implementation of these
// (placement_deepseek_testing.h) then judges 1,000 random shapes. Loads of few distinct values make
// ties on purpose: there two sorts that both look right give different plans. A failure means that
// users compare with a planner that is not DeepSeek's.
#include "plan/placement_deepseek.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "plan/placement_deepseek_testing.h"

namespace wideep::balance {
namespace {

using testing::HasSubstr;

PlanShape shape_of(int num_experts, int ep_size, int num_slots, int num_nodes, int num_groups) {
  return {num_experts, ep_size, num_slots, num_nodes, num_groups};
}

const std::vector<double> kReadmeLayer0 = {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86};
const std::vector<double> kReadmeLayer1 = {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27};

struct Golden {
  const char* why;
  std::vector<double> load;
  int ep_size;
  int num_nodes;
  int num_groups;
  std::vector<int32_t> slot_to_expert;
};

// Results of the original code; the first two are the example of its README.
const Golden kGolden[] = {
    {"hierarchical", kReadmeLayer0, 8, 2, 4, {5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1}},
    {"hierarchical", kReadmeLayer1, 8, 2, 4, {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}},
    {"one node", kReadmeLayer0, 8, 1, 4, {10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1}},
    {"one group on two nodes: global",
     kReadmeLayer0,
     8,
     2,
     1,
     {10, 6, 10, 7, 0, 2, 11, 4, 5, 9, 5, 4, 8, 3, 1, 1}},
    {"three groups on two nodes: global", kReadmeLayer0, 4, 2, 3, {9, 10, 10, 1,  2,  8, 5,  4,
                                                                   0, 1,  8,  3,  5,  4, 0,  11,
                                                                   6, 7,  5,  10, 10, 1, 11, 3}},
    {"ties", {5, 5, 5, 5, 5, 5, 5, 5}, 4, 2, 4, {4, 0, 0, 5, 1, 1, 6, 2, 2, 7, 3, 3}},
    {"no load", {0, 0, 0, 0, 0, 0, 0, 0}, 4, 2, 4, {0, 1, 2, 3, 0, 0, 4, 5, 6, 7, 4, 4}},
    {"one busy expert", {0, 0, 7, 0, 0, 0}, 3, 1, 1, {2, 2, 5, 2, 0, 1, 2, 3, 4}},
    {"one slot per rank: in order", {1, 2, 3, 4}, 6, 1, 1, {0, 1, 2, 3, 3, 2}},
    {"two replicas on one rank", {1, 2, 3, 4, 5, 6}, 6, 3, 6, {5, 5, 5, 0, 1, 4, 4, 4, 3, 2, 3, 2}},
};

TEST(PlanDeepseek, MatchesTheOriginal) {
  for (const Golden& golden : kGolden) {
    const PlanShape shape = shape_of(static_cast<int>(golden.load.size()), golden.ep_size,
                                     static_cast<int>(golden.slot_to_expert.size()),
                                     golden.num_nodes, golden.num_groups);
    const Result<Placement> placement = plan_layer_deepseek(golden.load, shape);
    ASSERT_TRUE(placement.ok()) << placement.status().message();
    EXPECT_EQ(placement->slot_to_expert, golden.slot_to_expert) << golden.why;
    EXPECT_EQ(placement->ep_size, golden.ep_size);
  }
}

// 2^24 + 1 is no float32: both experts weigh 2^24, and the lower id wins the spare slot.
TEST(PlanDeepseek, RoundsLoadsToFloat32) {
  const auto placement =
      plan_layer_deepseek(std::vector<double>{16777216, 16777217, 0}, shape_of(3, 4, 4, 1, 1));
  ASSERT_TRUE(placement.ok());
  EXPECT_THAT(placement->slot_to_expert, testing::ElementsAre(0, 1, 2, 0));
}

TEST(PlanDeepseek, RefusesShapesThatDoNotFit) {
  const std::vector<double> load(12, 1.0);
  const auto complaint = [&](const PlanShape& shape) {
    const auto placement = plan_layer_deepseek(load, shape);
    return placement.ok() ? "accepted" : placement.status().message();
  };
  EXPECT_THAT(complaint(shape_of(12, 8, 12, 2, 4)), HasSubstr("set num_slots to 16"));
  EXPECT_THAT(complaint(shape_of(12, 8, 16, 3, 3)), HasSubstr("divisor of the 8 ranks"));
  EXPECT_THAT(complaint(shape_of(12, 8, 16, 2, 5)), HasSubstr("divisor of the 12 experts"));
}

class RandomShapes {
 public:
  PlanShape next_shape() {
    while (true) {
      const int num_nodes = number(1, 4);
      const int ep_size = num_nodes * number(1, 8);
      const int num_groups = number(1, 8);
      const PlanShape shape = shape_of(num_groups * number(1, 8), ep_size, ep_size * number(1, 6),
                                       num_nodes, num_groups);
      if (shape.num_slots >= shape.num_experts) return shape;
    }
  }
  // Small ranges make ties, some loads are all zero.
  std::vector<double> next_load(int num_experts) {
    const int ranges[] = {1, 3, 20, 100000};
    const int range = ranges[number(0, 3)];
    std::vector<double> load(static_cast<size_t>(num_experts));
    for (double& tokens : load) tokens = number(0, range - 1);
    return load;
  }

 private:
  int number(int min, int max) {
    return min + static_cast<int>(random_() % static_cast<unsigned>(max - min + 1));
  }
  std::mt19937 random_{7};
};

TEST(PlanDeepseek, AgreesWithASimpleImplementation) {
  RandomShapes random;
  for (int round = 0; round < 1000; ++round) {
    const PlanShape shape = random.next_shape();
    const std::vector<double> load = random.next_load(shape.num_experts);
    const Result<Placement> placement = plan_layer_deepseek(load, shape);
    ASSERT_TRUE(placement.ok()) << placement.status().message();
    ASSERT_EQ(placement->slot_to_expert, plan_layer_slowly(load, shape)) << "round " << round;
    ASSERT_TRUE(check_placement(*placement).ok());
  }
}

TEST(PlanDeepseek, KeepsGroupsWithinNodes) {
  RandomShapes random;
  for (int round = 0; round < 300; ++round) {
    const PlanShape shape = random.next_shape();
    if (shape.num_groups % shape.num_nodes != 0) continue;
    const auto placement = plan_layer_deepseek(random.next_load(shape.num_experts), shape);
    ASSERT_TRUE(placement.ok());
    std::map<int, std::set<int>> nodes_of_group;
    for (int slot = 0; slot < shape.num_slots; ++slot) {
      const int expert = placement->slot_to_expert[static_cast<size_t>(slot)];
      const int node = placement->rank_of_slot(slot) / (shape.ep_size / shape.num_nodes);
      nodes_of_group[expert / (shape.num_experts / shape.num_groups)].insert(node);
    }
    for (const auto& [group, nodes] : nodes_of_group) ASSERT_EQ(nodes.size(), 1u) << group;
  }
}

}  // namespace
}  // namespace wideep::balance
