// SPDX-License-Identifier: Apache-2.0
//
// Random counts of two kinds of text; each update is checked to lead to its target, and is in
// service at once. Most numbers bound how much may move: enough to balance a layer in one update,
// hardly anything once both kinds have been seen, or for noise. Turns, busy layers and budgets are
// held by examples. A failure means that ranks copy experts back and forth while they serve, or
// that a change of text stays without an answer.
#include "online/update_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "plan/moves.h"

namespace wideep::online {
namespace {

using balance::LayerPlan;
using balance::Placement;
using ::testing::HasSubstr;
using Counts = std::vector<int64_t>;

constexpr int kExperts = 16;
const PolicyShape kShape{
    .plan = {.num_experts = kExperts, .ep_size = 4, .num_slots = 20}, .num_layers = 3, .top_k = 2};

// Two kinds of text, in which other experts are hot.
Counts counts_of(int kind, unsigned seed, int rows = 4096) {
  Counts counts(kExperts);
  std::mt19937 random(seed);
  for (int i = 0; i < rows; ++i) {
    const bool hot = random() % 3 == 0;  // a third of the rows go to three experts
    const unsigned expert =
        hot ? (random() % 3) * 2 + static_cast<unsigned>(kind) * 7 : random() % kExperts;
    ++counts[expert % kExperts];
  }
  return counts;
}

class UpdatePolicyTest : public testing::Test {
 protected:
  void make(PolicyOptions options, const PolicyShape& shape = kShape) {
    shape_ = shape;
    policy_ = make_update_policy(shape, options).value();
    placements_.assign(static_cast<size_t>(shape.num_layers),
                       balance::default_placement(kExperts, 4, 20).value());
  }

  // Updates are in service at once. rows: of each layer, of 2 per token.
  std::vector<LayerUpdate> iterate(int kind, unsigned seed, std::vector<uint8_t> busy = {},
                                   int rows = 4096) {
    for (int l = 0; l < shape_.num_layers; ++l) {
      policy_->add_counts(l, counts_of(kind, seed * 10 + static_cast<unsigned>(l), rows));
    }
    const auto updates = policy_->end_iteration(placements_, busy);
    for (const LayerUpdate& update : updates) check_and_serve(update);
    return {updates.begin(), updates.end()};
  }

  void check_and_serve(const LayerUpdate& update) {
    Placement& present = placements_[static_cast<size_t>(update.layer_idx)];
    const Placement& target = update.plan.placement;
    ASSERT_TRUE(balance::check_placement(target).ok());
    EXPECT_TRUE(balance::check_shares(target, update.plan.shares).ok());
    EXPECT_EQ(static_cast<int>(update.moves.size()), balance::count_moves(present, target));
    for (const SlotMove& move : update.moves) {
      present.slot_to_expert[static_cast<size_t>(move.slot)] = move.expert;
    }
    EXPECT_EQ(present, target);
  }

  PolicyShape shape_;
  std::unique_ptr<UpdatePolicy> policy_;
  std::vector<Placement> placements_;
};

int moves_of(const std::vector<LayerUpdate>& updates) {
  int moves = 0;
  for (const LayerUpdate& update : updates) moves += static_cast<int>(update.moves.size());
  return moves;
}

TEST_F(UpdatePolicyTest, BalancesAndThenStops) {
  make({.layer_updates_per_iter = 3, .bytes_per_expert = 10, .warm_up_iterations = 1});
  EXPECT_TRUE(iterate(0, 1).empty());  // warm-up
  const auto first = iterate(0, 2);
  ASSERT_EQ(first.size(), 3u);
  for (const LayerUpdate& update : first) {
    EXPECT_LT(update.imbalance_after, 0.02);
    EXPECT_GT(update.imbalance_before, update.imbalance_after + 0.02);
    EXPECT_EQ(update.bytes, 10 * static_cast<int64_t>(update.moves.size()));
  }
  int later = 0;
  for (unsigned i = 3; i < 23; ++i) later += moves_of(iterate(0, i));
  EXPECT_LE(later, 3);  // sampling noise moves hardly anything
}

TEST_F(UpdatePolicyTest, MovesNoExpertBackAndForth) {
  make({.layer_updates_per_iter = 3});
  int early = 0, late = 0;
  for (unsigned i = 0; i < 64; ++i) {
    (i < 32 ? early : late) += moves_of(iterate(static_cast<int>(i / 8 % 2), i));
  }
  // Once both kinds have been seen the placement serves both.
  EXPECT_GT(early, 12);
  EXPECT_LE(late, 12);  // one for each layer and change of text
}

TEST_F(UpdatePolicyTest, LayersTakeTurns) {
  make({.layer_updates_per_iter = 1, .warm_up_iterations = 0});
  std::vector<std::vector<int>> turns;
  for (unsigned i = 0; i < 5; ++i) {
    auto& layers = turns.emplace_back();
    for (const LayerUpdate& update : iterate(static_cast<int>(i % 2), i)) {
      layers.push_back(update.layer_idx);
    }
  }
  EXPECT_EQ(turns[0], std::vector<int>{0});
  EXPECT_EQ(turns[1], std::vector<int>{1});
  EXPECT_EQ(turns[2], std::vector<int>{2});
  EXPECT_TRUE(turns[3].empty());
}

// A quarter of a sample is enough, and all layers are planned at once, though one may have a turn.
TEST_F(UpdatePolicyTest, ANewTextNeedsNoWholeSampleAndNoTurn) {
  make({.layer_updates_per_iter = 1});
  for (unsigned i = 0; i < 24; ++i) iterate(0, i);
  const auto updates = iterate(1, 100, {}, 1024);
  EXPECT_EQ(updates.size(), 3u);
  for (const LayerUpdate& update : updates) {
    EXPECT_GT(update.imbalance_before, update.imbalance_after);
  }
  make({.layer_updates_per_iter = 1, .false_alarm_rate = 0.0});
  for (unsigned i = 0; i < 24; ++i) iterate(0, i);
  EXPECT_LE(iterate(1, 100, {}, 1024).size(), 1u);
}

// 400 looks at small open samples of a load that does not change, in three layers: what was planned
// from whole samples stays.
TEST_F(UpdatePolicyTest, AStationaryLoadMovesNothingForItsNoise) {
  make({.layer_updates_per_iter = 3});
  for (unsigned i = 0; i < 40; ++i) iterate(0, i);
  int moves = 0;
  for (unsigned i = 40; i < 440; ++i) moves += moves_of(iterate(0, i, {}, 256));
  EXPECT_LE(moves, 6);
}

TEST_F(UpdatePolicyTest, ATurnThatRunsOutOfTimeGoesOnInTheNext) {
  make({.layer_updates_per_iter = 3, .turn_ms = 1e-6});
  std::vector<int> planned(3);
  for (unsigned i = 0; i < 40; ++i) {
    const auto updates = iterate(0, i);
    EXPECT_LE(updates.size(), 1u);
    for (const LayerUpdate& update : updates) ++planned[static_cast<size_t>(update.layer_idx)];
  }
  for (const int times : planned) EXPECT_GE(times, 1);
}

TEST_F(UpdatePolicyTest, BusyLayersWait) {
  make({.layer_updates_per_iter = 3, .warm_up_iterations = 0});
  const auto updates = iterate(0, 1, {1, 0, 1});
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].layer_idx, 1);
}

TEST_F(UpdatePolicyTest, IterationsWithoutTokensAreNoTurn) {
  make({.layer_updates_per_iter = 1, .warm_up_iterations = 0});
  EXPECT_TRUE(policy_->end_iteration(placements_).empty());
  const auto updates = iterate(0, 1);
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(updates[0].layer_idx, 0);
}

TEST_F(UpdatePolicyTest, ExpensiveMovesAreNotMade) {
  make({.layer_updates_per_iter = 3, .rows_per_move = 1e6});
  for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(moves_of(iterate(0, i)), 0);
}

TEST_F(UpdatePolicyTest, KeepsToTheBudgetOfMoves) {
  make({.layer_updates_per_iter = 3, .max_moves = 1});
  for (unsigned i = 0; i < 6; ++i) {
    for (const LayerUpdate& update : iterate(0, i)) EXPECT_LE(update.moves.size(), 1u);
  }
}

TEST_F(UpdatePolicyTest, WindowSharesUpdateWithoutMoves) {
  make({.share_update = ShareUpdate::kWindow,
        .layer_updates_per_iter = 3,
        .warm_up_iterations = 1,
        .rows_per_move = 1e6});
  iterate(0, 0);
  const auto updates = iterate(0, 1);
  ASSERT_EQ(updates.size(), 3u);
  EXPECT_EQ(moves_of(updates), 0);
  EXPECT_EQ(updates[0].plan.shares, balance::resplit(placements_[0], policy_->expected_load(0)));
}

TEST_F(UpdatePolicyTest, TrtPlansFromScratchEveryTurn) {
  make({.policy = PolicyKind::kTrt, .layer_updates_per_iter = 3});
  int moves = 0;
  for (unsigned i = 0; i < 8; ++i) {
    for (const LayerUpdate& update : iterate(0, i)) {
      EXPECT_EQ(update.plan.shares, balance::equal_shares(update.plan.placement));
      moves += static_cast<int>(update.moves.size());
    }
  }
  EXPECT_GT(moves, 60);
}

TEST_F(UpdatePolicyTest, DeadRanksGetNothing) {
  PolicyShape shape = kShape;
  shape.plan.num_slots = 24;
  shape.plan.rank_slots = {6, 6, 0, 6};
  make({.layer_updates_per_iter = 3, .warm_up_iterations = 0}, shape);
  auto planner = balance::make_planner("wideep", shape.plan, {}).value();
  LayerPlan plan;
  planner->plan(std::vector<double>(kExperts, 1.0), &plan);
  placements_.assign(3, plan.placement);
  int moves = 0;
  for (unsigned i = 0; i < 4; ++i) moves += moves_of(iterate(0, i));
  EXPECT_GT(moves, 0);  // to the others
  for (const Placement& placement : placements_) {
    EXPECT_THAT(placement.experts_of_rank(2), testing::Each(balance::kUnusedSlot));
  }
}

TEST_F(UpdatePolicyTest, IsDeterministic) {
  const PolicyOptions options{.layer_updates_per_iter = 2};
  std::vector<std::vector<Placement>> ends;
  for (int run = 0; run < 2; ++run) {
    make(options);
    for (unsigned i = 0; i < 12; ++i) iterate(static_cast<int>(i / 4 % 2), i);
    ends.push_back(placements_);
  }
  EXPECT_EQ(ends[0], ends[1]);
}

TEST(MakeUpdatePolicy, BadOptions) {
  const auto error = [](const PolicyOptions& options, PolicyShape shape = kShape) {
    const auto policy = make_update_policy(shape, options);
    return policy.ok() ? std::string() : policy.status().message();
  };
  EXPECT_THAT(error({.layer_updates_per_iter = 4}), HasSubstr("expected 1 to 3"));
  EXPECT_THAT(error({.layer_updates_per_iter = 0}), HasSubstr("layer_updates_per_iter"));
  EXPECT_THAT(error({.tolerance = -1}), HasSubstr("tolerance"));
  EXPECT_THAT(error({.max_moves = 0}), HasSubstr("max_moves"));
  EXPECT_THAT(error({.false_alarm_rate = 1.0}), HasSubstr("false_alarm_rate"));
  EXPECT_THAT(error({.turn_ms = -1.0}), HasSubstr("turn_ms"));
  EXPECT_THAT(error({.window = {.decay = 1.5}}), HasSubstr("decay: expected 0 to 1"));
  EXPECT_THAT(error({.window = {.num_samples = 0}}), HasSubstr("num_samples"));
  PolicyShape groups = kShape;
  groups.plan.num_nodes = groups.plan.num_groups = 2;
  EXPECT_THAT(error({}, groups), HasSubstr("num_groups"));
  PolicyShape few = kShape;
  few.plan.num_slots = 12;
  EXPECT_THAT(error({}, few), HasSubstr("12"));
  EXPECT_EQ(parse_policy("trt").value(), PolicyKind::kTrt);
  EXPECT_FALSE(parse_policy("best").ok());
  EXPECT_FALSE(parse_share_update("").ok());
}

TEST(DefaultHorizon, GrowsWithTheRanks) {
  EXPECT_EQ(default_horizon_tokens(4), 16384);
  EXPECT_EQ(default_horizon_tokens(8), 16384);
  EXPECT_EQ(default_horizon_tokens(32), 131072);
  EXPECT_EQ(default_horizon_tokens(64), 262144);
}

TEST(RowsPerMove, IsCopyTimeInRows) { EXPECT_DOUBLE_EQ(rows_per_move(4e6, 2e9, 1e-4), 20.0); }

}  // namespace
}  // namespace wideep::online
