// SPDX-License-Identifier: Apache-2.0
#include "balance/token_spread.h"

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

TEST(TokenSpread, DeadRanksDoNotCount) {
  const Placement placement{.num_experts = 2, .ep_size = 3, .slot_to_expert = {0, kUnusedSlot, 1}};
  const Spread spread = spread_of(placement, {1.0, 0.0, 1.0}, {{0, 1}});
  EXPECT_DOUBLE_EQ(spread.ranks_by_shares, 2.0);
  EXPECT_DOUBLE_EQ(spread.imbalance_by_cover, 0.0);
}

}  // namespace
}  // namespace wideep::balance
