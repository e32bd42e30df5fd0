// SPDX-License-Identifier: Apache-2.0
#include "group/node_sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <thread>

namespace wideep::transport {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr std::array<int, 1> kOther = {3};

// The first rank of a node, 2, and another, 3.
class NodeSocketsTest : public testing::Test {
 protected:
  void connect_both() {
    const auto name = first_.listen();
    ASSERT_TRUE(name.ok()) << name.status().message();
    std::thread other([&] { connected_ = other_->connect(*name, 2, 3); });
    const Status accepted = first_.accept(kOther, milliseconds(5000));
    other.join();
    ASSERT_TRUE(accepted.ok()) << accepted.message();
    ASSERT_TRUE(connected_.ok()) << connected_.message();
  }

  NodeSockets first_;
  std::unique_ptr<NodeSockets> other_ = std::make_unique<NodeSockets>();
  Status connected_;
};

TEST_F(NodeSocketsTest, PeersHaveTheirRankAndProcess) {
  connect_both();
  ASSERT_EQ(first_.peers().size(), 1u);
  EXPECT_EQ(first_.peers()[0].rank, 3);
  EXPECT_EQ(first_.peers()[0].pid, ::getpid());
  ASSERT_EQ(other_->peers().size(), 1u);
  EXPECT_EQ(other_->peers()[0].rank, 2);
}

TEST_F(NodeSocketsTest, SharedMemoryIsTheSame) {
  connect_both();
  auto first = first_.share("test", 8192, base::SharedPages::kNormal);
  auto other = other_->share("test", 8192, base::SharedPages::kNormal);
  ASSERT_TRUE(first.ok() && other.ok());
  EXPECT_NE(first->data(), other->data());
  first->data()[8191] = std::byte{42};
  EXPECT_EQ(other->data()[8191], std::byte{42});
}

TEST_F(NodeSocketsTest, MemoryOfAnotherSizeIsRefused) {
  connect_both();
  ASSERT_TRUE(first_.share("test", 8192, base::SharedPages::kNormal).ok());
  const auto other = other_->share("test", 4096, base::SharedPages::kNormal);
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.status().message(), HasSubstr("test: 8192 bytes on rank 2, 4096 here"));
}

TEST_F(NodeSocketsTest, ARankThatHasEndedIsNamed) {
  connect_both();
  other_.reset();
  // The first message may still find room in the socket's buffer; the sender waits for no answer.
  Status sent;
  for (int i = 0; i < 100 && sent.ok(); ++i) {
    sent = first_.share("test", 4096, base::SharedPages::kNormal).status();
  }
  EXPECT_THAT(sent.message(), HasSubstr("rank 3 (process"));
}

TEST_F(NodeSocketsTest, AnAnnouncedEndIsSeen) {
  connect_both();
  EXPECT_FALSE(NodeSockets::has_announced_end(first_.peers()[0]));
  other_->announce_end();
  EXPECT_TRUE(NodeSockets::has_announced_end(first_.peers()[0]));
  EXPECT_TRUE(NodeSockets::has_announced_end(first_.peers()[0]));  // also when asked again
}

TEST_F(NodeSocketsTest, MissingRanksAreADeadlineError) {
  ASSERT_TRUE(first_.listen().ok());
  const Status status = first_.accept(kOther, milliseconds(50));
  EXPECT_THAT(status.message(), HasSubstr("only 0 of 1 ranks of the node connected"));
}

// A connection that sends an unexpected rank is not accepted.
TEST_F(NodeSocketsTest, UnexpectedRanksAreRefused) {
  const auto name = first_.listen();
  ASSERT_TRUE(other_->connect(*name, 2, 7).ok());
  EXPECT_FALSE(first_.accept(kOther, milliseconds(50)).ok());
  EXPECT_TRUE(first_.peers().empty());
}

}  // namespace
}  // namespace wideep::transport
