// SPDX-License-Identifier: Apache-2.0
//
// Requests that want their experts: what another rank gets of them if theirs dies between the last
// token and the experts.
#include "run/request_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "transport/endpoint.h"

namespace wideep::run {
namespace {

using engine::Command;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using Kind = Command::Kind;

class RoutedRequestsTest : public testing::Test {
 protected:
  void SetUp() override { ::signal(SIGPIPE, SIG_IGN); }
  void TearDown() override {
    for (const int fd : reading_) ::close(fd);
  }
  // Two ranks with requests of their own.
  void start(RequestWriter::OnLoss on_loss) {
    writer_.emplace(2, on_loss);
    for (int rank = 0; rank < 2; ++rank) {
      int ends[2];
      ASSERT_EQ(::pipe(ends), 0);
      reading_.push_back(ends[0]);
      feeds_.push_back(std::make_unique<engine::RequestFeed>(ends[0], rank));
      writer_->add_rank(rank, ends[1]);
    }
  }
  // The next command that reaches a rank.
  Command next(int rank) {
    engine::RequestFeed& feed = *feeds_[static_cast<size_t>(rank)];
    EXPECT_TRUE(feed.wait_for(++taken_[rank], endpoint_).ok());
    return feed.take();
  }
  void submit(int index, bool returns_experts) {
    writer_->submit({.index = index,
                     .prompt = std::vector<int32_t>{1, 2},
                     .max_tokens = 9,
                     .returns_experts = returns_experts});
  }

  std::shared_ptr<transport::SharedMemory> memory_ =
      transport::SharedMemory::create(1, 4096).value();
  transport::Endpoint endpoint_{memory_, 0, milliseconds(5000)};
  std::vector<int> reading_;
  std::vector<std::unique_ptr<engine::RequestFeed>> feeds_;
  std::map<int, uint64_t> taken_;
  std::optional<RequestWriter> writer_;
};

TEST_F(RoutedRequestsTest, ALastTokenWithoutItsExpertsIsGeneratedAgain) {
  start(RequestWriter::OnLoss::kMove);
  submit(0, true);
  ASSERT_EQ(next(1).owner, 0);
  writer_->answered(0, 5, false);
  writer_->answered(0, 6, false);
  writer_->answered(0, 7, true);
  EXPECT_EQ(writer_->lose_rank(0, false).moved, 1);
  const Command again = next(1);
  EXPECT_EQ(again.kind, Kind::kSubmit);
  EXPECT_EQ(again.owner, 1);
  EXPECT_TRUE(again.request.returns_experts);
  EXPECT_THAT(again.request.answered, ElementsAre(5, 6));
  EXPECT_EQ(again.request.max_tokens, 3);
  writer_->answered(0, 7, true);
  EXPECT_TRUE(writer_->routed(0));
  EXPECT_FALSE(writer_->routed(0));
  EXPECT_EQ(writer_->lose_rank(1, false).moved, 0);
}

TEST_F(RoutedRequestsTest, ARequestThatWasCutIsComputedToItsLastToken) {
  start(RequestWriter::OnLoss::kMove);
  submit(0, true);
  ASSERT_EQ(next(1).owner, 0);
  writer_->answered(0, 5, false);
  writer_->answered(0, 6, false);
  writer_->cut(0);
  EXPECT_EQ(next(1).kind, Kind::kCancel);
  writer_->answered(0, 7, false);  // it was on its way
  writer_->cut(0);                 // no effect
  EXPECT_EQ(writer_->lose_rank(0, false).moved, 1);
  const Command again = next(1);
  EXPECT_EQ(again.kind, Kind::kSubmit);
  EXPECT_THAT(again.request.answered, ElementsAre(5));
  EXPECT_EQ(again.request.max_tokens, 2);
}

TEST_F(RoutedRequestsTest, WhatNobodyWaitsForEndsWithItsLastToken) {
  start(RequestWriter::OnLoss::kMove);
  submit(0, false);
  submit(1, true);
  writer_->answered(0, 7, true);
  writer_->answered(1, 7, true);
  writer_->cancel(1);
  EXPECT_FALSE(writer_->routed(0));
  EXPECT_FALSE(writer_->routed(1));
  for (const int rank : {0, 1}) EXPECT_EQ(writer_->lose_rank(rank, false).moved, 0);
}

TEST_F(RoutedRequestsTest, AllRanksBeginAgainWithoutTheLastToken) {
  start(RequestWriter::OnLoss::kReplay);
  submit(0, true);
  EXPECT_EQ(next(0).kind, Kind::kSubmit);
  writer_->answered(0, 5, true);
  EXPECT_EQ(writer_->lose_rank(1, false).moved, 0);
  EXPECT_EQ(writer_->change_members(2, {0}), 1);
  feeds_[0]->begin_epoch(2, true);
  taken_[0] = 0;
  const Command again = next(0);
  EXPECT_EQ(again.kind, Kind::kSubmit);
  EXPECT_THAT(again.request.answered, IsEmpty());
  EXPECT_EQ(again.request.max_tokens, 1);
}

}  // namespace
}  // namespace wideep::run
