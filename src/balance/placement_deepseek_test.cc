// SPDX-License-Identifier: Apache-2.0
#include "balance/placement_deepseek.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "balance/statistics_reader.h"

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

// What the original answers; the first two are the example of its README.
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

TEST(PlanDeepseek, AnswersAsTheOriginal) {
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
TEST(PlanDeepseek, SeesLoadsAsFloat32) {
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

// The rules again, as one would play them with cards: an item is taken from the table and laid on a
// pack, each found by looking at all. Items and packs are maps in index order, so that the first
// that is strictly better is the lower index among equals.
using Deck = std::map<int, float>;  // item → weight

std::vector<std::vector<int>> deal(Deck deck, int num_packs) {
  const size_t room = deck.size() / static_cast<size_t>(num_packs);
  std::vector<std::vector<int>> packs(static_cast<size_t>(num_packs));
  std::vector<float> weights(packs.size(), 0.0f);
  if (room == 1) {
    for (size_t pack = 0; pack < packs.size(); ++pack) {
      packs[pack] = {std::next(deck.begin(), static_cast<std::ptrdiff_t>(pack))->first};
    }
    return packs;
  }
  while (!deck.empty()) {
    auto heaviest = deck.begin();
    for (auto item = deck.begin(); item != deck.end(); ++item) {
      if (item->second > heaviest->second) heaviest = item;
    }
    size_t lightest = packs.size();
    for (size_t pack = 0; pack < packs.size(); ++pack) {
      if (packs[pack].size() == room) continue;
      if (lightest == packs.size() || weights[pack] < weights[lightest]) lightest = pack;
    }
    packs[lightest].push_back(heaviest->first);
    weights[lightest] += heaviest->second;
    deck.erase(heaviest);
  }
  return packs;
}

// `home`: the experts of one node, in the order in which the node knows them.
std::vector<int32_t> play_node(const std::vector<int>& home, const std::vector<float>& load,
                               int num_slots, int num_ranks) {
  std::vector<int> cards = home;  // one card per slot
  std::map<int, int> copies;
  for (int expert : home) copies[expert] = 1;
  const auto share = [&](int expert) {
    return load[static_cast<size_t>(expert)] / static_cast<float>(copies[expert]);
  };
  while (static_cast<int>(cards.size()) < num_slots) {
    int hottest = home[0];
    for (int expert : home) {
      if (share(expert) > share(hottest)) hottest = expert;
    }
    cards.push_back(hottest);
    ++copies[hottest];
  }
  Deck deck;
  for (int expert : cards) deck.emplace(static_cast<int>(deck.size()), share(expert));
  std::vector<int32_t> slots;
  for (const auto& rank : deal(deck, num_ranks)) {
    for (int card : rank) slots.push_back(cards[static_cast<size_t>(card)]);
  }
  return slots;
}

std::vector<int32_t> play(const std::vector<double>& tokens, const PlanShape& shape) {
  const std::vector<float> load(tokens.begin(), tokens.end());
  const bool global = shape.num_groups % shape.num_nodes != 0;
  const int num_nodes = global ? 1 : shape.num_nodes;
  const int num_groups = global ? 1 : shape.num_groups;
  const auto group_of = [&](int expert) { return expert / (shape.num_experts / num_groups); };
  Deck groups;
  for (int e = 0; e < shape.num_experts; ++e) groups[group_of(e)] += load[static_cast<size_t>(e)];
  std::vector<int32_t> slots;
  for (const auto& node : deal(groups, num_nodes)) {
    std::vector<int> home;
    for (int group : node) {
      for (int e = 0; e < shape.num_experts; ++e) {
        if (group_of(e) == group) home.push_back(e);
      }
    }
    const auto more = play_node(home, load, shape.num_slots / num_nodes, shape.ep_size / num_nodes);
    slots.insert(slots.end(), more.begin(), more.end());
  }
  return slots;
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

TEST(PlanDeepseek, AgreesWithTheObviousVersion) {
  RandomShapes random;
  for (int round = 0; round < 1000; ++round) {
    const PlanShape shape = random.next_shape();
    const std::vector<double> load = random.next_load(shape.num_experts);
    const Result<Placement> placement = plan_layer_deepseek(load, shape);
    ASSERT_TRUE(placement.ok()) << placement.status().message();
    ASSERT_EQ(placement->slot_to_expert, play(load, shape)) << "round " << round;
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

// A plan must beat no plan on every recorded layer: 256 experts, 8 groups, 4 nodes of 8 ranks.
TEST(PlanDeepseek, BalancesRealLoads) {
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  if (data == nullptr) GTEST_SKIP() << "WIDEEP_DATA_DIR is not set: no recorded loads to plan for";
  const std::string folder = std::string(data) + "/expert_load_deepseek_v3";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " does not exist";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const Result<ExpertStatistics> statistics = read_statistics(entry.path().string());
    ASSERT_TRUE(statistics.ok()) << statistics.status().message();
    for (int layer = 0; layer < statistics->num_layers(); ++layer) {
      const std::vector<int64_t> tokens = statistics->layer_load(layer);
      const std::vector<double> load(tokens.begin(), tokens.end());
      const auto imbalance = [&](const Result<Placement>& placement) {
        return imbalance_ratio(rank_loads(*placement, load, equal_shares(*placement)));
      };
      const auto plan = plan_layer_deepseek(load, shape_of(256, 32, 288, 4, 8));
      ASSERT_TRUE(plan.ok());
      ASSERT_EQ(plan->slot_to_expert, play(load, shape_of(256, 32, 288, 4, 8)));
      EXPECT_LT(imbalance(plan), imbalance(default_placement(256, 32, 288)));
    }
  }
}

}  // namespace
}  // namespace wideep::balance
