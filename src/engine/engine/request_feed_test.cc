// SPDX-License-Identifier: Apache-2.0
//
// Commands go through real pipes, and between nodes over the bridge. What an encoder leaves out of
// a repeated command must be whole again for each reader. Also held is which commands a rank
// applies alone and which need the agreement of all, and from where an epoch counts. A failure
// means that ranks which must schedule alike apply different commands, or that a request gets
// another one's prompt or format.
#include "engine/request_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "base/try.h"
#include "group/rank_processes.h"
#include "transport/rank_threads.h"

namespace wideep::engine {
namespace {

using std::chrono::milliseconds;

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  int ends[2];
};

Command submit(int owner, int index, std::vector<int32_t> prompt) {
  return {.kind = Command::Kind::kSubmit,
          .owner = owner,
          .request = {.index = index,
                      .prompt = std::move(prompt),
                      .max_tokens = 7,
                      .sampling = {.temperature = 0.5f,
                                   .top_k = 3,
                                   .top_p = 0.9f,
                                   .min_p = 0.1f,
                                   .repetition_penalty = 1.5f,
                                   .seed = 11},
                      .bias = {{.token = 4, .bias = -2.5f}},
                      .draw = 2,
                      .ignore_eos = true,
                      .returns_experts = true,
                      .reports_progress = true}};
}

class RequestFeedTest : public testing::Test {
 protected:
  // The writer may still have unread commands.
  void SetUp() override { ::signal(SIGPIPE, SIG_IGN); }
  void TearDown() override {
    ::close(pipe_.ends[0]);
    writer_.reset();
    if (open_) ::close(pipe_.ends[1]);
  }
  void send(const Command& command) { ASSERT_TRUE(writer_->send(encoder_.encode(command)).ok()); }
  // At once, not by the writer's thread.
  void write(const Command& command) {
    const std::string message = encoder_.encode(command);
    const auto length = static_cast<uint32_t>(message.size());
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
    bytes += message;
    EXPECT_EQ(::write(pipe_.ends[1], bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  void close_writer() {
    writer_.reset();
    ::close(pipe_.ends[1]);
    open_ = false;
  }

  CommandEncoder encoder_;
  Pipe pipe_;
  bool open_ = true;
  std::shared_ptr<transport::SharedMemory> memory_ =
      transport::SharedMemory::create(1, 4096).value();
  transport::Endpoint endpoint_{memory_, 0, milliseconds(2000)};
  std::optional<transport::MessagePipe> writer_{std::in_place, pipe_.ends[1]};
  RequestFeed feed_{pipe_.ends[0], 1};
};

TEST_F(RequestFeedTest, CommandsComeWholeAndInOrder) {
  send(submit(0, 5, {}));
  send(submit(1, 6, std::vector<int32_t>(100'000, 3)));
  send({.kind = Command::Kind::kCancel, .request = {.index = 5}});
  ASSERT_TRUE(feed_.wait_for(3, endpoint_).ok());
  EXPECT_EQ(feed_.seen(), 3u);
  const Command first = feed_.take(), second = feed_.take(), third = feed_.take();
  EXPECT_FALSE(feed_.is_mine(first));
  EXPECT_TRUE(feed_.is_mine(second));
  EXPECT_EQ(second.request.prompt.ids(), std::vector<int32_t>(100'000, 3));
  EXPECT_EQ(second.request.index, 6);
  EXPECT_EQ(second.request.max_tokens, 7);
  EXPECT_EQ(second.request.sampling.seed, 11u);
  EXPECT_EQ(second.request.sampling.min_p, 0.1f);
  EXPECT_EQ(second.request.sampling.repetition_penalty, 1.5f);
  ASSERT_EQ(second.request.bias.size(), 1u);
  EXPECT_EQ(second.request.bias[0].token, 4);
  EXPECT_EQ(second.request.bias[0].bias, -2.5f);
  EXPECT_EQ(second.request.draw, 2);
  EXPECT_TRUE(second.request.ignore_eos);
  EXPECT_TRUE(second.request.returns_experts);
  EXPECT_TRUE(second.request.reports_progress);
  EXPECT_EQ(third.kind, Command::Kind::kCancel);
  EXPECT_EQ(third.request.index, 5);
}

TEST_F(RequestFeedTest, ALookSaysWhoElseComputesThePrompt) {
  Command look = submit(1, 5, {1, 2, 3});
  look.request.peer = "1;host:7000;token;class;request;";
  send(look);
  look.kind = Command::Kind::kLook;
  look.ticket = 9;
  send(look);
  ASSERT_TRUE(feed_.wait_for(2, endpoint_).ok());
  for (int i = 0; i < 2; ++i) {
    const Command command = feed_.take();
    EXPECT_EQ(command.request.peer, look.request.peer);
    EXPECT_EQ(command.request.prompt.ids(), look.request.prompt.ids());
  }
}

// Many answers to one prompt.
TEST_F(RequestFeedTest, ARepeatedPromptIsSentOnce) {
  const Command first = submit(0, 1, std::vector<int32_t>(1000, 3));
  Command second = first;
  second.owner = 1;
  second.request.index = 2;
  second.request.draw = 3;
  const Command cancel{.kind = Command::Kind::kCancel, .request = {.index = 1}};
  const Command equal = submit(1, 4, std::vector<int32_t>(1000, 3));  // not a copy
  CommandEncoder encoder;
  EXPECT_GT(encoder.encode(first).size(), 4000u);
  EXPECT_LT(encoder.encode(second).size(), 150u);
  for (const Command& each : {first, second, cancel, second, equal, second}) send(each);
  ASSERT_TRUE(feed_.wait_for(6, endpoint_).ok());
  for (const int index : {1, 2, 1, 2, 4, 2}) {
    const Command each = feed_.take();
    EXPECT_EQ(each.request.index, index);
    if (each.kind == Command::Kind::kCancel) continue;
    EXPECT_EQ(each.request.prompt.ids(), std::vector<int32_t>(1000, 3));
    EXPECT_EQ(each.request.draw, index == 2 ? 3 : 2);
  }
}

TEST_F(RequestFeedTest, ARepeatedGrammarIsSentOnce) {
  Command with = submit(0, 1, {3});
  with.request.grammar = std::make_shared<const std::string>(5000, 'g');
  Command again = submit(1, 2, {4});
  again.request.grammar = with.request.grammar;
  const Command without = submit(1, 3, {5});
  CommandEncoder encoder;
  EXPECT_GT(encoder.encode(with).size(), 5000u);
  EXPECT_LT(encoder.encode(again).size(), 150u);
  for (const Command& each : {with, again, without, again}) send(each);
  ASSERT_TRUE(feed_.wait_for(4, endpoint_).ok());
  const auto first = feed_.take().request.grammar, second = feed_.take().request.grammar;
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(*first, std::string(5000, 'g'));
  EXPECT_EQ(first, second);
  EXPECT_EQ(feed_.take().request.grammar, nullptr);
  EXPECT_EQ(*feed_.take().request.grammar, std::string(5000, 'g'));
}

TEST_F(RequestFeedTest, RepeatedRulesAreSentOnce) {
  Command with = submit(0, 1, {3});
  with.request.rules = TokenRules{.allowed = std::vector<int32_t>(5000, 1)};
  Command again = submit(1, 2, {4});
  again.request.rules = with.request.rules;
  const Command without = submit(1, 3, {5});
  CommandEncoder encoder;
  EXPECT_GT(encoder.encode(with).size(), 20'000u);
  EXPECT_LT(encoder.encode(again).size(), 150u);
  for (const Command& each : {with, again, without, again}) send(each);
  ASSERT_TRUE(feed_.wait_for(4, endpoint_).ok());
  const SharedRules first = feed_.take().request.rules, second = feed_.take().request.rules;
  EXPECT_EQ(first->allowed.size(), 5000u);
  EXPECT_TRUE(first.is_copy_of(second));
  EXPECT_TRUE(feed_.take().request.rules->allowed.empty());
  EXPECT_EQ(feed_.take().request.rules->allowed.size(), 5000u);
}

TEST_F(RequestFeedTest, WaitsEnd) {
  ASSERT_TRUE(feed_.wait(endpoint_, milliseconds(1)).ok());
  EXPECT_EQ(feed_.seen(), 0u);
  const Status late = feed_.wait_for(1, endpoint_);
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(late.message(), testing::HasSubstr("waited 2000 ms for command 1, received 0"));
  memory_->control().stop_requested = 1;
  EXPECT_TRUE(feed_.wait(endpoint_, std::chrono::hours(1)).ok());
}

// Ranks that a launcher has started: rank 0 has the pipe.
TEST_F(RequestFeedTest, RankZeroForwardsCommandsOverTheBridge) {
  send(submit(1, 6, {1, 2, 3}));
  send({.kind = Command::Kind::kStop, .request = {}});
  const auto statuses = transport::run_rank_threads(
      {.num_ranks = 4, .segment_bytes = 64, .num_nodes = 2},
      [&](transport::Endpoint& endpoint) -> Status {
        const int rank = endpoint.rank();
        RequestFeed feed(rank == 0 ? pipe_.ends[0] : -1, rank, endpoint.bridge());
        WIDEEP_TRY(endpoint.barrier({.what = "feeds"}));
        WIDEEP_TRY(feed.wait_for(2, endpoint));
        const Command first = feed.take();
        EXPECT_EQ(first.kind, Command::Kind::kSubmit);
        EXPECT_EQ(first.request.prompt.ids(), (std::vector<int32_t>{1, 2, 3}));
        EXPECT_EQ(feed.is_mine(first), rank == 1);
        EXPECT_EQ(feed.take().kind, Command::Kind::kStop);
        return endpoint.barrier({.what = "the end"});
      });
  for (const Status& status : *statuses) EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(RequestFeedTest, ARankThatSchedulesAloneWaitsOnlyWithCommandsForAll) {
  send(submit(0, 5, {}));
  send(submit(1, 6, {}));
  send({.kind = Command::Kind::kRecordExperts, .request = {}});
  send({.kind = Command::Kind::kCancel, .request = {.index = 6}});
  EXPECT_FALSE(feed_.has_next(1, true));
  ASSERT_TRUE(feed_.wait_for(4, endpoint_).ok());
  EXPECT_FALSE(feed_.has_next(0, false));
  EXPECT_TRUE(feed_.has_next(1, false));
  feed_.take();
  EXPECT_FALSE(feed_.has_next(1, false));
  EXPECT_TRUE(feed_.has_next(0, true));
  feed_.take();
  EXPECT_EQ(feed_.taken(), 2u);
  EXPECT_FALSE(feed_.has_next(2, true));
  EXPECT_TRUE(feed_.has_next(3, true));
  feed_.take();
  EXPECT_TRUE(feed_.has_next(3, true));
  EXPECT_FALSE(feed_.has_next(3, false));
}

// The second command is sent when the first has been read. On a busy machine it may be late.
TEST_F(RequestFeedTest, ARankThatSleptReceivesAWholeBurst) {
  bool together = false;
  for (int attempt = 0; attempt < 1000 && !together; ++attempt) {
    const uint64_t before = feed_.seen();
    std::thread clients([this] {
      std::this_thread::sleep_for(milliseconds(5));
      write(submit(1, 0, {}));
      int unread = 1;
      while (unread > 0) ::ioctl(pipe_.ends[0], FIONREAD, &unread);
      write(submit(1, 1, {}));
    });
    ASSERT_TRUE(feed_.wait(endpoint_, std::chrono::hours(1)).ok());
    together = feed_.seen() == before + 2;
    clients.join();
    ASSERT_TRUE(feed_.wait_for(before + 2, endpoint_).ok());
  }
  EXPECT_TRUE(together);
}

TEST_F(RequestFeedTest, AWriterThatHasEndedIsAnError) {
  close_writer();
  EXPECT_THAT(feed_.poll().message(), testing::HasSubstr("has ended"));
}

// ---- members that change ----

Command members(uint32_t epoch) {
  return {.kind = Command::Kind::kMembers, .request = {}, .epoch = epoch};
}

TEST_F(RequestFeedTest, CountsCommandsFromTheMarkOfItsEpoch) {
  RequestFeed feed(pipe_.ends[0], 0);
  write(submit(0, 1, {1}));
  write(submit(0, 2, {2}));
  write(members(2));
  write(submit(0, 3, {3}));
  ASSERT_TRUE(feed.poll().ok());
  feed.begin_epoch(2, false);
  EXPECT_EQ(feed.seen(), 1u);
  // Those before the mark need no agreement any more; they do not count for this epoch.
  EXPECT_TRUE(feed.has_next(0, false));
  EXPECT_EQ(feed.take().request.index, 1);
  EXPECT_EQ(feed.take().request.index, 2);
  EXPECT_EQ(feed.taken(), 0u);
  EXPECT_FALSE(feed.has_next(0, false));
  EXPECT_TRUE(feed.has_next(1, false));
  EXPECT_EQ(feed.take().request.index, 3);
  EXPECT_EQ(feed.taken(), 1u);
}

TEST_F(RequestFeedTest, SeesNothingOfAnEpochBeforeItsMark) {
  RequestFeed feed(pipe_.ends[0], 0);
  feed.begin_epoch(3, false);
  write(submit(0, 1, {1}));
  ASSERT_TRUE(feed.poll().ok());
  EXPECT_EQ(feed.seen(), 0u);
  EXPECT_TRUE(feed.has_next(0, false));
}

TEST_F(RequestFeedTest, LeavesCommandsOfALaterEpochAlone) {
  RequestFeed feed(pipe_.ends[0], 0);
  write(members(2));
  write(submit(0, 1, {1}));
  ASSERT_TRUE(feed.poll().ok());
  EXPECT_EQ(feed.seen(), 0u);
  EXPECT_FALSE(feed.has_next(5, true));
  feed.begin_epoch(2, false);
  EXPECT_TRUE(feed.has_next(0, true));
}

TEST_F(RequestFeedTest, DropsWhatAnotherLogRepeats) {
  RequestFeed feed(pipe_.ends[0], 0);
  write(submit(0, 1, {1}));
  ASSERT_TRUE(feed.poll().ok());
  feed.begin_epoch(2, true);
  write(submit(0, 2, {2}));
  write(members(2));
  write(submit(0, 3, {3}));
  ASSERT_TRUE(feed.poll().ok());
  EXPECT_TRUE(feed.has_next(1, false));
  EXPECT_EQ(feed.take().request.index, 3);
}

TEST_F(RequestFeedTest, PassesOnWhatWasAnswered) {
  RequestFeed feed(pipe_.ends[0], 0);
  Command command = submit(0, 1, {1, 2});
  command.request.answered = {7, 8, 9};
  write(command);
  ASSERT_TRUE(feed.poll().ok());
  EXPECT_EQ(feed.take().request.answered, (std::vector<int32_t>{7, 8, 9}));
}

}  // namespace
}  // namespace wideep::engine
