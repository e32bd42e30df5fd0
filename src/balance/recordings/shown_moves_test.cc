// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 sends iteration + 1 pairs, so the sum of a phase tells which iterations it has. Random
// updates must give phases that follow each other and count what they say. Processor time has a
// bound, because the log of an online server has updates by the hundred thousand. A failure is a
// picture that shows the traffic of one move beside another one.
#include "recordings/shown_moves.h"

#include <gtest/gtest.h>

#include <random>

#include "base/work_timer.h"

namespace wideep::recordings {
namespace {

// Two ranks, layers 3 and 5; rank 0 sends `iteration + 1` pairs to rank 1 in layer 5.
RoutingLog log_of(int first, int last, std::vector<RoutingLog::LayerUpdate> updates) {
  RoutingLog log;
  log.ep_size = 2;
  log.num_experts = log.num_slots = 2;
  log.top_k = 1;
  log.layers = {3, 5};
  for (int i = first; i <= last; ++i) {
    log.iterations.push_back({.iteration = i,
                              .sent = {{{0, 0}, {0, 0}}, {{0, i + 1}, {0, 0}}},
                              .counts = {{{0, 0}, {0, 0}}, {{i + 1, 0}, {0, 0}}},
                              .critical_path_us = {0, 0}});
  }
  log.layer_updates = std::move(updates);
  EXPECT_TRUE(check_routing_log(log).ok()) << check_routing_log(log).message();
  return log;
}

TEST(ShownMoves, HasTheIterationsBeforeDuringAndAfter) {
  const auto moves = shown_moves(log_of(0, 20, {{5, 8, 11, 2}}), 10, 4);
  ASSERT_EQ(moves.size(), 1u);
  const ShownMove& move = moves[0];
  EXPECT_EQ(move.layer_idx, 1u);
  const auto expect_phase = [](const ShownMove::Phase& phase, int64_t first, int64_t last) {
    EXPECT_EQ(phase.first, first);
    EXPECT_EQ(phase.last, last);
    int64_t sum = 0;
    for (int64_t i = first; i <= last; ++i) sum += i + 1;
    EXPECT_EQ(phase.num_recorded, last - first + 1);
    EXPECT_EQ(phase.sent, (std::vector<std::vector<int64_t>>{{0, sum}, {0, 0}}));
  };
  expect_phase(move.phases[0], 5, 8);
  expect_phase(move.phases[1], 9, 10);
  expect_phase(move.phases[2], 11, 14);
}

TEST(ShownMoves, StepsOfOneDecisionAreOneMove) {
  const auto moves = shown_moves(log_of(0, 9, {{5, 2, 4, 3}, {3, 2, 4, 1}, {5, 2, 6, 2}}), 10, 4);
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[0].layer_idx, 0u);
  EXPECT_EQ(moves[1].switched, 6);
  EXPECT_EQ(moves[1].moves, 5);
  EXPECT_EQ(moves[1].phases[1].first, 3);
  EXPECT_EQ(moves[1].phases[1].last, 5);
}

TEST(ShownMoves, LeavesOutIterationsOfOtherMovesOfTheLayer) {
  const auto moves = shown_moves(log_of(0, 30, {{5, 3, 5, 1}, {5, 8, 9, 1}, {5, 11, 14, 1}}), 9, 9);
  ASSERT_EQ(moves.size(), 3u);
  EXPECT_EQ(moves[1].phases[0].first, 5);
  EXPECT_EQ(moves[1].phases[1].num_recorded, 0);
  EXPECT_EQ(moves[1].phases[2].last, 13);
  EXPECT_EQ(moves[0].phases[0].first, 0);
  EXPECT_EQ(moves[2].phases[2].last, 22);
}

TEST(ShownMoves, KeepsTheLargest) {
  const auto moves =
      shown_moves(log_of(0, 9, {{3, 0, 1, 5}, {5, 1, 2, 1}, {3, 2, 3, 7}, {5, 4, 5, 0}}), 2, 4);
  ASSERT_EQ(moves.size(), 2u);
  EXPECT_EQ(moves[0].moves, 5);
  EXPECT_EQ(moves[1].moves, 7);
  EXPECT_EQ(shown_moves(log_of(0, 9, {{5, 4, 5, 0}}), 2, 4).size(), 0u);  // shares only
}

// Whatever the log: phases do not overlap, follow each other, and count what they say.
TEST(ShownMoves, PhasesAreConsecutive) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<RoutingLog::LayerUpdate> updates;
    int64_t switched = 0;
    for (int i = 0; i < 6; ++i) {
      const int64_t decided = switched + static_cast<int64_t>(random() % 4);
      switched = decided + 1 + static_cast<int64_t>(random() % 3);
      updates.push_back(
          {random() % 2 == 0 ? 3 : 5, decided, switched, static_cast<int64_t>(random() % 3)});
    }
    for (const ShownMove& move : shown_moves(log_of(2, 25, updates), 100, 5)) {
      EXPECT_EQ(move.phases[0].last, move.decided);
      EXPECT_EQ(move.phases[1].first, move.decided + 1);
      EXPECT_EQ(move.phases[1].last + 1, move.switched);
      EXPECT_EQ(move.phases[2].first, move.switched);
      for (const ShownMove::Phase& phase : move.phases) {
        int64_t recorded = 0;
        for (int64_t i = phase.first; i <= phase.last; ++i) recorded += i >= 2 && i <= 25 ? 1 : 0;
        EXPECT_EQ(phase.num_recorded, recorded);
      }
    }
  }
}

// An online server of many layers writes so many within an hour.
TEST(ShownMoves, TakesTimeInProportionToTheUpdates) {
  std::vector<RoutingLog::LayerUpdate> updates;
  for (int64_t i = 0; i < 200'000; ++i) updates.push_back({i % 2 == 0 ? 3 : 5, i, i + 1, 1});
  const RoutingLog log = log_of(0, 1, std::move(updates));
  const base::WorkTimer work;
  EXPECT_EQ(shown_moves(log, 10, 4).size(), 10u);
  EXPECT_LT(work.seconds(), 4);  // 0.1 s; with its square 25 s
}

}  // namespace
}  // namespace wideep::recordings
