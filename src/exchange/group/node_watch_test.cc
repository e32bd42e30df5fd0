// SPDX-License-Identifier: Apache-2.0
#include "group/node_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <functional>

#include "base/cpu_time.h"

namespace wideep::transport {
namespace {

using testing::HasSubstr;

constexpr std::array<int, 1> kOther = {1};

class NodeWatchTest : public testing::Test {
 protected:
  NodeWatchTest() {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &before_);
    block_stop_signals();
    memory_ = SharedMemory::create(2, 64).value();
    const auto name = first_.listen();
    // The connection waits in the listener's queue until it is accepted.
    EXPECT_TRUE(other_->connect(*name, 0, 1).ok());
    EXPECT_TRUE(first_.accept(kOther, std::chrono::seconds(5)).ok());
  }
  ~NodeWatchTest() override { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  // In two seconds at most: what is failed for longer ends the process.
  static bool comes(const std::function<bool()>& there) {
    const int64_t end_ns = base::wall_ns() + 2'000'000'000;
    while (!there()) {
      if (base::wall_ns() > end_ns) return false;
      ::usleep(1000);
    }
    return true;
  }

  sigset_t before_;
  std::shared_ptr<SharedMemory> memory_;
  NodeSockets first_;
  std::unique_ptr<NodeSockets> other_ = std::make_unique<NodeSockets>();
};

TEST_F(NodeWatchTest, ASignalAsksAllRanksToStop) {
  const NodeWatch watch(memory_, first_);
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(comes([&] { return memory_->control().stop_requested.load() == 1; }));
  EXPECT_TRUE(memory_->failure().ok());  // there is time for the iteration to end
}

TEST_F(NodeWatchTest, WithAnInboxTheFirstSignalIsAnEvent) {
  MessageInbox inbox;
  NodeWatch watch(memory_, first_, &inbox);
  ::kill(::getpid(), SIGTERM);
  const auto event = inbox.next();
  ASSERT_TRUE(event);
  EXPECT_EQ(std::get<StopSignal>(*event).signal, SIGTERM);
  watch.end_within(std::chrono::hours(1));
  EXPECT_EQ(memory_->control().stop_requested.load(), 0);
  EXPECT_FALSE(watch.was_interrupted());
  ::kill(::getpid(), SIGINT);
  EXPECT_TRUE(comes([&] { return memory_->control().stop_requested.load() == 1; }));
  EXPECT_TRUE(watch.was_interrupted());
  inbox.close();
  EXPECT_FALSE(inbox.next());
}

TEST_F(NodeWatchTest, RanksThatDoNotStopInTimeAreInterrupted) {
  const NodeWatch watch(memory_, first_);
  ::kill(::getpid(), SIGINT);
  EXPECT_TRUE(comes([&] { return !memory_->failure().ok(); }));
  EXPECT_EQ(memory_->failure().code(), StatusCode::kInterrupted);
}

TEST_F(NodeWatchTest, ARankThatEndsUnexpectedlyFailsTheGroup) {
  const NodeWatch watch(memory_, first_);
  other_.reset();
  EXPECT_TRUE(comes([&] { return !memory_->failure().ok(); }));
  EXPECT_THAT(memory_->failure().message(), HasSubstr("rank 1 (process "));
  EXPECT_THAT(memory_->failure().message(), HasSubstr("has ended unexpectedly"));
}

TEST_F(NodeWatchTest, ARankThatAnnouncesItsEndDoesNotFailTheGroup) {
  const NodeWatch watch(memory_, first_);
  other_->announce_end();
  other_.reset();
  ::usleep(250'000);
  EXPECT_TRUE(memory_->failure().ok());
}

}  // namespace
}  // namespace wideep::transport
