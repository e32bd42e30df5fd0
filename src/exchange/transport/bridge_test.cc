// SPDX-License-Identifier: Apache-2.0
//
// Threads stand for ranks on several nodes, with a network in memory that can be cut. Held are the
// order of reports and commands, and that a failure or a cut becomes an error with a cause on every
// node within its deadline. Messages are also written field by field, with fields at and beyond
// their bounds: what does not fit this node's memory must fail the group, and no flag behind it may
// be raised. Otherwise one damaged node could overwrite the memory of another.
#include "transport/bridge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "base/cpu_time.h"
#include "base/try.h"
#include "transport/flag.h"
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
  for (const std::string rank : {"0", "1", "2", "3"}) {
    EXPECT_LT(std::ranges::find(received, rank + "a"), std::ranges::find(received, rank + "b"))
        << rank;
  }
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
            return true;
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

// A message as it lies in memory, of which every field may be wrong. Rank 1 sends it to rank 0.
struct RawMessage {
  enum Kind : uint32_t { kRaise, kWrite, kCopy, kParcel, kFailure, kReport, kCommand, kNotice };
  uint32_t kind = kRaise;
  uint32_t group = 0, channel = 1, value = 1;
  uint64_t offset = 0, count = 0;
};
constexpr uint64_t kSegment = 4096;

template <typename... Values>
Bytes raw(const RawMessage& head, const Values&... values) {
  Bytes bytes(sizeof(head));
  std::memcpy(bytes.data(), &head, sizeof(head));
  [[maybe_unused]] const auto add = [&](const auto& value) {
    const auto* first = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof(value));
  };
  (add(values), ...);
  return bytes;
}

constexpr int kRanks = 4;

// With a pattern in all segments, so that zeros that are written show, too.
std::shared_ptr<SharedMemory> filled_memory() {
  auto memory = SharedMemory::create(kRanks, kSegment).value();
  for (int rank = 0; rank < kRanks; ++rank) std::memset(memory->segment(rank), 0xa5, kSegment);
  return memory;
}

// All words, flags and segments; not the control page, where failures are, nor where flags were
// raised.
Bytes contents(const SharedMemory& memory) {
  for (int group = 0; group < static_cast<int>(Group::kCount); ++group) {
    for (int channel = 0; channel < static_cast<int>(Channel::kCount); ++channel) {
      for (int rank = 0; rank < kRanks; ++rank) {
        memory.flag(Group{group}, Channel{channel}, rank).processor = 0;
      }
    }
  }
  const auto* first = reinterpret_cast<const std::byte*>(&memory.control() + 1);
  const std::byte* end = memory.segment(kRanks - 1) + kSegment;
  return Bytes(first, end);
}

using Writes = std::function<void(const SharedMemory&)>;

// The group's failure after rank 0 has handled the message; "": none. Rank 0 and 2 are on its node.
// The message writes what `expected` does, and nothing else.
std::string handled(const Bytes& message, const Writes& expected, int from = 1) {
  MemorySwitch network(kRanks);
  const auto memory = filled_memory(), wanted = filled_memory();
  Bridge bridge(memory, network.link(0), NodeMap({0, 1, 0, 1}), 0);
  bridge.set_on_parcel([](int, std::span<const std::byte> body) { return !body.empty(); });
  bridge.set_on_notice([](std::span<const std::byte> body) { return !body.empty(); });
  network.link(from).send(0, message);
  EXPECT_TRUE(bridge.progress());
  expected(*wanted);
  EXPECT_TRUE(contents(*memory) == contents(*wanted)) << "something else is written";
  return memory->failure().message();
}

void write_nothing(const SharedMemory&) {}

template <typename T>
Writes write_at(int rank, size_t offset, T value) {
  return [=](const SharedMemory& memory) {
    std::memcpy(memory.segment(rank) + offset, &value, sizeof(value));
  };
}

TEST(Bridge, MessagesThatFitAreTaken) {
  using Block = Bridge::Block;
  EXPECT_EQ(handled(raw({.kind = RawMessage::kRaise, .count = 2}, 0, 7u, 2, 8u),
                    [](const SharedMemory& memory) {
                      memory.word(Group::kWorld, Channel::kPrepare, 1, 0, 1) = 7;
                      memory.word(Group::kWorld, Channel::kPrepare, 1, 2, 1) = 8;
                      raise_flag(memory.flag(Group::kWorld, Channel::kPrepare, 1), 1);
                    }),
            "");
  const AgreedWords agreed = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(handled(raw({.kind = RawMessage::kRaise, .channel = 0, .count = 1}, agreed, 0, 7u),
                    [&](const SharedMemory& memory) {
                      memory.agreed_words(Group::kWorld, 1, 1) = agreed;
                      memory.word(Group::kWorld, Channel::kAgree, 1, 0, 1) = 7;
                      raise_flag(memory.flag(Group::kWorld, Channel::kAgree, 1), 1);
                    }),
            "");
  EXPECT_EQ(
      handled(raw({.kind = RawMessage::kWrite, .offset = kSegment - 8, .count = 1}, 2, uint64_t{5}),
              write_at(2, kSegment - 8, uint64_t{5})),
      "");
  EXPECT_EQ(handled(raw({.kind = RawMessage::kCopy, .value = 3, .count = 1},
                        Block{.offset = kSegment - 12, .width = 4, .stride = 8, .rows = 2}, 5u, 6u),
                    [](const SharedMemory& memory) {
                      write_at(3, kSegment - 12, 5u)(memory);
                      write_at(3, kSegment - 4, 6u)(memory);
                    }),
            "");
  // Into the segment of a rank of this node: what a tensor group has summed up for it.
  EXPECT_EQ(handled(raw({.kind = RawMessage::kCopy, .value = 0, .count = 1}, Block{0, 8, 0, 1},
                        uint64_t{5}),
                    write_at(0, 0, uint64_t{5})),
            "");
  EXPECT_EQ(handled(raw({.kind = RawMessage::kParcel}, 1), write_nothing), "");
  EXPECT_EQ(handled(raw({.kind = RawMessage::kNotice}, 1), write_nothing), "");
}

// What no node of the same program would send fails the group, and writes nowhere.
TEST(Bridge, MessagesThatDoNotFitAreRefused) {
  using Block = Bridge::Block;
  constexpr uint64_t kHuge = uint64_t{1} << 44, kMax = ~uint64_t{0};
  const Bytes all[] = {
      Bytes(31),
      raw({.kind = 9}),
      raw({.kind = 0x101}),
      raw({.kind = RawMessage::kRaise, .group = 6, .count = 1}, 0, 7u),
      raw({.kind = RawMessage::kRaise, .group = 0xffffffff, .count = 1}, 0, 7u),
      raw({.kind = RawMessage::kRaise, .channel = 7, .count = 1}, 0, 7u),
      raw({.kind = RawMessage::kRaise, .count = 2}, 0, 7u),         // one is missing
      raw({.kind = RawMessage::kRaise, .count = kHuge}, 0, 7u),     //
      raw({.kind = RawMessage::kRaise, .count = kMax}, 0, 7u),      //
      raw({.kind = RawMessage::kRaise, .count = 1}, 0, 7u, 2, 8u),  // one too many
      raw({.kind = RawMessage::kRaise, .channel = 0, .count = 1}, 0, 7u),
      raw({.kind = RawMessage::kRaise, .count = 1}, 3, 7u),   // not on this node
      raw({.kind = RawMessage::kRaise, .count = 1}, 4, 7u),   // no rank
      raw({.kind = RawMessage::kRaise, .count = 1}, -1, 7u),  //
      raw({.kind = RawMessage::kWrite, .offset = kHuge, .count = 1}, 0, uint64_t{5}),
      raw({.kind = RawMessage::kWrite, .offset = kMax - 7, .count = 1}, 0, uint64_t{5}),
      raw({.kind = RawMessage::kWrite, .offset = kSegment - 7, .count = 1}, 0, uint64_t{5}),
      raw({.kind = RawMessage::kWrite, .count = 1}, 3, uint64_t{5}),
      raw({.kind = RawMessage::kWrite, .count = 1}, -1, uint64_t{5}),
      raw({.kind = RawMessage::kWrite, .count = 3}, 0, uint64_t{5}),
      raw({.kind = RawMessage::kWrite, .count = kMax / 4 + 2}, 0, uint64_t{5}),
      raw({.kind = RawMessage::kCopy, .value = 4, .count = 1}, Block{0, 8, 0, 1}, uint64_t{5}),
      raw({.kind = RawMessage::kCopy, .value = kMax & 0xffffffff, .count = 1}, Block{0, 8, 0, 1},
          uint64_t{5}),
      raw({.kind = RawMessage::kCopy, .value = 1, .count = 1}, Block{kSegment - 7, 8, 0, 1},
          uint64_t{5}),
      raw({.kind = RawMessage::kCopy, .value = 1, .count = 1}, Block{0, 4, kSegment, 2},
          uint64_t{5}),
      raw({.kind = RawMessage::kCopy, .value = 1, .count = 1}, Block{8, 4, kMax - 3, 2},
          uint64_t{5}),
      raw({.kind = RawMessage::kCopy, .value = 1, .count = 1}, Block{0, 8, 8, kHuge}, uint64_t{5}),
      raw({.kind = RawMessage::kCopy, .value = 1, .count = 1}, Block{0, 16, 0, 1}, uint64_t{5}),
      raw({.kind = RawMessage::kCopy, .value = 1, .count = 2}, Block{0, 8, 0, 1}, uint64_t{5}),
      raw({.kind = RawMessage::kParcel}),
      raw({.kind = RawMessage::kNotice}),
  };
  for (const Bytes& each : all) {
    SCOPED_TRACE("message " + std::to_string(&each - all));
    EXPECT_THAT(handled(each, write_nothing), HasSubstr("a message from rank 1 is wrong"));
  }
  // A flag behind it would say that what was refused is there.
  MemorySwitch network(kRanks);
  const auto memory = filled_memory();
  Bridge bridge(memory, network.link(0), NodeMap({0, 1, 0, 1}), 0);
  network.link(1).send(0, all[0]);
  network.link(1).send(0, raw({.kind = RawMessage::kRaise, .count = 1}, 0, 7u));
  while (bridge.progress()) continue;
  EXPECT_EQ(memory->flag(Group::kWorld, Channel::kPrepare, 1).value.load(), 0u);
  EXPECT_TRUE(contents(*memory) == contents(*filled_memory()));
  // A rank of this node shares the memory: it sends no such messages.
  EXPECT_THAT(handled(raw({.kind = RawMessage::kRaise, .count = 1}, 0, 7u), write_nothing, 2),
              HasSubstr("rank 2"));
}

}  // namespace
}  // namespace wideep::transport
