// SPDX-License-Identifier: Apache-2.0
//
// The choosers of all ranks choose for random, skewed tokens. What slots receive is held against
// the shares of balance::resplit, which is the optimum that the balancer reckons with, and against
// the spread over nodes that it predicts from shares alone. That a token stays on its rank or node
// is shown by examples worked out by hand. A failure means that loads or traffic are not those that
// a placement was chosen for; results of the model cannot change by it, unless a slot has another
// expert.
#include "ep/slot_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "placement/token_spread.h"

namespace wideep::ep {
namespace {

using balance::Placement;
using testing::ElementsAre;

// The experts that each rank's tokens are routed to in one call: [ep_size] lists.
using Routing = std::vector<std::vector<int32_t>>;

std::vector<int32_t> count(const Routing& routing, int num_experts) {
  std::vector<int32_t> counts(routing.size() * num_experts, 0);
  for (size_t rank = 0; rank < routing.size(); ++rank) {
    for (const int32_t expert : routing[rank]) ++counts[rank * num_experts + expert];
  }
  return counts;
}

// The choosers of all ranks.
class Group {
 public:
  Group(const Placement& placement, std::span<const double> shares = {}, int num_nodes = 1)
      : placement_(placement) {
    const DispatchShape shape{.ep_size = placement.ep_size,
                              .num_experts = placement.num_experts,
                              .slots_per_rank = placement.slots_per_rank(),
                              .num_nodes = num_nodes};
    for (int rank = 0; rank < placement.ep_size; ++rank) {
      choosers_.emplace_back(shape, rank).set_placement(0, placement, shares);
    }
  }

  std::vector<SlotChooser>& choosers() { return choosers_; }

  // [ep_size] chosen slots.
  Routing choose(const Routing& routing, bool by_counts) {
    const auto counts = count(routing, placement_.num_experts);
    Routing slots;
    for (size_t rank = 0; rank < routing.size(); ++rank) {
      if (by_counts) {
        choosers_[rank].split_by_counts(0, counts);
      } else {
        choosers_[rank].split_by_given_shares(
            0, std::span(counts).subspan(rank * placement_.num_experts, placement_.num_experts));
      }
      choosers_[rank].choose(0, routing[rank], slots.emplace_back(routing[rank].size()));
    }
    return slots;
  }

 private:
  Placement placement_;
  std::vector<SlotChooser> choosers_;
};

std::vector<double> tokens_of_slots(const Routing& slots, int num_slots) {
  std::vector<double> tokens(num_slots, 0.0);
  for (const auto& rank : slots) {
    for (const int32_t slot : rank) tokens[slot] += 1.0;
  }
  return tokens;
}

// A skewed routing: more tokens for low experts and on low ranks, none on some ranks.
Routing random_routing(int ep_size, int num_experts, int tokens, std::mt19937& rng) {
  Routing routing(ep_size);
  for (int rank = 0; rank < ep_size; ++rank) {
    const int count = rng() % 4 == 0 ? 0 : tokens / (rank + 1);
    for (int i = 0; i < count; ++i) {
      routing[rank].push_back(static_cast<int32_t>(std::min(rng(), rng()) % num_experts));
    }
  }
  return routing;
}

TEST(SlotChooser, ChoosesReplicasOfTheExpertAndMeetsTheBestShares) {
  std::mt19937 rng(5);
  const Placement placement = *balance::default_placement(12, 4, 20);
  Group group(placement);
  for (int round = 0; round < 200; ++round) {
    const Routing routing = random_routing(4, 12, 1 + static_cast<int>(rng() % 300), rng);
    const Routing slots = group.choose(routing, true);
    std::vector<double> load(12, 0.0);
    for (size_t rank = 0; rank < routing.size(); ++rank) {
      for (size_t i = 0; i < routing[rank].size(); ++i) {
        ASSERT_EQ(placement.slot_to_expert[slots[rank][i]], routing[rank][i]);
        load[routing[rank][i]] += 1.0;
      }
    }
    const auto shares = balance::resplit(placement, load);
    const auto tokens = tokens_of_slots(slots, 20);
    for (int slot = 0; slot < 20; ++slot) {
      const double exact = shares[slot] * load[placement.slot_to_expert[slot]];
      EXPECT_LT(std::abs(tokens[slot] - exact), 1.0 + 1e-9);
    }
  }
}

// placement/token_spread.h predicts how many other nodes a token goes to from shares alone; here
// the slots are those that an engine chooses.
TEST(SlotChooser, TokensGoToAsManyNodesAsPredicted) {
  constexpr int kRanks = 8, kNodes = 2, kExperts = 32, kTopK = 4, kTokens = 2000;
  std::mt19937 rng(11);
  std::vector<double> load(kExperts);
  Routing routing(kRanks);
  for (auto& of_rank : routing) {
    for (int token = 0; token < kTokens; ++token) {
      std::set<int32_t> chosen;
      while (chosen.size() < kTopK) {
        const auto any = [&] { return rng() % kExperts; };
        chosen.insert(static_cast<int32_t>(std::min({any(), any(), any()})));
      }
      for (const int32_t expert : chosen) load[static_cast<size_t>(expert)] += 1.0;
      of_rank.insert(of_rank.end(), chosen.begin(), chosen.end());
    }
  }
  balance::LayerPlan plan;
  const balance::PlanShape shape{.num_experts = kExperts, .ep_size = kRanks, .num_slots = 48};
  balance::make_planner("wideep", shape, {}).value()->plan(load, &plan);
  balance::LayerSpread predicted(plan.placement, balance::resplit(plan.placement, load), kNodes);
  const Routing slots = Group(plan.placement, {}, kNodes).choose(routing, true);
  int64_t crossings = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    for (size_t at = 0; at < slots[rank].size(); at += kTopK) {
      bool crosses = false;  // there is one other node
      std::vector<uint16_t> experts;
      for (size_t k = at; k < at + kTopK; ++k) {
        crosses |= slots[rank][k] / (48 / kNodes) != rank / (kRanks / kNodes);
        experts.push_back(static_cast<uint16_t>(routing[rank][k]));
      }
      crossings += crosses;
      predicted.add(static_cast<int64_t>(at), experts);
    }
  }
  const double measured = static_cast<double>(crossings) / (kRanks * kTokens);
  EXPECT_GT(measured, 0.3);
  EXPECT_NEAR(predicted.spread().crossings, measured, 0.03 * measured);
}

// split_by_counts sends two tokens of each expert to either rank. With given equal shares every
// token stays on its rank.
TEST(SlotChooser, PrefersReplicasOnItsRank) {
  const Placement placement{2, 2, {0, 1, 0, 1}};  // both ranks hold both experts
  Group group(placement);
  const Routing routing = {{0, 0, 0, 1}, {1, 1, 1, 0}};
  EXPECT_THAT(group.choose(routing, true),
              ElementsAre(ElementsAre(0, 0, 2, 1), ElementsAre(1, 3, 3, 2)));
  EXPECT_THAT(group.choose(routing, false),
              ElementsAre(ElementsAre(0, 0, 0, 1), ElementsAre(3, 3, 3, 2)));
}

// Expert 0 is on ranks 0 and 3; nodes are {0, 1} and {2, 3}.
TEST(SlotChooser, ThenPrefersReplicasOnItsNode) {
  const Placement placement{6, 4, {0, 1, 2, 3, 4, 5, 0, 1}};
  const Routing routing = {{}, {0, 0, 0, 0}, {0, 0, 0, 0}, {}};
  for (const bool by_counts : {true, false}) {
    Group group(placement, {}, 2);
    EXPECT_THAT(group.choose(routing, by_counts)[1], ElementsAre(0, 0, 0, 0));
    EXPECT_THAT(group.choose(routing, by_counts)[2], ElementsAre(6, 6, 6, 6));
  }
}

TEST(SlotChooser, GivenSharesAreMetOverTime) {
  const Placement placement{3, 4, {0, 1, 0, 2, 0, 1, 0, 2}};
  std::vector<double> shares = {0.4, 0.3, 0.1, 0.5, 0.3, 0.7, 0.2, 0.5};
  Group group(placement, shares);
  std::vector<double> tokens(8, 0.0);
  double experts[3] = {};
  for (int call = 0; call < 300; ++call) {  // a token of each expert from each rank: as in decoding
    const Routing slots = group.choose(Routing(4, {0, 1, 2}), false);
    const auto more = tokens_of_slots(slots, 8);
    for (int slot = 0; slot < 8; ++slot) {
      tokens[slot] += more[slot];
      experts[placement.slot_to_expert[slot]] += more[slot];
    }
    for (int slot = 0; slot < 8; ++slot) {
      const double exact = shares[slot] * experts[placement.slot_to_expert[slot]];
      EXPECT_LT(std::abs(tokens[slot] - exact), 6.0) << "call " << call << " slot " << slot;
    }
  }
}

// Each rank has one token of an expert of other ranks: they do not all choose the same replica.
TEST(SlotChooser, RanksStartAtDifferentReplicas) {
  const Placement placement{14, 8, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 0}};
  const auto tokens =
      tokens_of_slots(Group(placement).choose(Routing(8, std::vector<int32_t>{0}), false), 16);
  EXPECT_LE(tokens[0], 4.0);
  EXPECT_GE(tokens[0], 2.0);
}

TEST(SlotChooser, IsReproducible) {
  std::mt19937 rng(6);
  const Placement placement = *balance::default_placement(8, 4, 12);
  for (const bool by_counts : {true, false}) {
    Group one(placement), other(placement);
    for (int call = 0; call < 20; ++call) {
      const Routing routing = random_routing(4, 8, 40, rng);
      EXPECT_EQ(one.choose(routing, by_counts), other.choose(routing, by_counts));
    }
  }
}

// After set_placement a chooser behaves like a new one for that placement.
TEST(SlotChooser, FollowsANewPlacement) {
  std::mt19937 rng(7);
  const Placement first = *balance::default_placement(8, 4, 12);
  Placement second = first;
  std::reverse(second.slot_to_expert.begin(), second.slot_to_expert.end());
  for (const bool by_counts : {true, false}) {
    Group changed(first), fresh(second);
    changed.choose(random_routing(4, 8, 40, rng), by_counts);
    for (SlotChooser& chooser : changed.choosers()) chooser.set_placement(0, second, {});
    const Routing routing = random_routing(4, 8, 40, rng);
    const Routing slots = fresh.choose(routing, by_counts);
    for (size_t rank = 0; rank < routing.size(); ++rank) {
      const auto counts = count(routing, 8);
      SlotChooser& chooser = changed.choosers()[rank];
      if (by_counts) chooser.split_by_counts(0, counts);
      if (!by_counts) chooser.split_by_given_shares(0, std::span(counts).subspan(rank * 8, 8));
      std::vector<int32_t> found(routing[rank].size());
      chooser.choose(0, routing[rank], found);
      EXPECT_EQ(found, slots[rank]);
    }
  }
}

TEST(SlotChooser, WithoutReplicasNoSplitIsNeeded) {
  Group group(*balance::linear_placement(4, 2));
  EXPECT_FALSE(group.choosers()[0].has_replicas(0));
  std::vector<int32_t> slots(5);
  group.choosers()[0].choose(0, std::vector<int32_t>{3, 2, 1, 0, 3}, slots);
  EXPECT_THAT(slots, ElementsAre(3, 2, 1, 0, 3));
  EXPECT_TRUE(Group(*balance::default_placement(4, 2, 6)).choosers()[0].has_replicas(0));
}

}  // namespace
}  // namespace wideep::ep
