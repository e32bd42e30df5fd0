// SPDX-License-Identifier: Apache-2.0
#include "plan/search/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "plan/search/search.h"

namespace wideep::balance::search {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(Ring, ReplicatedExpertsAreListedHeaviestFirstByEveryInstructionSet) {
  for (const Search* search : all_searches()) {
    if (!search->supported()) continue;
    Board board(6, 3, 4);
    board.set_load(std::vector<double>{5.0, 1.0, 9.0, 1.0, 7.0, 3.0});
    board.replicas[0] = board.replicas[2] = board.replicas[4] = board.replicas[5] = 2;
    ASSERT_EQ(search->sort_replicated(board), 4);
    std::vector<uint32_t> listed;
    for (size_t i = 0; i < 4; ++i) {
      listed.push_back(board.experts_by_load[i] & board.expert_mask);
    }
    EXPECT_THAT(listed, ElementsAre(2u, 4u, 0u, 5u)) << search->isa;
  }
}

// Ranks are joined by the experts they share.
bool connected(const Board& board) {
  std::vector<int> reached = {0};
  std::vector<char> seen(static_cast<size_t>(board.num_ranks), 0);
  seen[0] = 1;
  for (size_t i = 0; i < reached.size(); ++i) {
    for (int rank = 0; rank < board.num_ranks; ++rank) {
      const int32_t* experts = board.experts_of(rank);
      const int32_t* end = experts + board.filled[static_cast<size_t>(rank)];
      const bool joined = std::any_of(
          experts, end, [&](int32_t expert) { return board.holds(reached[i], expert); });
      if (!joined || seen[static_cast<size_t>(rank)]) continue;
      seen[static_cast<size_t>(rank)] = 1;
      reached.push_back(rank);
    }
  }
  return reached.size() == seen.size();
}

TEST(Ring, JoinsAllRanksAndFillCompletesIt) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> tokens(5.0, 0.7);
  for (int i = 0; i < 50; ++i) {
    Board board(64, 16, 5);
    std::vector<double> load(64);
    for (double& each : load) each = tokens(random);
    board.set_load(load);
    best_search().replicate(board, 80);
    board.clear_slots();
    ASSERT_TRUE(place_ring(board, best_search().sort_replicated(board))) << "case " << i;
    ASSERT_TRUE(connected(board)) << "case " << i;
    const std::vector<int32_t> ring(board.slot_expert.begin(), board.slot_expert.end());
    const std::vector<int> pinned = board.pinned;
    best_search().fill(board);
    ASSERT_THAT(board.filled, Each(5));
    for (int rank = 0; rank < 16; ++rank) {
      const auto first = static_cast<size_t>(rank * board.row);
      const auto count = static_cast<size_t>(pinned[static_cast<size_t>(rank)]);
      EXPECT_TRUE(std::equal(&ring[first], &ring[first] + count, board.experts_of(rank)));
    }
  }
}

TEST(Ring, RefusesTwoReplicasOnOneRank) {
  Board board(4, 2, 4);
  board.set_load(std::vector<double>{8.0, 1.0, 1.0, 1.0});
  board.replicas[0] = 3;
  board.clear_slots();
  EXPECT_FALSE(place_ring(board, best_search().sort_replicated(board)));
}

}  // namespace
}  // namespace wideep::balance::search
