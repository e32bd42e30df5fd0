// SPDX-License-Identifier: Apache-2.0
//
// Four ranks are threads on two nodes, each node with a board of its own, joined by a bridge. Held
// is that both boards get the last plan of each layer, that every counter reaches the node of the
// first rank, and that a notice of a group without a board here is dropped. A failure means that
// ranks on another node make no copies, so the layer is never decided, or that reports leave their
// work out.
#include "online/board_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/cpu_time.h"
#include "base/try.h"
#include "transport/rank_threads.h"

namespace wideep::online {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using transport::Endpoint;

constexpr std::array<int, 4> kRanks = {0, 1, 2, 3};

// Four ranks on two nodes, each with a board of its node.
class BoardRelayTest : public testing::Test {
 protected:
  BoardRelayTest() {
    for (auto& board : boards_) {
      board = UpdateBoard::create({.num_ranks = 4, .num_layers = 2, .num_slots = 4}).value();
    }
  }

  // send: called on each rank with its relay. Returns when all that was sent has arrived.
  void run(const std::function<void(int rank, UpdateBoard& board, const BoardRelay& relay)>& send) {
    const auto statuses = transport::run_rank_threads(
        {.num_ranks = 4, .segment_bytes = 64, .num_nodes = 2}, [&](Endpoint& endpoint) -> Status {
          const auto node = static_cast<size_t>(endpoint.bridge()->node());
          UpdateBoard& board = *boards_[node];
          endpoint.bridge()->set_on_notice([&](std::span<const std::byte> notice) {
            return apply_notice(notice, std::array<UpdateBoard*, 1>{&board});
          });
          WIDEEP_TRY(endpoint.barrier({.what = "handlers"}));
          send(endpoint.rank(), board,
               BoardRelay(*endpoint.bridge(), board, 0, kRanks, endpoint.rank()));
          return endpoint.barrier({.what = "the end"});
        });
    for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
  }

  std::array<std::unique_ptr<UpdateBoard>, 2> boards_;
};

TEST_F(BoardRelayTest, PlansReachAllBoards) {
  run([](int rank, UpdateBoard& board, const BoardRelay& relay) {
    if (rank != 0) return;
    board.post(1, std::array{3, 1, 2, 0}, std::array{0.5, 1.0, 1.0, 0.5});
    relay.send_plan(1);
    board.post(0, std::array{1, 0, 2, 3}, {});
    relay.send_plan(0);
  });
  for (const auto& board : boards_) {
    EXPECT_EQ(board->num_posts(), 2u);
    EXPECT_EQ(board->generation(0), 1u);
    EXPECT_EQ(board->generation(1), 1u);
    EXPECT_THAT(board->slot_to_expert(0), ElementsAre(1, 0, 2, 3));
    EXPECT_THAT(board->shares(0), IsEmpty());
    EXPECT_THAT(board->slot_to_expert(1), ElementsAre(3, 1, 2, 0));
    EXPECT_THAT(board->shares(1), ElementsAre(0.5, 1.0, 1.0, 0.5));
  }
}

TEST_F(BoardRelayTest, CountersReachTheNodeOfRankZero) {
  run([](int rank, UpdateBoard& board, const BoardRelay& relay) {
    board.updater(rank).heartbeat_ns = base::wall_ns();
    board.updater(rank).copied_experts = 10 + rank;
    board.updater(rank).hash_failures = rank;
    board.updater(rank).cpu_ns = 20 + rank;
    board.updater(rank).lent_copies = 30 + rank;
    board.updater(rank).refused_loans = 40 + rank;
    board.updater(rank).lender_cpu_ns = 50 + rank;
    relay.send_updater_counters();
    if (rank != 2) return;
    board.balancer().plans = 7;
    board.balancer().last_plan_ns = base::wall_ns();
    relay.send_balancer_counters();
  });
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(boards_[0]->updater(rank).copied_experts, 10 + rank);
    EXPECT_EQ(boards_[0]->updater(rank).hash_failures, rank);
    EXPECT_EQ(boards_[0]->updater(rank).cpu_ns, 20 + rank);
    EXPECT_EQ(boards_[0]->updater(rank).lent_copies, 30 + rank);
    EXPECT_EQ(boards_[0]->updater(rank).refused_loans, 40 + rank);
    EXPECT_EQ(boards_[0]->updater(rank).lender_cpu_ns, 50 + rank);
    EXPECT_LT(base::wall_ns() - boards_[0]->updater(rank).heartbeat_ns, 10'000'000'000);
  }
  EXPECT_EQ(boards_[0]->balancer().plans, 7);
  EXPECT_LT(base::wall_ns() - boards_[0]->balancer().last_plan_ns, 10'000'000'000);
  EXPECT_EQ(boards_[1]->updater(0).copied_experts, 0);
}

// A node may keep the board of a group none of whose ranks it has, or none at all.
TEST(BoardRelay, NoticesOfGroupsWithoutABoardAreDropped) {
  const auto statuses = transport::run_rank_threads(
      {.num_ranks = 2, .segment_bytes = 64, .num_nodes = 2}, [&](Endpoint& endpoint) -> Status {
        endpoint.bridge()->set_on_notice([&](std::span<const std::byte> notice) {
          return apply_notice(notice, std::array<UpdateBoard*, 1>{nullptr});
        });
        WIDEEP_TRY(endpoint.barrier({.what = "handlers"}));
        if (endpoint.rank() == 1) {
          const auto board =
              UpdateBoard::create({.num_ranks = 1, .num_layers = 1, .num_slots = 2}).value();
          BoardRelay(*endpoint.bridge(), *board, 0, std::array{1}, 0).send_balancer_counters();
        }
        return endpoint.barrier({.what = "the end"});
      });
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace wideep::online
