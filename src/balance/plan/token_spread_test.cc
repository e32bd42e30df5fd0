// SPDX-License-Identifier: Apache-2.0
//
// Expectations are held against every choice of replicas, each with its probability; the greedy
// cover against the fewest ranks of any choice, which it must reach where a token has three
// experts. Between nodes, the chances that replicas on the own node come first are worked out by
// hand. A failure means that placements are compared by traffic that they do not cause.
#include "placement/token_spread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>

#include "wideep/balancer.h"

namespace wideep::balance {
namespace {

using Choice = std::vector<uint16_t>;

Spread spread_of(const Placement& placement, const Shares& shares,
                 const std::vector<Choice>& choices) {
  LayerSpread layer(placement, shares);
  for (size_t i = 0; i < choices.size(); ++i) layer.add(static_cast<int64_t>(i), choices[i]);
  return layer.spread();
}

// Calls visit(ranks, probability) for every way to choose a slot for each of the experts.
void visit_ways(const Placement& placement, const Shares& shares, std::span<const uint16_t> experts,
                std::vector<int> ranks, double probability,
                const std::function<void(const std::vector<int>&, double)>& visit) {
  if (experts.empty()) return visit(ranks, probability);
  for (int slot = 0; slot < placement.num_slots(); ++slot) {
    if (placement.slot_to_expert[static_cast<size_t>(slot)] != experts[0]) continue;
    ranks.push_back(placement.rank_of_slot(slot));
    visit_ways(placement, shares, experts.subspan(1), ranks,
               probability * shares[static_cast<size_t>(slot)], visit);
    ranks.pop_back();
  }
}

struct Expected {
  double ranks = 0;
  double pairs_within = 0;
  int fewest = 1000;  // ranks of any way
};

Expected enumerate(const Placement& placement, const Shares& shares, const Choice& choice) {
  Expected expected;
  visit_ways(placement, shares, choice, {}, 1.0, [&](const std::vector<int>& ranks, double weight) {
    const auto distinct = std::set<int>(ranks.begin(), ranks.end()).size();
    expected.ranks += weight * static_cast<double>(distinct);
    expected.fewest = std::min(expected.fewest, static_cast<int>(distinct));
    for (size_t a = 0; a < ranks.size(); ++a) {
      for (size_t b = 0; b < a; ++b) expected.pairs_within += ranks[a] == ranks[b] ? weight : 0.0;
    }
  });
  return expected;
}

struct RandomLayer {
  Placement placement;
  Shares shares;
  std::vector<Choice> choices;
};

// 8 experts, 4 ranks of 3 slots, top 3; some ranks hold an expert twice.
RandomLayer random_layer(std::mt19937& random) {
  RandomLayer layer;
  std::vector<int32_t> slots = {0, 1, 2, 3, 4, 5, 6, 7};
  while (slots.size() < 12) slots.push_back(static_cast<int32_t>(random() % 8));
  std::shuffle(slots.begin(), slots.end(), random);
  layer.placement = {.num_experts = 8, .ep_size = 4, .slot_to_expert = slots};
  std::vector<double> sum(8, 0.0);
  for (const int32_t expert : slots) {
    layer.shares.push_back(1.0 + static_cast<double>(random() % 4));
    sum[static_cast<size_t>(expert)] += layer.shares.back();
  }
  for (size_t s = 0; s < 12; ++s) layer.shares[s] /= sum[static_cast<size_t>(slots[s])];
  Choice experts = {0, 1, 2, 3, 4, 5, 6, 7};
  for (int token = 0; token < 20; ++token) {
    std::shuffle(experts.begin(), experts.end(), random);
    layer.choices.emplace_back(experts.begin(), experts.begin() + 3);
  }
  return layer;
}

TEST(TokenSpread, AgreesWithEveryChoiceOfReplicas) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    const auto [placement, shares, choices] = random_layer(random);
    double ranks = 0, within = 0, fewest = 0;
    for (const Choice& choice : choices) {
      const Expected expected = enumerate(placement, shares, choice);
      ranks += expected.ranks;
      within += expected.pairs_within;
      fewest += expected.fewest;
    }
    const Spread spread = spread_of(placement, shares, choices);
    EXPECT_NEAR(spread.ranks_by_shares, ranks / 20, 1e-12);
    EXPECT_NEAR(spread.within_rank_ratio, within / 60, 1e-12);
    // Given ranks first, then greedily: for three experts that is the fewest there can be.
    EXPECT_NEAR(spread.ranks_by_cover, fewest / 20, 1e-12);
  }
}

TEST(TokenSpread, CoverPrefersRanksThatATokenGoesToAnyway) {
  // Expert 0 is on both ranks; 1 on the first, 2 on the second.
  const Placement placement{.num_experts = 3, .ep_size = 2, .slot_to_expert = {0, 1, 0, 2}};
  const Spread spread = spread_of(placement, equal_shares(placement), {{0, 1}, {0, 1}, {0, 2}});
  EXPECT_DOUBLE_EQ(spread.ranks_by_shares, 1.5);
  EXPECT_DOUBLE_EQ(spread.ranks_by_cover, 1.0);
  EXPECT_DOUBLE_EQ(spread.within_rank_ratio, 0.5);
  EXPECT_NEAR(spread.imbalance_by_cover, 4.0 / 3.0 - 1.0, 1e-12);
}

// Every way to serve the experts of a token from node `from`: chances[expert][node].
double distinct_others(const std::vector<std::vector<double>>& chances, const Choice& choice,
                       size_t from, size_t index = 0, std::set<size_t> others = {}) {
  if (index == choice.size()) return static_cast<double>(others.size());
  double sum = 0;
  const std::vector<double>& chance = chances[choice[index]];
  for (size_t node = 0; node < chance.size(); ++node) {
    if (chance[node] == 0) continue;
    std::set<size_t> more = others;
    if (node != from) more.insert(node);
    sum += chance[node] * distinct_others(chances, choice, from, index + 1, more);
  }
  return sum;
}

// Nodes keep what their share allows of their own tokens, and take the rest of nodes that are
// below: the chances by hand.
TEST(TokenSpread, CountsTheOtherNodesOfAToken) {
  // Expert 0 on nodes 0 and 1 of 4 in equal parts, 1 on all, 2 on node 2, 3 on node 2 with 0.1
  // on 3.
  const Placement placement{
      .num_experts = 4, .ep_size = 4, .slot_to_expert = {0, 1, -1, 0, 1, -1, 2, 1, 3, 1, 3, -1}};
  const Shares shares = {0.5, 0.25, 0, 0.5, 0.25, 0, 1, 0.25, 0.9, 0.25, 0.1, 0};
  const std::vector<Choice> choices = {{0, 1, 2}, {2, 3, 1}, {3, 0, 2}};
  LayerSpread layer(placement, shares, 4);
  double expected = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    layer.add(static_cast<int64_t>(i), choices[i]);
    for (size_t from = 0; from < 4; ++from) {
      const bool is_low = from < 2;
      const std::vector<double> of_0 =
          is_low ? std::vector<double>{from == 0 ? 1.0 : 0.0, from == 1 ? 1.0 : 0.0, 0, 0}
                 : std::vector<double>{0.5, 0.5, 0, 0};
      std::vector<double> of_1(4), of_2 = {0, 0, 1, 0}, of_3 = {0, 0, 1, 0};
      of_1[from] = 1;
      if (from == 3) of_3 = {0, 0, 0.6, 0.4};  // 0.1 of the 0.25 tokens of node 3
      expected += distinct_others({of_0, of_1, of_2, of_3}, choices[i], from) / 4;
    }
  }
  EXPECT_NEAR(layer.spread().crossings, expected / 3, 1e-12);
}

TEST(TokenSpread, OneNodeHasNoCrossings) {
  const Placement placement{.num_experts = 2, .ep_size = 2, .slot_to_expert = {0, 1}};
  EXPECT_EQ(spread_of(placement, {1.0, 1.0}, {{0, 1}}).crossings, 0.0);
  LayerSpread two_nodes(placement, std::vector<double>{1.0, 1.0}, 2);
  two_nodes.add(0, Choice{0, 1});
  EXPECT_DOUBLE_EQ(two_nodes.spread().crossings, 1.0);
}

TEST(TokenSpread, DeadRanksDoNotCount) {
  const Placement placement{.num_experts = 2, .ep_size = 3, .slot_to_expert = {0, kUnusedSlot, 1}};
  const Spread spread = spread_of(placement, {1.0, 0.0, 1.0}, {{0, 1}});
  EXPECT_DOUBLE_EQ(spread.ranks_by_shares, 2.0);
  EXPECT_DOUBLE_EQ(spread.imbalance_by_cover, 0.0);
}

}  // namespace
}  // namespace wideep::balance
