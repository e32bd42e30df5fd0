// SPDX-License-Identifier: Apache-2.0
#include "measure/ep/ep_board.h"

#include <gtest/gtest.h>

namespace wideep::measure {
namespace {

TEST(EpBoard, RoundTakesTheTimeOfItsSlowestRank) {
  const auto board = EpBoard::create(2);
  ASSERT_TRUE(board.ok()) << board.status().message();
  board->num_rounds() = 3;
  EpRankBlock& first = board->block(0);
  EpRankBlock& second = board->block(1);
  const EpPhases short_round{.prepare = 1000, .dispatch = 2000, .combine = 3000};
  const EpPhases long_round{.prepare = 1000, .dispatch = 12000, .combine = 3000};
  for (int i = 0; i < 3; ++i) first.rounds[i] = second.rounds[i] = short_round;
  first.rounds[0] = second.rounds[2] = long_round;
  first.start_ns = 5'000, second.start_ns = 6'000;
  first.end_ns = 35'000, second.end_ns = 65'000;
  first.cpu_ns = 30'000, second.cpu_ns = 90'000;
  first.bytes = second.bytes = 500;

  const EpBlock block = block_of_group(*board, 2);
  EXPECT_DOUBLE_EQ(block.round, 16.0);  // 16, 6, 16
  EXPECT_DOUBLE_EQ(block.dispatch, 12.0);
  EXPECT_DOUBLE_EQ(block.combine, 3.0);
  EXPECT_DOUBLE_EQ(block.mean, 20.0);  // from 5 to 65, 3 rounds
  EXPECT_DOUBLE_EQ(block.cpu, 20.0);
  EXPECT_DOUBLE_EQ(block.bytes, 1000.0);
}

}  // namespace
}  // namespace wideep::measure
