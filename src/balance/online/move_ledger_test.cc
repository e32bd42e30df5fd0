// SPDX-License-Identifier: Apache-2.0
//
// Two ranks on which a row takes 1 ms: what a switch saves is counted by hand. Then switches come
// at random, from one in three trials to 640 in each. Held is that every trial ends on time, that
// the sums add up, and that a balancer whose moves gain nothing rests within five trials. A failure
// means that moves are credited with what they did not save, or that balancing stops although it
// pays.
#include "online/move_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace wideep::online {
namespace {

using balance::Placement;

constexpr int kTopK = 2;

Placement of_slots(int num_experts, int ep_size, std::vector<int32_t> slots) {
  Placement placement;
  placement.num_experts = num_experts;
  placement.ep_size = ep_size;
  placement.slot_to_expert = std::move(slots);
  return placement;
}

// Of one iteration, in which a row takes 1 ms.
GroupLoads loads_of(std::vector<int64_t> tokens, int64_t num_iterations = 1) {
  return {.num_iterations = num_iterations,
          .tokens = std::move(tokens),
          .first_rank_rows = 5,
          .first_rank_ns = 5'000'000};
}

// Two ranks with two slots each. Experts 0 and 1 have most of the load.
const Placement kHot = of_slots(4, 2, {0, 1, 2, 3});
const Placement kEven = of_slots(4, 2, {0, 2, 1, 3});
const std::vector<int64_t> kLoad = {40, 40, 10, 10};

LedgerOptions options_for(int64_t trial_rows) {
  return {.num_ranks = 2, .trial_rows = trial_rows, .judged_moves = 2};
}

TEST(MoveLedger, ASwitchSavesTheRowsOfTheFullestRank) {
  MoveLedger ledger(std::vector{kHot}, options_for(1000));
  ledger.add(loads_of(kLoad), kTopK);
  EXPECT_EQ(ledger.sums().saved_seconds, 0.0);  // nothing has moved
  ledger.switched(0, kEven, 2);
  ledger.add(loads_of(kLoad), kTopK);
  EXPECT_DOUBLE_EQ(ledger.sums().saved_seconds, 0.030);  // 80 rows → 50
  EXPECT_EQ(ledger.sums().lost_seconds, 0.0);
  ledger.add(loads_of({40, 10, 40, 10}), kTopK);  // another text: 50 rows → 80
  EXPECT_DOUBLE_EQ(ledger.sums().lost_seconds, 0.030);
  ledger.pay(0.25);
  EXPECT_DOUBLE_EQ(ledger.sums().net_seconds(), -0.25);
  EXPECT_EQ(ledger.sums().moves, 2);
}

TEST(MoveLedger, WhatIsExpectedIsOfAWholeTrial) {
  MoveLedger ledger(std::vector{kHot}, options_for(1000));
  ledger.add(loads_of(kLoad), kTopK);
  // 500 rows for each rank, of which 0.6 fewer on the fullest.
  EXPECT_DOUBLE_EQ(ledger.expect(0.6), 0.3);
  EXPECT_DOUBLE_EQ(ledger.sums().expected_seconds, 0.3);
}

TEST(MoveLedger, NothingIsCountedAfterTheTrial) {
  MoveLedger ledger(std::vector{kHot}, options_for(200));
  ledger.switched(0, kEven, 2);
  for (int i = 0; i < 10; ++i) ledger.add(loads_of(kLoad), kTopK);
  EXPECT_DOUBLE_EQ(ledger.sums().saved_seconds, 2 * 0.030);
}

TEST(MoveLedger, SwitchesOnTrialTogetherSaveWhatAllOfThemSave) {
  constexpr int kExperts = 12, kRanks = 4, kSlots = 16;
  std::mt19937 rng(3);
  const auto random_placement = [&] {
    std::vector<int32_t> slots(kSlots);
    for (int i = 0; i < kSlots; ++i)
      slots[i] = i < kExperts ? i : static_cast<int>(rng() % kExperts);
    std::shuffle(slots.begin(), slots.end(), rng);
    return of_slots(kExperts, kRanks, slots);
  };
  for (const bool equal_shares : {false, true}) {
    std::vector<int64_t> tokens(kExperts);
    for (int64_t& each : tokens) each = rng() % 100;
    const std::vector<double> load(tokens.begin(), tokens.end());
    const int64_t rows = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    const Placement first = random_placement();
    MoveLedger ledger(std::vector{first}, {.equal_shares = equal_shares,
                                           .num_ranks = kRanks,
                                           .trial_rows = 8 * rows,
                                           .judged_moves = 1'000'000});
    Placement now = first;
    for (int i = 0; i < 6; ++i) {
      if (i > 0) ledger.add(loads_of(tokens), kTopK);  // far enough apart for trials of their own
      now = random_placement();
      ledger.switched(0, now, 1);
    }
    EXPECT_EQ(ledger.num_trials(0), 6);
    const LedgerSums before = ledger.sums();
    const Sharing sharing = equal_shares ? Sharing::kEqual : Sharing::kEachSample;
    const auto fullest = [&](const Placement& placement) {
      ServedLayer served(sharing, {placement, balance::equal_shares(placement)});
      return (1.0 + served.imbalance(load)) * std::accumulate(load.begin(), load.end(), 0.0) /
             kRanks;
    };
    ledger.add(loads_of(tokens), kTopK);
    const LedgerSums after = ledger.sums();
    EXPECT_NEAR(
        (after.saved_seconds - before.saved_seconds) - (after.lost_seconds - before.lost_seconds),
        1e-3 * (fullest(first) - fullest(now)), 1e-9);
  }
}

TEST(MoveLedger, ExactLoadLeavesNothingToSave) {
  LedgerOptions options = options_for(1000);
  options.even_above_rows = 100;
  MoveLedger ledger(std::vector{kHot}, options);
  ledger.switched(0, kEven, 2);
  ledger.add(loads_of(kLoad), kTopK);
  EXPECT_EQ(ledger.sums().saved_seconds, 0.0);
  ledger.add(loads_of(kLoad, 2), kTopK);  // two iterations of 50 rows
  EXPECT_GT(ledger.sums().saved_seconds, 0.0);
}

// Rows of a layer until the balancer tries again.
int64_t rest_of(MoveLedger& ledger) {
  int64_t rows = 0;
  while (ledger.rests()) {
    rows += 100;
    const auto verdict = ledger.add(loads_of(kLoad), kTopK);
    EXPECT_EQ(verdict.has_value(), !ledger.rests());
    if (verdict) {
      EXPECT_FALSE(verdict->rests);
    }
  }
  return rows;
}

TEST(MoveLedger, RestsAfterMovesThatDidNotPayAndEachTimeLonger) {
  MoveLedger ledger(std::vector{kHot}, options_for(100));
  int64_t rest = 400;
  for (int i = 0; i < 9; ++i) {
    ledger.pay(1.0);
    ledger.switched(0, i % 2 == 0 ? kEven : kHot, 2);
    const auto verdict = ledger.add(loads_of(kLoad), kTopK);
    ASSERT_TRUE(verdict && verdict->rests);
    EXPECT_EQ(verdict->sums.moves, 2);
    EXPECT_EQ(verdict->sums.paid_seconds, 1.0);
    EXPECT_EQ(verdict->rest_tokens, rest / kTopK);
    EXPECT_EQ(rest_of(ledger), rest);
    if (i < 6) rest *= 2;  // then the longest
  }
}

TEST(MoveLedger, MovesThatGainNothingDoNotPay) {
  MoveLedger ledger(std::vector{kHot}, options_for(100));
  ledger.pay(1.0);
  ledger.switched(0, kEven, 2);
  ASSERT_TRUE(ledger.add(loads_of(kLoad), kTopK));
  EXPECT_EQ(rest_of(ledger), 400);
  ledger.switched(0, kHot, 2);  // loses what the next one saves
  ledger.switched(0, kEven, 2);
  EXPECT_TRUE(ledger.add(loads_of(kLoad), kTopK));
  EXPECT_EQ(rest_of(ledger), 800);
  ledger.switched(0, of_slots(4, 2, {0, 3, 1, 2}), 2);
  ledger.pay(0.01);
  ledger.switched(0, kEven, 2);
  EXPECT_TRUE(ledger.add(loads_of(kLoad), kTopK));  // it has lost nothing, but paid
  EXPECT_EQ(rest_of(ledger), 1600);
}

TEST(MoveLedger, GoesOnWhileMovesPay) {
  MoveLedger paying(std::vector{kHot}, options_for(100));
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(paying.add(loads_of(kLoad), kTopK));
    EXPECT_FALSE(paying.rests());
    if (i == 3) paying.switched(0, kEven, 2);
  }
}

TEST(MoveLedger, FewMovesAreJudgedTooAndNoneNever) {
  LedgerOptions options = options_for(100);
  options.judged_moves = 1000;
  MoveLedger ledger(std::vector{kHot}, options);
  ledger.pay(5.0);
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(ledger.add(loads_of(kLoad), kTopK));
  ledger.switched(0, of_slots(4, 2, {1, 0, 2, 3}), 2);
  EXPECT_TRUE(ledger.add(loads_of(kLoad), kTopK));
}

TEST(MoveLedger, NeverRestsIfItMayNot) {
  LedgerOptions options = options_for(100);
  options.may_rest = false;
  MoveLedger ledger(std::vector{kEven}, options);
  for (int i = 0; i < 20; ++i) {
    ledger.switched(0, i % 2 == 0 ? kHot : kEven, 2);
    ledger.pay(1.0);
    EXPECT_FALSE(ledger.add(loads_of(kLoad), kTopK));
    EXPECT_FALSE(ledger.rests());
  }
}

// What is paid before a switch is paid for it; later planning is for later ones.
TEST(MoveLedger, ATrialHasItsOwnCost) {
  MoveLedger ledger(std::vector{kHot}, options_for(100));
  ledger.pay(0.02);
  ledger.switched(0, kEven, 2);
  ledger.pay(5.0);
  EXPECT_FALSE(ledger.add(loads_of(kLoad), kTopK));  // 30 ms saved
  EXPECT_DOUBLE_EQ(ledger.sums().paid_seconds, 5.02);
}

// A layer that switches in every iteration keeps few placements, and loses no savings.
TEST(MoveLedger, SwitchesInTheSameIterationAreOneTrial) {
  MoveLedger ledger(std::vector{kHot}, options_for(1'000'000));
  for (int i = 0; i < 101; ++i) ledger.switched(0, i % 2 == 0 ? kEven : kHot, 2);
  EXPECT_EQ(ledger.num_trials(0), 1);
  ledger.add(loads_of(kLoad), kTopK);
  EXPECT_NEAR(ledger.sums().saved_seconds, 0.030, 1e-9);
  EXPECT_EQ(ledger.sums().lost_seconds, 0.0);
}

// Planning that moves nothing is bounded by its turns, and must not be paid for by a later move.
TEST(MoveLedger, ALongTimeWithoutAMoveIsNoCostOfTheNextOne) {
  MoveLedger ledger(std::vector{kHot}, options_for(100));
  for (int i = 0; i < 50; ++i) {
    ledger.pay(0.1);
    EXPECT_FALSE(ledger.add(loads_of(kLoad), kTopK));
  }
  EXPECT_NEAR(ledger.settled().paid_seconds + ledger.pending().paid_seconds, 5.0, 1e-9);
  EXPECT_LE(ledger.pending().paid_seconds, 0.4 + 1e-9);  // of four trials
  while (ledger.pending().paid_seconds > 0.0) ledger.add(loads_of(kLoad), kTopK);
  ledger.pay(0.02);
  ledger.switched(0, kEven, 2);
  EXPECT_FALSE(ledger.add(loads_of(kLoad), kTopK));  // 30 ms saved, 20 paid
  EXPECT_FALSE(ledger.rests());
}

// ---- for any number of switches in a trial ----

class LedgerProperties : public testing::Test {
 protected:
  static constexpr int kLayers = 3;
  static constexpr int64_t kTrialRows = 6400;

  // An iteration of so many rows of a layer.
  static GroupLoads iteration_of(int64_t rows) {
    GroupLoads loads = loads_of({});
    for (int layer = 0; layer < kLayers; ++layer) {
      for (const int64_t part : {4, 4, 1, 1}) loads.tokens.push_back(part * rows / 10);
    }
    return loads;
  }

  // Moves of switches younger than a trial, which need not have been judged.
  int64_t young_moves(int64_t rows_now) const {
    int64_t moves = 0;
    for (const auto& [rows, count] : switches_) {
      if (rows_now - rows < kTrialRows) moves += count;
    }
    return moves;
  }

  std::vector<std::pair<int64_t, int64_t>> switches_;  // rows of a layer before it, moves
};

TEST_F(LedgerProperties, EveryTrialEndsOnTimeAndCostsAddUp) {
  for (const double per_trial : {0.3, 1.0, 5.0, 8.0, 9.0, 19.0, 64.0, 640.0}) {
    std::mt19937 rng(static_cast<uint32_t>(per_trial * 10));
    switches_.clear();
    MoveLedger ledger(std::vector<Placement>(kLayers, kHot),
                      {.num_ranks = 2, .trial_rows = kTrialRows, .may_rest = per_trial > 8.0});
    double spent = 0.0;
    int64_t rows = 0, moves = 0;
    // So many rows between switches, of which some are in one iteration and some take several.
    const double gap = kTrialRows / per_trial;
    double next_switch = 0.0;
    while (rows < 40 * kTrialRows) {
      for (; next_switch <= static_cast<double>(rows); next_switch += gap) {
        const double cost = 1e-3 * (rng() % 100);
        ledger.pay(cost);
        spent += cost;
        const auto count = static_cast<int64_t>(1 + rng() % 4);
        ledger.switched(static_cast<int>(rng() % kLayers), rng() % 2 == 0 ? kEven : kHot, count);
        switches_.emplace_back(rows, count);
        moves += count;
      }
      const int64_t of_iteration = rng() % 16 == 0 ? 0 : 10 * (1 + rng() % 20);
      ledger.add(iteration_of(of_iteration), kTopK);
      rows += of_iteration;
      ASSERT_LE(ledger.pending().moves, young_moves(rows)) << per_trial << " switches per trial";
      for (int layer = 0; layer < kLayers; ++layer) ASSERT_LE(ledger.num_trials(layer), 8);
    }
    const LedgerSums settled = ledger.settled(), pending = ledger.pending(), all = ledger.sums();
    EXPECT_EQ(all.moves, moves);
    EXPECT_EQ(settled.moves + pending.moves, moves);
    EXPECT_NEAR(all.paid_seconds, spent, 1e-9);
    EXPECT_NEAR(settled.paid_seconds + pending.paid_seconds, spent, 1e-9);
    EXPECT_NEAR(settled.saved_seconds + pending.saved_seconds, all.saved_seconds, 1e-6);
    EXPECT_NEAR(settled.lost_seconds + pending.lost_seconds, all.lost_seconds, 1e-6);
  }
}

TEST_F(LedgerProperties, RestBeginsWithinFiveTrialsOfMovesThatDoNotPay) {
  for (const double per_trial : {0.3, 1.0, 5.0, 8.0, 9.0, 19.0, 64.0, 640.0}) {
    MoveLedger ledger(std::vector<Placement>(kLayers, kHot),
                      {.num_ranks = 2, .trial_rows = kTrialRows});
    constexpr int64_t kIteration = 100;
    const double gap = kTrialRows / per_trial;
    double next_switch = 0.0;
    int64_t first_switch = -1, rests = 0;
    for (int64_t rows = 0; rests < 3; rows += kIteration) {
      // While it rests, nothing is planned.
      for (; next_switch <= static_cast<double>(rows); next_switch += gap) {
        if (ledger.rests()) continue;
        ledger.pay(1.0);
        ledger.switched(0, kHot, 1);  // to where the experts are: it gains nothing
        if (first_switch < 0) first_switch = rows;
      }
      const auto verdict = ledger.add(iteration_of(kIteration), kTopK);
      if (verdict && verdict->rests) {
        ++rests;
        first_switch = -1;
        EXPECT_GT(verdict->sums.moves, 0);
        EXPECT_EQ(verdict->sums.saved_seconds, 0.0);
      }
      if (first_switch >= 0) {
        ASSERT_LE(rows - first_switch, 5 * kTrialRows) << per_trial << " switches per trial";
      }
    }
  }
}

// What nine switches or more in a trial save is counted as well: it goes on while they pay.
TEST_F(LedgerProperties, ManySwitchesThatPayGoOn) {
  for (const int per_trial : {9, 19, 64}) {
    MoveLedger ledger(std::vector<Placement>(kLayers, kHot),
                      {.num_ranks = 2, .trial_rows = kTrialRows});
    bool even = false;
    for (int i = 0; i < 20 * per_trial; ++i) {
      ledger.pay(1e-3);
      ledger.switched(0, even ? kHot : kEven, 1);
      even = !even;
      // The text changes with the placement, so that it suits it.
      GroupLoads loads = iteration_of(kTrialRows / per_trial / 10 * 10);
      if (!even) std::swap(loads.tokens[1], loads.tokens[2]);
      ledger.add(loads, kTopK);
      ASSERT_FALSE(ledger.rests()) << per_trial;
    }
    EXPECT_GT(ledger.settled().saved_seconds, ledger.settled().paid_seconds);
  }
}

}  // namespace
}  // namespace wideep::online
