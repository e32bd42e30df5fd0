// SPDX-License-Identifier: Apache-2.0
//
// What each rank gets is read by the engine's own RequestFeed, from real pipes. Ranks die, return
// and join while requests are open: each request must go to one that lives, with what was answered
// so far, and what repeated commands leave out must be sent again to members who have not read it.
// A failure is a client that never gets the rest of its answer, or gets it in another request's
// format.
#include "run/request_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <set>
#include <thread>

namespace wideep::run {
namespace {

using engine::Command;
using engine::Request;
using testing::ElementsAre;

// A writer, and what each of its ranks has received.
class Ranks {
 public:
  Ranks(int count, RequestWriter::OnLoss on_loss) : writer_(count, on_loss) {
    ::signal(SIGPIPE, SIG_IGN);
    for (int rank = 0; rank < count; ++rank) start(rank, false);
  }
  RequestWriter& writer() { return writer_; }
  void start(int rank, bool joins_later) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    readers_.erase(rank);
    readers_.try_emplace(rank, ends[0]);
    writer_.add_rank(rank, ends[1], joins_later);
  }
  void die(int rank) { readers_.at(rank).close(); }

  // The next submits that the rank has to compute, in order.
  std::vector<Request> submitted(int rank, size_t count) {
    std::vector<Request> requests;
    while (requests.size() < count) {
      const Command command = next(rank);
      if (command.kind == Command::Kind::kSubmit && command.owner == rank) {
        requests.push_back(command.request);
      }
    }
    return requests;
  }
  // REQUIRES: the rank gets another command.
  Command next(int rank) {
    Reader& reader = readers_.at(rank);
    for (;;) {
      // As far as marks of epochs: a feed keeps them to itself, but counts from them.
      if (reader.feed.has_next(UINT64_MAX, true)) return reader.feed.take();
      EXPECT_TRUE(reader.feed.poll().ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  engine::RequestFeed& feed(int rank) { return readers_.at(rank).feed; }

 private:
  struct Reader {
    explicit Reader(int descriptor) : fd(descriptor), feed(descriptor, std::nullopt) {}
    ~Reader() { close(); }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    void close() {
      if (fd >= 0) {
        EXPECT_EQ(::close(fd), 0);
      }
      fd = -1;
    }

    int fd;  // −1: closed
    engine::RequestFeed feed;
  };
  std::map<int, Reader> readers_;
  RequestWriter writer_;
};

Request request(int index, int max_tokens = 10) {
  return {.index = index, .prompt = std::vector<int32_t>{1, 2, index}, .max_tokens = max_tokens};
}

TEST(RequestWriter, GivesTheRequestsOfALostRankToOthersWithWhatWasAnswered) {
  Ranks ranks(2, RequestWriter::OnLoss::kMove);
  ranks.writer().submit(request(0, 100));  // to rank 0
  ranks.writer().submit(request(1));       // to rank 1, as all that follow
  ranks.writer().submit(request(2));
  ranks.writer().answered(1, 50, false);
  ranks.writer().answered(1, 51, false);
  ranks.writer().answered(2, 60, true);
  ranks.die(1);
  const RequestWriter::Loss loss = ranks.writer().lose_rank(1, false);
  EXPECT_EQ(loss.moved, 1);
  EXPECT_TRUE(loss.failed.empty());
  const std::vector<Request> requests = ranks.submitted(0, 2);
  EXPECT_EQ(requests[1].index, 1);
  EXPECT_THAT(requests[1].answered, ElementsAre(50, 51));
  EXPECT_EQ(requests[1].prompt.ids(), (std::vector<int32_t>{1, 2, 1}));
}

// What a submit repeats of the one before is not sent again. A rank that was a member before knows
// what one that joins does not: neither may take it for the next request's.
TEST(RequestWriter, AFormatEndsWithItsRequestHoweverMembersChange) {
  for (const auto on_loss : {RequestWriter::OnLoss::kMove, RequestWriter::OnLoss::kReplay}) {
    Ranks ranks(2, on_loss);
    Request formatted = request(0);
    formatted.grammar = std::make_shared<const std::string>("a format");
    ranks.writer().submit(formatted);
    ranks.writer().answered(0, 7, true);
    ranks.die(1);
    ranks.writer().lose_rank(1, false);
    ranks.start(1, true);
    ranks.writer().change_members(2, {0, 1});
    for (const int rank : {0, 1}) ranks.feed(rank).begin_epoch(2, true);
    for (int index = 1; index < 5; ++index) {
      ranks.writer().submit(request(index));
      for (const int rank : {0, 1}) {
        const Request plain = ranks.next(rank).request;
        EXPECT_EQ(plain.index, index);
        EXPECT_EQ(plain.grammar, nullptr) << "rank " << rank;
        EXPECT_THAT(plain.prompt.ids(), ElementsAre(1, 2, index)) << "rank " << rank;
      }
    }
  }
}

// The same prompt and format, before and after.
TEST(RequestWriter, ARepeatedFormatIsSentAgainToNewMembers) {
  Ranks ranks(2, RequestWriter::OnLoss::kReplay);
  Request formatted = request(0);
  formatted.grammar = std::make_shared<const std::string>("a format");
  ranks.writer().submit(formatted);
  ranks.die(1);
  ranks.writer().lose_rank(1, false);
  ranks.start(1, true);
  EXPECT_EQ(ranks.writer().change_members(2, {0, 1}), 1);
  for (const int rank : {0, 1}) {
    ranks.feed(rank).begin_epoch(2, true);
    const Request again = ranks.next(rank).request;
    ASSERT_NE(again.grammar, nullptr) << "rank " << rank;
    EXPECT_EQ(*again.grammar, "a format");
    EXPECT_THAT(again.prompt.ids(), ElementsAre(1, 2, 0));
  }
}

TEST(RequestWriter, KeepsRequestsUntilARankReturns) {
  Ranks ranks(1, RequestWriter::OnLoss::kMove);
  ranks.writer().submit(request(0));
  ranks.die(0);
  EXPECT_EQ(ranks.writer().lose_rank(0, false).moved, 1);
  ranks.writer().submit(request(1));
  ranks.start(0, true);
  EXPECT_EQ(ranks.writer().change_members(2, {0}), 2);
  ranks.feed(0).begin_epoch(2, false);
  const std::vector<Request> requests = ranks.submitted(0, 2);
  EXPECT_EQ(requests[0].index, 0);
  EXPECT_EQ(requests[1].index, 1);
}

TEST(RequestWriter, ReplaysEverythingWhereRanksShareRequests) {
  Ranks ranks(1, RequestWriter::OnLoss::kReplay);
  ranks.writer().submit(request(0));
  ranks.writer().submit(request(1));
  ranks.writer().answered(0, 7, false);
  EXPECT_EQ(ranks.writer().lose_rank(3, false).moved, 0);
  EXPECT_EQ(ranks.writer().change_members(2, {0}), 2);
  ranks.feed(0).begin_epoch(2, true);
  const std::vector<Request> requests = ranks.submitted(0, 2);
  EXPECT_THAT(requests[0].answered, ElementsAre(7));
}

// A request with which one rank after the other dies of itself is given up. Ranks may be killed
// from outside as often as one likes, before and in between.
TEST(RequestWriter, GivesUpARequestThatKillsItsRanks) {
  constexpr int kRanks = 9;
  Ranks ranks(kRanks, RequestWriter::OnLoss::kMove);
  ranks.writer().submit(request(0));
  const auto owner = [&] {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (ranks.writer().is_computed_by(0, rank)) return rank;
    }
    return -1;
  };
  for (const bool own_fault : {false, false, false, false, true, false, true}) {
    const int rank = owner();
    ASSERT_GE(rank, 0);
    ranks.die(rank);
    EXPECT_EQ(ranks.writer().lose_rank(rank, own_fault).moved, 1);
  }
  const int rank = owner();
  ASSERT_GE(rank, 0);
  ranks.die(rank);
  EXPECT_THAT(ranks.writer().lose_rank(rank, true).failed, ElementsAre(0));
}

TEST(RequestWriter, ARetiredRankGetsNoFurtherRequests) {
  Ranks ranks(2, RequestWriter::OnLoss::kMove);
  ranks.writer().want(1);
  for (int i = 0; i < 4; ++i) ranks.writer().submit(request(i));
  EXPECT_EQ(ranks.submitted(0, 4).size(), 4u);
  // It stays after all, with less to do than the other one.
  ranks.writer().want(2);
  ranks.writer().submit(request(4));
  EXPECT_EQ(ranks.submitted(1, 1)[0].index, 4);
}

TEST(RequestWriter, ADeadRankGetsNoRequestsHoweverManyAreWanted) {
  Ranks ranks(2, RequestWriter::OnLoss::kMove);
  ranks.die(1);
  ranks.writer().lose_rank(1, false);
  ranks.writer().want(2);
  for (int i = 0; i < 3; ++i) ranks.writer().submit(request(i));
  EXPECT_EQ(ranks.submitted(0, 3).size(), 3u);
}

// What members have dropped with the last epoch, and those that join have never read.
TEST(RequestWriter, RecordingsAndTheEndAreSaidAgainToNewMembers) {
  Ranks ranks(2, RequestWriter::OnLoss::kReplay);
  ranks.writer().record_experts(true);
  ranks.writer().record_experts(false);
  ranks.die(1);
  ranks.writer().lose_rank(1, false);
  ranks.start(1, true);
  ranks.writer().stop();
  ranks.writer().change_members(2, {0, 1});
  for (const int rank : {0, 1}) {
    ranks.feed(rank).begin_epoch(2, true);
    const Command recording = ranks.next(rank), stop = ranks.next(rank);
    EXPECT_EQ(recording.kind, Command::Kind::kEndRecord);
    EXPECT_EQ(recording.request.index, 2);
    EXPECT_EQ(stop.kind, Command::Kind::kStop);
  }
}

TEST(RequestWriter, GoesOnWhereTheCacheIs) {
  Ranks ranks(3, RequestWriter::OnLoss::kMove);
  Request begun = request(0);
  begun.cached_on = 2;
  ranks.writer().submit(begun);
  EXPECT_EQ(ranks.submitted(2, 1)[0].index, 0);
  begun.index = 1;
  begun.cached_on = 7;  // is not there any more
  ranks.writer().submit(begun);
  EXPECT_EQ(ranks.submitted(0, 1)[0].index, 1);
}

}  // namespace
}  // namespace wideep::run
