// SPDX-License-Identifier: Apache-2.0
#include "transport/bridge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "base/cpu_time.h"
#include "base/try.h"
#include "transport/memory_switch.h"
#include "transport/rank_threads.h"

namespace wideep::transport {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

TEST(Bridge, RankZeroGetsTheReportsOfAllRanksInOrder) {
  std::vector<std::string> received;
  const auto statuses = run_rank_threads(
      {.num_ranks = 4, .segment_bytes = 64, .num_nodes = 2}, [&](Endpoint& endpoint) {
        if (endpoint.rank() == 0) {
          endpoint.bridge()->set_on_report([&](int from, std::string_view text) {
            received.push_back(std::to_string(from) + std::string(text));
          });
        }
        endpoint.bridge()->report("a");
        endpoint.bridge()->report("b");
        return Status();
      });
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(received, UnorderedElementsAre("0a", "0b", "1a", "1b", "2a", "2b", "3a", "3b"));
  const auto at = [&](const char* text) {
    return std::find(received.begin(), received.end(), text);
  };
  EXPECT_LT(at("3a"), at("3b"));
}

TEST(Bridge, AllOtherRanksGetCommandsInOrder) {
  std::array<std::string, 4> received;  // by rank
  const auto statuses = run_rank_threads(
      {.num_ranks = 4, .segment_bytes = 64, .num_nodes = 2}, [&](Endpoint& endpoint) -> Status {
        Bridge& bridge = *endpoint.bridge();
        std::string& mine = received[static_cast<size_t>(endpoint.rank())];
        if (endpoint.rank() == 0) {
          bridge.command("first ");
          bridge.command("second");
        }
        WIDEEP_TRY(endpoint.barrier({.what = "commands"}));  // those that arrive here are kept
        const int64_t end = base::wall_ns() + 10'000'000'000;
        while (endpoint.rank() != 0 && mine.size() < 12 && base::wall_ns() < end) {
          bridge.progress();
          while (const auto command = bridge.next_command()) mine += *command;
        }
        return {};
      });
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(received, ElementsAre("", "first second", "first second", "first second"));
}

TEST(Bridge, TheProxyGetsParcels) {
  std::vector<std::string> received;
  const auto statuses = run_rank_threads(
      {.num_ranks = 4, .segment_bytes = 64, .num_nodes = 2}, [&](Endpoint& endpoint) {
        Bridge& bridge = *endpoint.bridge();
        if (endpoint.rank() == 3) {
          bridge.set_on_parcel([&](int from, std::span<const std::byte> body) {
            received.push_back(
                std::to_string(from) +
                std::string(reinterpret_cast<const char*>(body.data()), body.size()));
          });
        }
        Status met = endpoint.barrier({.what = "handlers"});
        if (endpoint.rank() == 1) {
          Parcel parcel(3);
          parcel.append("xyz", 3);
          bridge.send(1, std::move(parcel), Traffic::kRows);
          EXPECT_EQ(bridge.sent_bytes(Traffic::kRows), Parcel::kHeaderBytes + 3);
        }
        return met;
      });
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(received, ElementsAre("1xyz"));
}

TEST(Bridge, AFailureReachesAllNodesAtOnce) {
  const int64_t start = base::wall_ns();
  const auto statuses = run_rank_threads({.num_ranks = 6, .segment_bytes = 64, .num_nodes = 3},
                                         [](Endpoint& endpoint) -> Status {
                                           if (endpoint.rank() == 3)
                                             return failed("rank 3: disk on fire");
                                           return endpoint.barrier({.what = "the others"});
                                         });
  for (const Status& status : *statuses) EXPECT_THAT(status.message(), HasSubstr("disk on fire"));
  EXPECT_LT(base::wall_ns() - start, 3'000'000'000);
}

// A node's network fails during the run: both sides report a deadline error, which names rank,
// node, layer and iteration.
TEST(Bridge, ANetworkFailureIsADeadlineErrorOnBothSides) {
  const NodeMap nodes = NodeMap::even(2, 2);
  MemorySwitch network(2);
  std::vector<Status> statuses(2);
  const auto run = [&](int rank) -> Status {
    WIDEEP_TRY_ASSIGN(auto memory, SharedMemory::create(2, 64));
    Endpoint endpoint(memory, rank, std::chrono::milliseconds(200));
    Bridge bridge(memory, network.link(rank), nodes, rank);
    endpoint.set_bridge(&bridge);
    WIDEEP_TRY(endpoint.barrier({.what = "the start"}));
    network.cut(1);
    return endpoint.barrier({.what = "news", .layer = 3, .iteration = 7});
  };
  std::thread other([&] { statuses[1] = run(1); });
  statuses[0] = run(0);
  other.join();
  EXPECT_THAT(statuses[0].message(), AnyOf(HasSubstr("rank 0 (node 0) waited 200 ms for news from "
                                                     "rank 1 (node 1), layer 3, iteration 7"),
                                           HasSubstr("for the start from rank 1 (node 1)")));
  EXPECT_THAT(statuses[1].message(), AnyOf(HasSubstr("rank 1 (node 1) waited 200 ms for news from "
                                                     "rank 0 (node 0), layer 3, iteration 7"),
                                           HasSubstr("for the start from rank 0 (node 0)")));
}

}  // namespace
}  // namespace wideep::transport
