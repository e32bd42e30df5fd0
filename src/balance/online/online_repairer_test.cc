// SPDX-License-Identifier: Apache-2.0
//
// Counts of two kinds of text are drawn at random; the imbalance is computed here anew, from the
// slots alone. After each step, the moves must lead from the placement before to the one that is
// reported. With a weighted split placements must be those of the engine's own policy after every
// call. A failure means that an engine which embeds this serves another placement than the repairer
// thinks, or copies weights for noise.
#include "wideep/online_repairer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "online/update_policy.h"
#include "plan/moves.h"

namespace wideep::online {
namespace {

using balance::Placement;
using balance::Split;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Counts = std::vector<int64_t>;

constexpr int kExperts = 16;
constexpr int kLayers = 3;
const RepairerShape kShape{.plan = {.num_experts = kExperts, .ep_size = 4, .num_slots = 20},
                           .num_layers = kLayers,
                           .top_k = 2};

// Two kinds of text, in which other experts are hot. [L, E]
Counts counts_of(int kind, unsigned seed, int rows = 8192) {
  Counts counts(kExperts * kLayers);
  std::mt19937 random(seed);
  for (unsigned layer = 0; layer < kLayers; ++layer) {
    for (int i = 0; i < rows; ++i) {
      const bool hot = random() % 3 == 0;
      const unsigned expert =
          hot ? (random() % 3) * 2 + layer + static_cast<unsigned>(kind) * 7 : random() % kExperts;
      ++counts[layer * kExperts + expert % kExperts];
    }
  }
  return counts;
}

std::vector<Placement> in_order() {
  return std::vector<Placement>(kLayers, balance::default_placement(kExperts, 4, 20).value());
}

OnlineRepairer make(const RepairerOptions& options, const RepairerShape& shape = kShape) {
  auto repairer = OnlineRepairer::create(shape, options, in_order());
  EXPECT_TRUE(repairer.ok()) << repairer.status().message();
  return std::move(repairer).value();
}

// Checks that the updates lead from `before` to the repairer's placements, and returns the moves.
int check_updates(std::vector<Placement> before, const OnlineRepairer& repairer,
                  std::span<const LayerUpdate> updates) {
  int moves = 0;
  for (const LayerUpdate& update : updates) {
    Placement& placement = before[static_cast<size_t>(update.layer_idx)];
    EXPECT_EQ(static_cast<int>(update.moves.size()),
              balance::count_moves(placement, update.plan.placement));
    for (const SlotMove& move : update.moves) {
      placement.slot_to_expert[static_cast<size_t>(move.slot)] = move.expert;
    }
    EXPECT_EQ(placement, update.plan.placement);
    EXPECT_TRUE(balance::check_placement(placement).ok());
    moves += static_cast<int>(update.moves.size());
  }
  EXPECT_TRUE(std::ranges::equal(before, repairer.placements()));
  return moves;
}

int step(OnlineRepairer& repairer, const Counts& counts, std::vector<uint8_t> busy = {}) {
  const std::vector<Placement> before(repairer.placements().begin(), repairer.placements().end());
  const auto updates = repairer.step(counts, busy);
  EXPECT_TRUE(updates.ok()) << updates.status().message();
  return updates.ok() ? check_updates(before, repairer, *updates) : 0;
}

// Mean over layers of the imbalance with equal shares, counted here anew.
double equal_imbalance(std::span<const Placement> placements, const Counts& counts) {
  double sum = 0.0;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const std::vector<int32_t>& experts = placements[layer].slot_to_expert;
    std::vector<double> ranks(4);
    double rows = 0.0;
    for (size_t slot = 0; slot < experts.size(); ++slot) {
      const auto replicas = std::count(experts.begin(), experts.end(), experts[slot]);
      const int64_t tokens = counts[layer * kExperts + static_cast<size_t>(experts[slot])];
      ranks[slot / 5] += static_cast<double>(tokens) / static_cast<double>(replicas);
      rows += static_cast<double>(tokens) / static_cast<double>(replicas);
    }
    sum += *std::max_element(ranks.begin(), ranks.end()) / (rows / 4) - 1.0;
  }
  return sum / kLayers;
}

TEST(OnlineRepairer, EqualSplitIsBalancedByFewMoves) {
  OnlineRepairer repairer = make({});
  const double before = equal_imbalance(repairer.placements(), counts_of(0, 99));
  EXPECT_GT(before, 0.15);
  const int moves = step(repairer, counts_of(0, 1));
  EXPECT_GT(moves, 0);
  EXPECT_LE(moves, 10 * kLayers);
  EXPECT_LT(equal_imbalance(repairer.placements(), counts_of(0, 99)), 0.05);
  // The same text again moves next to nothing.
  int more = 0;
  for (unsigned seed = 2; seed < 12; ++seed) more += step(repairer, counts_of(0, seed));
  EXPECT_LE(more, 3 * kLayers);
}

TEST(OnlineRepairer, OtherTextIsNoticedInOneStep) {
  OnlineRepairer repairer = make({});
  for (unsigned seed = 1; seed < 4; ++seed) step(repairer, counts_of(0, seed));
  const double before = equal_imbalance(repairer.placements(), counts_of(1, 99));
  EXPECT_GT(step(repairer, counts_of(1, 7)), 0);
  EXPECT_LT(equal_imbalance(repairer.placements(), counts_of(1, 99)), 0.7 * before);
}

TEST(OnlineRepairer, ReportsTheImbalanceOfItsOnlySample) {
  OnlineRepairer repairer = make({.num_samples = 1});
  const std::vector<Placement> before = in_order();
  const Counts counts = counts_of(0, 3);
  const auto updates = repairer.step(counts);
  ASSERT_TRUE(updates.ok());
  ASSERT_EQ(updates->size(), static_cast<size_t>(kLayers));
  double mean_before = 0.0, mean_after = 0.0;
  for (const LayerUpdate& update : *updates) {
    mean_before += update.imbalance_before / kLayers;
    mean_after += update.imbalance_after / kLayers;
    EXPECT_TRUE(update.urgent);
    for (size_t slot = 0; slot < update.plan.shares.size(); ++slot) {
      const std::vector<int32_t>& experts = update.plan.placement.slot_to_expert;
      const auto replicas = std::count(experts.begin(), experts.end(), experts[slot]);
      EXPECT_DOUBLE_EQ(update.plan.shares[slot], 1.0 / static_cast<double>(replicas));
    }
  }
  EXPECT_NEAR(mean_before, equal_imbalance(before, counts), 1e-9);
  EXPECT_NEAR(mean_after, equal_imbalance(repairer.placements(), counts), 1e-9);
}

TEST(OnlineRepairer, NoiseMovesNothing) {
  // A slot for each expert: balanced for the uniform load that the counts are drawn from.
  RepairerShape shape = kShape;
  shape.plan.num_slots = 16;
  const std::vector<Placement> linear(kLayers, balance::linear_placement(kExperts, 4).value());
  auto repairer = OnlineRepairer::create(shape, {}, linear);
  ASSERT_TRUE(repairer.ok());
  std::mt19937 random(4);
  int moves = 0;
  for (int i = 0; i < 200; ++i) {
    Counts counts(kExperts * kLayers);
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int row = 0; row < 256; ++row) {
        ++counts[static_cast<size_t>(layer) * kExperts + random() % kExperts];
      }
    }
    const auto updates = repairer->step(counts);
    for (const LayerUpdate& update : *updates) moves += static_cast<int>(update.moves.size());
  }
  EXPECT_LE(moves, 4);
}

TEST(OnlineRepairer, MovesMustPay) {
  OnlineRepairer dear = make({.rows_per_move = 1e6});
  EXPECT_EQ(step(dear, counts_of(0, 1)), 0);
  OnlineRepairer middling = make({.rows_per_move = 400});
  OnlineRepairer cheap = make({.rows_per_move = 1});
  const int few = step(middling, counts_of(0, 1)), many = step(cheap, counts_of(0, 1));
  EXPECT_GT(few, 0);
  EXPECT_LT(few, many);
}

TEST(OnlineRepairer, MaxMovesBoundsEveryLayer) {
  for (const Split split : {Split::kEqual, Split::kWeighted}) {
    OnlineRepairer repairer = make({.split = split, .max_moves = 2});
    const auto updates = repairer.step(counts_of(0, 1));
    ASSERT_TRUE(updates.ok());
    EXPECT_FALSE(updates->empty());
    for (const LayerUpdate& update : *updates) EXPECT_LE(update.moves.size(), 2u);
  }
}

TEST(OnlineRepairer, BusyLayersWait) {
  OnlineRepairer repairer = make({});
  const auto first = repairer.step(counts_of(0, 1), std::vector<uint8_t>{0, 1, 0});
  ASSERT_TRUE(first.ok());
  std::set<int> layers;
  for (const LayerUpdate& update : *first) layers.insert(update.layer_idx);
  EXPECT_EQ(layers, (std::set<int>{0, 2}));
  const auto second = repairer.step(counts_of(0, 2));
  ASSERT_TRUE(second.ok());
  ASSERT_FALSE(second->empty());
  EXPECT_TRUE(std::ranges::any_of(*second, [](const auto& each) { return each.layer_idx == 1; }));
}

TEST(OnlineRepairer, WeightedSplitIsTheEnginesPolicy) {
  OnlineRepairer repairer = make({.split = Split::kWeighted, .horizon_tokens = 20000});
  const auto policy =
      make_update_policy(
          {kShape.plan, kLayers, kShape.top_k},
          {.layer_updates_per_iter = kLayers, .rests = false, .horizon_tokens = 20000})
          .value();
  std::vector<Placement> placements = in_order();
  int moves = 0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    const Counts counts = counts_of(seed / 4 % 2, seed, 3000);
    for (int layer = 0; layer < kLayers; ++layer) {
      policy->add_counts(layer, std::span(counts).subspan(static_cast<size_t>(layer) * kExperts,
                                                          static_cast<size_t>(kExperts)));
    }
    for (const LayerUpdate& update : policy->end_iteration(placements)) {
      placements[static_cast<size_t>(update.layer_idx)] = update.plan.placement;
    }
    moves += step(repairer, counts);
    EXPECT_TRUE(std::ranges::equal(placements, repairer.placements()));
  }
  EXPECT_GT(moves, 0);
}

TEST(OnlineRepairer, AShortTurnGoesOnInTheNextStep) {
  const RepairerOptions options = {.split = Split::kWeighted};
  RepairerOptions hurried = options;
  hurried.turn_ms = 1e-6;
  OnlineRepairer unhurried = make(options), in_turns = make(hurried);
  const int all = step(unhurried, counts_of(0, 1)), first = step(in_turns, counts_of(0, 1));
  EXPECT_GT(first, 0);
  EXPECT_LT(first, all);
  EXPECT_GT(step(in_turns, counts_of(0, 2)), 0);
}

TEST(OnlineRepairer, EqualCallsGiveEqualUpdates) {
  OnlineRepairer one = make({}), other = make({});
  for (unsigned seed = 0; seed < 10; ++seed) {
    const Counts counts = counts_of(seed % 3 == 0 ? 1 : 0, seed, 700);
    step(one, counts);
    step(other, counts);
    EXPECT_TRUE(std::ranges::equal(one.placements(), other.placements()));
  }
}

TEST(OnlineRepairer, DeadRanksStayEmpty) {
  RepairerShape shape = kShape;
  shape.plan.num_slots = 24;
  shape.plan.rank_slots = {6, 0, 6, 6};
  std::vector<Placement> placements(kLayers, balance::default_placement(kExperts, 4, 24).value());
  EXPECT_THAT(OnlineRepairer::create(shape, {}, placements).status().message(),
              HasSubstr("placement of layer 0: slot 6 of rank 1 is not usable"));
  const auto rehome = balance::make_repairer(shape.plan, {}).value();
  const std::vector<double> load(kExperts, 1.0);
  for (Placement& placement : placements) {
    balance::LayerPlan plan{placement, {}};
    rehome->repair(load, plan, &plan);
    placement = plan.placement;
  }
  for (const Split split : {Split::kEqual, Split::kWeighted}) {
    auto repairer = OnlineRepairer::create(shape, {.split = split}, placements);
    ASSERT_TRUE(repairer.ok()) << repairer.status().message();
    EXPECT_GT(step(*repairer, counts_of(0, 1)), 0);
    for (const Placement& placement : repairer->placements()) {
      for (int slot = 6; slot < 12; ++slot) {
        EXPECT_EQ(placement.slot_to_expert[static_cast<size_t>(slot)], balance::kUnusedSlot);
      }
    }
  }
}

TEST(OnlineRepairer, FollowsThePlacementThatIsServed) {
  OnlineRepairer repairer = make({});
  step(repairer, counts_of(0, 1));
  const Placement first = in_order()[0];
  ASSERT_TRUE(repairer.set_placement(1, first).ok());
  EXPECT_EQ(repairer.placements()[1], first);
  EXPECT_THAT(repairer.set_placement(3, first).message(), HasSubstr("layer: expected 0 to 2"));
  Placement broken = first;
  broken.slot_to_expert.assign(20, 0);
  EXPECT_THAT(repairer.set_placement(1, broken).message(), HasSubstr("placement of layer 1"));
  EXPECT_EQ(repairer.placements()[1], first);
}

TEST(OnlineRepairer, BadInputIsExplained) {
  const auto complaint = [](const RepairerOptions& options, const RepairerShape& shape,
                            std::vector<Placement> placements) {
    return OnlineRepairer::create(shape, options, std::move(placements)).status().message();
  };
  EXPECT_THAT(complaint({.max_moves = 0}, kShape, in_order()), HasSubstr("max_moves"));
  EXPECT_THAT(complaint({.sample_tokens = 0}, kShape, in_order()), HasSubstr("sample_tokens"));
  EXPECT_THAT(complaint({.tolerance = -1.0}, kShape, in_order()), HasSubstr("tolerance"));
  EXPECT_THAT(complaint({}, kShape, {}), HasSubstr("one for each of 3 layers, found 0"));
  RepairerShape other = kShape;
  other.plan.num_slots = 24;
  EXPECT_THAT(
      complaint({}, other, in_order()),
      HasSubstr("placement of layer 0: expected 16 experts in 24 slots on 4 ranks, found 16 "
                "in 20 on 4"));
  other = kShape;
  other.num_layers = 0;
  EXPECT_THAT(complaint({}, other, {}), HasSubstr("num_layers"));

  OnlineRepairer repairer = make({});
  EXPECT_THAT(repairer.step(Counts(5)).status().message(),
              HasSubstr("expected 3 layers of 16 experts, found 5 values"));
  Counts negative(kExperts * kLayers);
  negative[17] = -1;
  EXPECT_THAT(repairer.step(negative).status().message(),
              HasSubstr("layer 1, expert 1: expected 0 to 2^53, found -1"));
  EXPECT_THAT(repairer.step(counts_of(0, 1), std::vector<uint8_t>(2)).status().message(),
              HasSubstr("busy"));
  const auto idle = repairer.step(Counts(kExperts * kLayers));
  ASSERT_TRUE(idle.ok());
  EXPECT_THAT(*idle, IsEmpty());
}

}  // namespace
}  // namespace wideep::online
