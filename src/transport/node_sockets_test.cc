// SPDX-License-Identifier: Apache-2.0
#include "transport/node_sockets.h"

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
  void meet() {
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

TEST_F(NodeSocketsTest, BothKnowWhomTheyAreConnectedWith) {
  meet();
  ASSERT_EQ(first_.peers().size(), 1u);
  EXPECT_EQ(first_.peers()[0].rank, 3);
  EXPECT_EQ(first_.peers()[0].pid, ::getpid());
  ASSERT_EQ(other_->peers().size(), 1u);
  EXPECT_EQ(other_->peers()[0].rank, 2);
}

TEST_F(NodeSocketsTest, SharedMemoryIsTheSame) {
  meet();
  auto given = first_.share("test", 8192, base::SharedPages::kNormal);
  auto taken = other_->share("test", 8192, base::SharedPages::kNormal);
  ASSERT_TRUE(given.ok() && taken.ok());
  EXPECT_NE(given->data(), taken->data());
  given->data()[8191] = std::byte{42};
  EXPECT_EQ(taken->data()[8191], std::byte{42});
}

TEST_F(NodeSocketsTest, MemoryOfAnotherSizeIsRefused) {
  meet();
  ASSERT_TRUE(first_.share("test", 8192, base::SharedPages::kNormal).ok());
  const auto taken = other_->share("test", 4096, base::SharedPages::kNormal);
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(taken.status().message(), HasSubstr("test: 8192 bytes on rank 2, 4096 here"));
}

TEST_F(NodeSocketsTest, WhoHasEndedIsNamed) {
  meet();
  other_.reset();
  // The first message may still find room in the socket's buffer; nobody waits for an answer.
  Status sent;
  for (int i = 0; i < 100 && sent.ok(); ++i) {
    sent = first_.share("test", 4096, base::SharedPages::kNormal).status();
  }
  EXPECT_THAT(sent.message(), HasSubstr("rank 3 (process"));
}

TEST_F(NodeSocketsTest, AGoodbyeIsSeen) {
  meet();
  EXPECT_FALSE(NodeSockets::has_said_goodbye(first_.peers()[0]));
  other_->say_goodbye();
  EXPECT_TRUE(NodeSockets::has_said_goodbye(first_.peers()[0]));
  EXPECT_TRUE(NodeSockets::has_said_goodbye(first_.peers()[0]));  // it stays
}

TEST_F(NodeSocketsTest, RanksThatDoNotComeAreADeadline) {
  ASSERT_TRUE(first_.listen().ok());
  const Status status = first_.accept(kOther, milliseconds(50));
  EXPECT_THAT(status.message(), HasSubstr("only 0 of 1 ranks of the node came"));
}

// Whoever says another rank's number is not taken for one.
TEST_F(NodeSocketsTest, StrangersAreLeftOut) {
  const auto name = first_.listen();
  ASSERT_TRUE(other_->connect(*name, 2, 7).ok());
  EXPECT_FALSE(first_.accept(kOther, milliseconds(50)).ok());
  EXPECT_TRUE(first_.peers().empty());
}

}  // namespace
}  // namespace wideep::transport
