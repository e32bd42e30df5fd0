// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong between the death of a rank and its next start; keeper_test.cc has whole groups.
#include "group/rank_host.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace wideep::transport {
namespace {

using Event = RankHost::Event;
using ::testing::ElementsAre;

// The ends of a rank; nobody reads or writes the others.
std::array<int, 2> pipes() {
  int commands[2], messages[2];
  EXPECT_EQ(::pipe2(commands, O_CLOEXEC), 0);
  EXPECT_EQ(::pipe2(messages, O_CLOEXEC), 0);
  ::close(commands[1]);
  ::close(messages[0]);
  return {commands[0], messages[1]};
}

Event next(RankHost& host, const SignalQueue& signals) {
  for (;;) {
    if (const auto event = host.next_event()) return *event;
    std::vector<pollfd> fds = {{signals.fd(), POLLIN, 0}};
    host.add_descriptors(&fds);
    ::poll(fds.data(), fds.size(), 1'000);
    while (signals.next() != 0) host.reap();
  }
}

struct Host {
  explicit Host(std::function<Status(Seat&)> rank)
      : body(std::move(rank)),
        memory(*SharedMemory::create(2, 4096)),
        host(new RankHost({.group = {.num_ranks = 2, .segment_bytes = 4096},
                           .after_death = [this](int died) { deaths.push_back(died); }},
                          body, memory, signals)) {}
  void start(int rank) {
    const auto ends = pipes();
    ASSERT_TRUE(host->start(rank, ends[0], ends[1]).ok());
    ASSERT_EQ(next(*host, signals).kind, Event::Kind::kReady);
  }
  std::function<Status(Seat&)> body;
  std::vector<int> deaths;
  SignalQueue signals;
  std::shared_ptr<SharedMemory> memory;
  std::unique_ptr<RankHost> host;
};

// A front dies with a rank: the rank's pipes to the new front come when it is dead already.
TEST(RankHost, PipesForARankThatHasDiedAreNotThoseOfTheNext) {
  Host test([](Seat& seat) -> Status {
    const auto members = seat.join();
    if (!members.ok()) return members.status();
    return members->has_value() && (*members)->has_new_front ? failed("pipes of its predecessor")
                                                             : failed("its own pipes");
  });
  ASSERT_NO_FATAL_FAILURE(test.start(1));
  test.host->kill(1);
  ASSERT_EQ(next(*test.host, test.signals).kind, Event::Kind::kDied);
  const auto late = pipes();
  test.host->set_new_pipes(1, late[0], late[1]);
  ASSERT_NO_FATAL_FAILURE(test.start(1));
  test.host->begin_epoch({.epoch = 1, .ranks = {1}}, {});
  const Event died = next(*test.host, test.signals);
  ASSERT_EQ(died.kind, Event::Kind::kDied);
  EXPECT_THAT(died.text, testing::HasSubstr("its own pipes"));
}

// What they had taken in memory that outlives this, others take again.
TEST(RankHost, RanksThatItKillsAtItsEndHaveDied) {
  Host test([](Seat& seat) -> Status { return seat.join().status(); });
  for (const int rank : {0, 1}) ASSERT_NO_FATAL_FAILURE(test.start(rank));
  test.host.reset();
  EXPECT_THAT(test.deaths, ElementsAre(0, 1));
}

}  // namespace
}  // namespace wideep::transport
