// SPDX-License-Identifier: Apache-2.0
#include "plan/placement_trt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "plan/load_summary.h"
#include "plan/replication.h"
#include "wideep/balancer.h"

namespace wideep::balance {
namespace {

using testing::ElementsAreArray;

struct Golden {
  std::vector<double> load;
  int ep_size;
  std::vector<int32_t> slot_to_expert;
  std::vector<double> rank_loads;
};

const Golden kGolden[] = {
    {{10, 5, 2, 15, 8}, 3, {0, 3, 4, 0, 3, 4, 1, 3, 2}, {14, 14, 12}},
    {{1, 1, 1, 1}, 2, {0, 2, 1, 3}, {2, 2}},
    {{1, 3, 2, 1}, 2, {1, 0, 2, 1, 2, 3}, {3.5, 3.5}},
    {{1, 100, 10}, 2, {1, 2, 1, 0}, {60, 51}},
    {{2, 3, 4, 5, 6, 7}, 2, {5, 2, 1, 4, 3, 0}, {14, 13}},
};

TEST(PlaceTrt, GoldenVectors) {
  for (const Golden& golden : kGolden) {
    const int num_slots = static_cast<int>(golden.slot_to_expert.size());
    const Result<Placement> placement = plan_layer_trt(golden.load, golden.ep_size, num_slots);
    ASSERT_TRUE(placement.ok()) << placement.status().message();
    EXPECT_EQ(placement->slot_to_expert, golden.slot_to_expert);
    const std::vector<int64_t> tokens(golden.load.begin(), golden.load.end());
    EXPECT_THAT(rank_loads(*placement, tokens), ElementsAreArray(golden.rank_loads));
  }
}

TEST(PlaceTrt, RefusesSlotsThatDoNotFit) {
  EXPECT_FALSE(plan_layer_trt(std::vector<double>{1, 2, 3}, 2, 5).ok());
  EXPECT_FALSE(plan_layer_trt(std::vector<double>{1, 2, 3}, 2, 2).ok());
}

// The heaviest replica left, lower id first, to the least loaded rank with room, lower rank first;
// each found by looking at all.
Placement place_slowly(const std::vector<double>& load, std::vector<int> replicas, int ep_size,
                       int slots_per_rank) {
  const std::vector<int> counts = replicas;
  const auto size = [&](size_t expert) { return load[expert] / counts[expert]; };
  std::vector<std::vector<int32_t>> ranks(static_cast<size_t>(ep_size));
  std::vector<double> rank_load(static_cast<size_t>(ep_size), 0.0);
  for (int slot = 0; slot < ep_size * slots_per_rank; ++slot) {
    size_t expert = load.size();
    for (size_t e = 0; e < load.size(); ++e) {
      if (replicas[e] > 0 && (expert == load.size() || size(e) > size(expert))) expert = e;
    }
    size_t rank = ranks.size();
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (static_cast<int>(ranks[r].size()) == slots_per_rank) continue;
      if (rank == ranks.size() || rank_load[r] < rank_load[rank]) rank = r;
    }
    --replicas[expert];
    ranks[rank].push_back(static_cast<int32_t>(expert));
    rank_load[rank] += size(expert);
  }
  Placement placement{static_cast<int>(load.size()), ep_size, {}};
  for (const auto& experts : ranks) {
    placement.slot_to_expert.insert(placement.slot_to_expert.end(), experts.begin(), experts.end());
  }
  return placement;
}

TEST(PlaceTrt, AgreesWithASimpleImplementation) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const int ep_size = 1 + static_cast<int>(random() % 9);
    const int slots_per_rank = 1 + static_cast<int>(random() % 6);
    const int num_slots = ep_size * slots_per_rank;
    const int num_experts = 1 + static_cast<int>(random() % static_cast<unsigned>(num_slots));
    std::vector<double> load(static_cast<size_t>(num_experts));
    for (double& tokens : load) tokens = static_cast<double>(random() % 20);
    const std::vector<int> replicas = replicate_trt(load, num_slots);
    const Placement placement = place_trt(load, replicas, ep_size);
    ASSERT_EQ(placement, place_slowly(load, replicas, ep_size, slots_per_rank))
        << "round " << round;
    ASSERT_TRUE(check_placement(placement).ok());
  }
}

}  // namespace
}  // namespace wideep::balance
