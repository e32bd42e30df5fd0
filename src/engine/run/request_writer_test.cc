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

#include <atomic>
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
  Ranks(int count, RequestWriter::OnLoss on_loss, RequestWriter::Prompts prompts = {})
      : writer_(count, on_loss, prompts) {
    ::signal(SIGPIPE, SIG_IGN);
    const size_t owners = prompts.ranks_of_owner.size();
    const int num_ranks =
        owners > 0 ? static_cast<int>(owners * prompts.ranks_of_owner[0].size()) : count;
    for (int rank = 0; rank < num_ranks; ++rank) start(rank, false);
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

TEST(RequestWriter, WherePagesAreOfferedIsSaidToAllAndAgainToNewMembers) {
  Ranks ranks(2, RequestWriter::OnLoss::kReplay);
  ranks.writer().offer_pages_to("the front");
  const auto expect_offers = [&] {
    for (const int rank : {0, 1}) {
      const Command command = ranks.next(rank);
      EXPECT_EQ(command.kind, Command::Kind::kOffers);
      EXPECT_EQ(command.request.peer, "the front");
    }
  };
  ranks.writer().ranks_ready();
  expect_offers();
  ranks.die(1);
  ranks.writer().lose_rank(1, false);
  ranks.start(1, true);
  ranks.writer().change_members(2, {0, 1});
  for (const int rank : {0, 1}) ranks.feed(rank).begin_epoch(2, true);
  expect_offers();
}

// Others ask it for the answers, when a conversation goes on.
TEST(RequestWriter, PagesAreOfferedWhateverTheRole) {
  Ranks ranks(1, RequestWriter::OnLoss::kEnd);
  ranks.writer().offer_pages_to("the front");
  ranks.writer().change_role(engine::Role::kDecode);
  EXPECT_EQ(ranks.next(0).kind, Command::Kind::kRole);
  ranks.writer().ranks_ready();
  EXPECT_EQ(ranks.next(0).request.peer, "the front");
}

// To ranks that know where an earlier process was.
TEST(RequestWriter, ThatPagesAreOfferedNowhereIsSaidToo) {
  Ranks ranks(1, RequestWriter::OnLoss::kEnd);
  ranks.writer().offer_pages_to("");
  ranks.writer().ranks_ready();
  ranks.writer().stop();
  const Command command = ranks.next(0);
  EXPECT_EQ(command.kind, Command::Kind::kOffers);
  EXPECT_EQ(command.request.peer, "");
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

// ---- requests that are looked for before they are submitted ----

using Kind = Command::Kind;

RequestWriter::Prompts kept_prompts(std::vector<std::vector<int>> ranks_of_owner = {}) {
  return {.are_kept = true, .ranks_of_owner = std::move(ranks_of_owner)};
}

// With four pages, and one token more.
Request long_request(int index, int first_token = 0) {
  std::vector<int32_t> prompt(4 * store::kPageTokens + 1);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = first_token + static_cast<int>(i);
  return {.index = index, .prompt = prompt, .max_tokens = 10, .salt = "tenant"};
}

// A rank has found all four pages, of which its cache knows none.
void find_all(RequestWriter& writer, uint64_t ticket, int rank) {
  writer.found({.ticket = ticket, .rank = rank, .known = 0, .found = 4, .states = {}});
}
void fetch_all(RequestWriter& writer, uint64_t ticket, int rank) {
  writer.fetched({.ticket = ticket, .rank = rank, .pages = 4});
}

TEST(RequestWriter, LooksForAPromptBeforeItSubmitsIt) {
  Ranks ranks(2, RequestWriter::OnLoss::kEnd, kept_prompts({{0, 2}, {1, 3}}));
  RequestWriter& writer = ranks.writer();
  writer.submit(long_request(7));
  const Command look = ranks.next(0);
  ASSERT_EQ(look.kind, Kind::kLook);
  EXPECT_EQ(look.owner, 0);
  EXPECT_EQ(look.request.prompt.ids(), long_request(7).prompt.ids());
  EXPECT_EQ(look.request.salt, "tenant");
  find_all(writer, look.ticket, 0);
  find_all(writer, look.ticket, 2);
  const Command fetch = ranks.next(0);
  ASSERT_EQ(fetch.kind, Kind::kFetch);
  EXPECT_EQ(fetch.ticket, look.ticket);
  EXPECT_EQ(fetch.num_pages, 4);
  fetch_all(writer, look.ticket, 2);
  fetch_all(writer, look.ticket, 0);
  const Command import = ranks.next(0), submit = ranks.next(0);
  EXPECT_EQ(import.kind, Kind::kImport);
  EXPECT_EQ(import.num_pages, 4);
  ASSERT_EQ(submit.kind, Kind::kSubmit);
  EXPECT_EQ(submit.owner, 0);
  EXPECT_EQ(submit.request.index, 7);
  EXPECT_EQ(submit.request.prompt.ids(), long_request(7).prompt.ids());
  EXPECT_EQ(writer.fetch_counts().fetched_tokens, 4u * store::kPageTokens);
  writer.answered(7, 5, true);
}

TEST(RequestWriter, LooksForNothingWherePagesAreNotKeptOrRequestsAreShort) {
  Ranks kept(1, RequestWriter::OnLoss::kEnd, kept_prompts());
  kept.writer().submit(request(0));
  EXPECT_EQ(kept.next(0).kind, Kind::kSubmit);
  kept.writer().submit_together({long_request(1)});
  EXPECT_EQ(kept.next(0).kind, Kind::kHold);
  EXPECT_EQ(kept.next(0).kind, Kind::kSubmit);
  Ranks others(1, RequestWriter::OnLoss::kEnd);
  others.writer().submit(long_request(0));
  EXPECT_EQ(others.next(0).kind, Kind::kSubmit);
}

// The deadline is that of another clock, which the test moves.
TEST(RequestWriter, ALookThatNobodyAnswersEnds) {
  std::atomic<double> now = 0.0;
  RequestWriter::Prompts prompts = kept_prompts();
  prompts.clock = [&now] { return now.load(); };
  Ranks ranks(1, RequestWriter::OnLoss::kEnd, prompts);
  ranks.writer().submit(long_request(3));
  const Command look = ranks.next(0);
  now = 1e6;
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  EXPECT_EQ(ranks.writer().fetch_counts().gave_up, 0u);  // the ranks are not ready
  ranks.writer().ranks_ready();
  now = 1e6 + 3.0;
  EXPECT_EQ(ranks.next(0).kind, Kind::kAbandon);
  EXPECT_EQ(ranks.next(0).request.index, 3);
  EXPECT_EQ(ranks.writer().fetch_counts().gave_up, 1u);
  find_all(ranks.writer(), look.ticket, 0);  // too late
  ranks.writer().submit(request(4));
  EXPECT_EQ(ranks.next(0).request.index, 4);
}

TEST(RequestWriter, TheEndIsSaidWhenNoRequestWaits) {
  Ranks ranks(1, RequestWriter::OnLoss::kEnd, kept_prompts());
  RequestWriter& writer = ranks.writer();
  writer.submit(long_request(0));
  writer.submit(long_request(1));
  writer.finish();
  const uint64_t first = ranks.next(0).ticket, second = ranks.next(0).ticket;
  writer.cancel(0);
  const Command abandon = ranks.next(0);
  EXPECT_EQ(abandon.kind, Kind::kAbandon);
  EXPECT_EQ(abandon.ticket, first);
  writer.found({.ticket = second, .rank = 0, .states = {}});
  EXPECT_EQ(ranks.next(0).kind, Kind::kAbandon);
  EXPECT_EQ(ranks.next(0).kind, Kind::kSubmit);
  EXPECT_EQ(ranks.next(0).kind, Kind::kFinish);
}

TEST(RequestWriter, ACancelledFetchIsEndedAndItsPagesGivenBack) {
  Ranks ranks(1, RequestWriter::OnLoss::kEnd, kept_prompts());
  RequestWriter& writer = ranks.writer();
  writer.submit(long_request(0));
  const uint64_t ticket = ranks.next(0).ticket;
  find_all(writer, ticket, 0);
  EXPECT_EQ(ranks.next(0).kind, Kind::kFetch);
  writer.cancel(0);
  EXPECT_EQ(ranks.next(0).kind, Kind::kAbandon);
  fetch_all(writer, ticket, 0);
  const Command import = ranks.next(0);
  EXPECT_EQ(import.kind, Kind::kImport);
  EXPECT_EQ(import.num_pages, 0);
}

TEST(RequestWriter, WhatIsCutWhileItWaitsIsSubmittedForItsExperts) {
  Ranks ranks(1, RequestWriter::OnLoss::kMove, kept_prompts());
  Request routed = long_request(0);
  routed.returns_experts = true;
  ranks.writer().submit(routed);
  ranks.writer().cut(0);
  EXPECT_EQ(ranks.next(0).kind, Kind::kLook);
  EXPECT_EQ(ranks.next(0).kind, Kind::kAbandon);
  EXPECT_EQ(ranks.next(0).kind, Kind::kSubmit);
  EXPECT_EQ(ranks.next(0).kind, Kind::kCancel);
  EXPECT_TRUE(ranks.writer().routed(0));
}

TEST(RequestWriter, RequestsThatWaitMoveWithTheirOwner) {
  Ranks ranks(2, RequestWriter::OnLoss::kMove, kept_prompts());
  RequestWriter& writer = ranks.writer();
  writer.submit(long_request(0));
  writer.submit(long_request(1));
  EXPECT_EQ(ranks.next(0).owner, 0);
  const Command second = ranks.next(0);
  EXPECT_EQ(second.owner, 1);
  ranks.die(1);
  EXPECT_EQ(writer.lose_rank(1, false).moved, 1);
  const Command again = ranks.next(0);
  EXPECT_EQ(again.kind, Kind::kLook);
  EXPECT_EQ(again.owner, 0);
  EXPECT_EQ(again.request.index, 1);
  EXPECT_NE(again.ticket, second.ticket);
  find_all(writer, second.ticket, 0);  // of the dead rank's look
  writer.found({.ticket = again.ticket, .rank = 0, .states = {}});
  EXPECT_EQ(ranks.next(0).ticket, again.ticket);
  EXPECT_EQ(ranks.next(0).request.index, 1);
}

TEST(RequestWriter, ARequestThatWaitsAtDyingRanksIsGivenUp) {
  constexpr int kRanks = 5;
  Ranks ranks(kRanks, RequestWriter::OnLoss::kMove, kept_prompts());
  RequestWriter& writer = ranks.writer();
  writer.submit(long_request(0));
  for (int rank = 0; rank < 2; ++rank) {
    ranks.die(rank);
    EXPECT_EQ(writer.lose_rank(rank, true).moved, 1);
  }
  ranks.die(2);
  const RequestWriter::Loss loss = writer.lose_rank(2, true);
  EXPECT_EQ(loss.moved, 0);
  EXPECT_THAT(loss.failed, ElementsAre(0));
  writer.submit(request(1));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ranks.next(4).kind, Kind::kLook);
  EXPECT_EQ(ranks.next(4).request.index, 1);
}

TEST(RequestWriter, WhatWaitsForARetiredRankGoesToOthers) {
  Ranks ranks(2, RequestWriter::OnLoss::kMove, kept_prompts());
  RequestWriter& writer = ranks.writer();
  writer.submit(long_request(0));
  writer.submit(long_request(1));
  ranks.next(0);
  const uint64_t ticket = ranks.next(0).ticket;
  find_all(writer, ticket, 1);
  EXPECT_EQ(ranks.next(0).kind, Kind::kFetch);
  writer.want(1);
  const Command abandon = ranks.next(0), look = ranks.next(0);
  EXPECT_EQ(abandon.kind, Kind::kAbandon);
  EXPECT_EQ(abandon.ticket, ticket);
  EXPECT_EQ(look.kind, Kind::kLook);
  EXPECT_EQ(look.owner, 0);
  fetch_all(writer, ticket, 1);  // it still lives
  const Command import = ranks.next(0);
  EXPECT_EQ(import.kind, Kind::kImport);
  EXPECT_EQ(import.owner, 1);
  EXPECT_EQ(import.num_pages, 0);
}

TEST(RequestWriter, WhatWaitsIsBegunAgainByNewMembers) {
  Ranks ranks(1, RequestWriter::OnLoss::kReplay, kept_prompts({{0, 1}}));
  RequestWriter& writer = ranks.writer();
  writer.submit(long_request(0));
  const uint64_t before = ranks.next(0).ticket;
  find_all(writer, before, 0);
  ranks.die(1);
  EXPECT_EQ(writer.lose_rank(1, true).moved, 0);
  ranks.start(1, true);
  EXPECT_EQ(writer.change_members(2, {0, 1}), 1);
  for (const int rank : {0, 1}) {
    ranks.feed(rank).begin_epoch(2, true);
    const Command look = ranks.next(rank);
    EXPECT_EQ(look.kind, Kind::kLook);
    EXPECT_NE(look.ticket, before);
    EXPECT_EQ(look.request.prompt.ids(), long_request(0).prompt.ids());
  }
  find_all(writer, before, 1);
  writer.cancel(0);
  EXPECT_EQ(ranks.next(0).kind, Kind::kAbandon);
}

// Ranks with requests of their own go on with what they were asked.
TEST(RequestWriter, LooksOfOwnersThatStayAreNotBegunAgain) {
  Ranks ranks(2, RequestWriter::OnLoss::kMove, kept_prompts());
  RequestWriter& writer = ranks.writer();
  writer.submit(long_request(0));
  const uint64_t ticket = ranks.next(0).ticket;
  ranks.die(1);
  writer.lose_rank(1, false);
  EXPECT_EQ(writer.change_members(2, {0}), 0);
  ranks.feed(0).begin_epoch(2, false);
  find_all(writer, ticket, 0);
  const Command fetch = ranks.next(0);
  EXPECT_EQ(fetch.kind, Kind::kFetch);
  EXPECT_EQ(fetch.ticket, ticket);
}

TEST(RequestWriter, NothingWaitsForRanksThatStop) {
  Ranks ranks(1, RequestWriter::OnLoss::kReplay, kept_prompts());
  RequestWriter& writer = ranks.writer();
  writer.submit(long_request(0));
  const uint64_t ticket = ranks.next(0).ticket;
  writer.stop();
  EXPECT_EQ(ranks.next(0).kind, Kind::kStop);
  find_all(writer, ticket, 0);
  EXPECT_EQ(writer.change_members(2, {0}), 0);
}

// ---- requests whose prompt a peer computes ----

Request shared_request(int index) {
  Request request = long_request(index);
  request.peer = "1;host:7000;token;c1a5;r" + std::to_string(index) + ";";
  return request;
}

RequestWriter::Prompts prompts_of_peers(std::vector<std::vector<int>> ranks_of_owner = {}) {
  return {.may_come_from_peers = true, .ranks_of_owner = std::move(ranks_of_owner)};
}

void promise(RequestWriter& writer, uint64_t ticket, int rank) {
  writer.found({.ticket = ticket, .rank = rank, .found = 4, .states = {}, .is_promised = true});
}

TEST(RequestWriter, LooksOnlyForPromptsOfPeersWhereNoneAreKept) {
  Ranks ranks(1, RequestWriter::OnLoss::kEnd, prompts_of_peers());
  RequestWriter& writer = ranks.writer();
  writer.submit(long_request(1));
  EXPECT_EQ(ranks.next(0).kind, Kind::kSubmit);
  writer.submit(shared_request(2));
  const Command look = ranks.next(0);
  EXPECT_EQ(look.kind, Kind::kLook);
  EXPECT_EQ(look.request.peer, shared_request(2).peer);
  promise(writer, look.ticket, 0);
  EXPECT_EQ(ranks.next(0).kind, Kind::kFetch);
  EXPECT_TRUE(writer.take_transfers().empty());
  writer.arriving({.ticket = look.ticket, .rank = 0, .pages = 1});
  writer.fetched({.ticket = look.ticket, .rank = 0, .pages = 3, .from_peer = {.pages = 3}});
  EXPECT_EQ(ranks.next(0).num_pages, 3);
  EXPECT_EQ(ranks.next(0).kind, Kind::kSubmit);
  const std::vector<PromptTransfer> told = writer.take_transfers();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].request_index, 2);
  EXPECT_EQ(told[0].fetched_pages, 3);
  EXPECT_TRUE(writer.take_transfers().empty());
  Request brief = request(3);
  brief.peer = shared_request(3).peer;
  writer.submit(brief);
  EXPECT_EQ(ranks.next(0).kind, Kind::kSubmit);
}

TEST(RequestWriter, APeerIsIgnoredWherePagesAreNotShared) {
  Ranks ranks(1, RequestWriter::OnLoss::kEnd);
  ranks.writer().submit(shared_request(0));
  EXPECT_EQ(ranks.next(0).kind, Kind::kSubmit);
}

// The peer goes with it; what had come before is not told twice of an answer that has begun.
TEST(RequestWriter, ARequestOfAPeerThatMovesIsLookedForThere) {
  Ranks ranks(2, RequestWriter::OnLoss::kMove, prompts_of_peers());
  RequestWriter& writer = ranks.writer();
  writer.submit(shared_request(0));
  const Command look = ranks.next(1);
  ASSERT_EQ(look.owner, 0);
  writer.found({.ticket = look.ticket, .rank = 0, .states = {}});
  EXPECT_EQ(writer.take_transfers().size(), 1u);
  writer.answered(0, 5, false);
  ranks.die(0);
  EXPECT_EQ(writer.lose_rank(0, false).moved, 1);
  EXPECT_EQ(ranks.next(1).kind, Kind::kAbandon);
  EXPECT_EQ(ranks.next(1).kind, Kind::kSubmit);
  const Command again = ranks.next(1);
  EXPECT_EQ(again.kind, Kind::kLook);
  EXPECT_EQ(again.owner, 1);
  EXPECT_EQ(again.request.peer, shared_request(0).peer);
  writer.found({.ticket = again.ticket, .rank = 1, .states = {}});
  EXPECT_EQ(ranks.next(1).kind, Kind::kAbandon);
  EXPECT_EQ(ranks.next(1).request.answered, std::vector<int32_t>{5});
  EXPECT_TRUE(writer.take_transfers().empty());
}

// Requests that have found no room, and wait until they are looked for again.
class PausedRequests : public testing::Test {
 protected:
  // Up to the pause. Returns the ticket.
  uint64_t pause(int index, int rank = 0) {
    writer().submit(shared_request(index));
    const uint64_t ticket = ranks_.next(1).ticket;
    promise(writer(), ticket, rank);
    EXPECT_EQ(ranks_.next(1).kind, Kind::kFetch);
    writer().fetched({.ticket = ticket, .rank = rank, .has_room = false});
    EXPECT_EQ(ranks_.next(1).kind, Kind::kImport);
    return ticket;
  }
  RequestWriter& writer() { return ranks_.writer(); }
  void SetUp() override { writer().ranks_ready(); }

  std::atomic<double> now_ = 100.0;
  RequestWriter::Prompts prompts_ = {.may_come_from_peers = true,
                                     .clock = [this] { return now_.load(); }};
  Ranks ranks_{2, RequestWriter::OnLoss::kMove, prompts_};
};

TEST_F(PausedRequests, AreLookedForAgainAndTheEndWaitsForThem) {
  const uint64_t ticket = pause(0);
  writer().finish();
  now_ = 100.3;
  const Command look = ranks_.next(1);
  EXPECT_EQ(look.kind, Kind::kLook);
  EXPECT_NE(look.ticket, ticket);
  EXPECT_EQ(look.request.peer, shared_request(0).peer);
  promise(writer(), look.ticket, 0);
  EXPECT_EQ(ranks_.next(1).kind, Kind::kFetch);
  writer().fetched({.ticket = look.ticket, .rank = 0, .pages = 4});
  EXPECT_EQ(ranks_.next(1).num_pages, 4);
  EXPECT_EQ(ranks_.next(1).kind, Kind::kSubmit);
  EXPECT_EQ(ranks_.next(1).kind, Kind::kFinish);
  EXPECT_EQ(writer().take_transfers().size(), 1u);
}

// Of its peer, which has pages or not: computing the rest is not put off.
TEST_F(PausedRequests, AreOnlyThoseThatAPeerComputes) {
  Request request = shared_request(0);
  request.peer = "1;host:7000;token;c1a5;;";
  writer().submit(request);
  const uint64_t ticket = ranks_.next(1).ticket;
  promise(writer(), ticket, 0);
  EXPECT_EQ(ranks_.next(1).kind, Kind::kFetch);
  writer().fetched({.ticket = ticket, .rank = 0, .has_room = false});
  EXPECT_EQ(ranks_.next(1).kind, Kind::kImport);
  EXPECT_EQ(ranks_.next(1).kind, Kind::kSubmit);
}

TEST_F(PausedRequests, AreNotYetComputed) {
  pause(0);
  EXPECT_EQ(writer().computes_since(), std::nullopt);
  now_ = 200.0;
  writer().submit(request(1));
  EXPECT_EQ(writer().computes_since(), 200.0);
  now_ = 201.0;
  writer().submit(request(2));
  writer().answered(1, 5, true);
  EXPECT_EQ(writer().computes_since(), 200.0);  // without a break
  writer().cancel(2);
  EXPECT_EQ(writer().computes_since(), std::nullopt);
  now_ = 202.0;
  writer().submit(request(3));
  EXPECT_EQ(writer().computes_since(), 202.0);
}

// Nobody computes them, but they are the ranks'.
TEST_F(PausedRequests, WithoutRanksComputationIsOwed) {
  writer().submit(request(0));
  now_ = 101.0;
  for (const int rank : {0, 1}) writer().lose_rank(rank, false);
  EXPECT_NE(writer().computes_since(), std::nullopt);
  writer().cancel(0);
  EXPECT_EQ(writer().computes_since(), std::nullopt);
}

TEST_F(PausedRequests, CanBeCancelled) {
  pause(0);
  writer().finish();
  writer().cancel(0);
  now_ = 110.0;
  EXPECT_EQ(ranks_.next(1).kind, Kind::kFinish);
  EXPECT_TRUE(writer().take_transfers().empty());
}

TEST_F(PausedRequests, CanBeCut) {
  writer().submit(request(9));
  EXPECT_EQ(ranks_.next(1).kind, Kind::kSubmit);
  Request routed = shared_request(0);
  routed.returns_experts = true;
  writer().submit(routed);
  const uint64_t ticket = ranks_.next(1).ticket;
  promise(writer(), ticket, 1);
  EXPECT_EQ(ranks_.next(1).kind, Kind::kFetch);
  writer().fetched({.ticket = ticket, .rank = 1, .has_room = false});
  EXPECT_EQ(ranks_.next(1).kind, Kind::kImport);
  writer().cut(0);
  EXPECT_EQ(ranks_.next(1).kind, Kind::kSubmit);
  EXPECT_EQ(ranks_.next(1).kind, Kind::kCancel);
}

TEST_F(PausedRequests, MoveWithTheirOwner) {
  pause(0);
  ranks_.die(0);
  EXPECT_EQ(writer().lose_rank(0, false).moved, 1);
  const Command look = ranks_.next(1);
  EXPECT_EQ(look.kind, Kind::kLook);
  EXPECT_EQ(look.owner, 1);
  EXPECT_EQ(look.request.peer, shared_request(0).peer);
  now_ = 101.0;  // the pause is over, and nobody's
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  writer().found({.ticket = look.ticket, .rank = 1, .states = {}});
  EXPECT_EQ(ranks_.next(1).kind, Kind::kAbandon);
  EXPECT_EQ(ranks_.next(1).kind, Kind::kSubmit);
}

TEST_F(PausedRequests, MoveFromARetiredRank) {
  pause(0, 0);
  pause(1, 1);
  writer().want(1);
  const Command look = ranks_.next(1);
  EXPECT_EQ(look.kind, Kind::kLook);
  EXPECT_EQ(look.owner, 0);
  EXPECT_EQ(look.request.index, 1);
}

TEST_F(PausedRequests, EndWithTheRanks) {
  pause(0);
  writer().stop();
  EXPECT_EQ(ranks_.next(1).kind, Kind::kStop);
  now_ = 110.0;
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  writer().submit(request(1));
  EXPECT_EQ(ranks_.next(1).kind, Kind::kSubmit);
}

// That the rank knows the four pages of long_request().
PagesChanged long_pages(int rank) {
  PagesChanged changed{.rank = rank, .changes = {}};
  const std::vector<int32_t> prompt = long_request(0).prompt.ids();
  store::PageWalk walk("class", "tenant", prompt);
  while (const auto page = walk.next()) {
    changed.changes.emplace_back();
    changed.changes.back().name = page->name;
  }
  return changed;
}

TEST(RequestWriter, ARequestGoesWhereItsPrefixIs) {
  RequestWriter::Prompts prompts;
  prompts.record_class = "class";
  Ranks ranks(3, RequestWriter::OnLoss::kMove, prompts);
  ranks.writer().pages_changed(long_pages(2));
  ranks.writer().submit(long_request(0));
  EXPECT_EQ(ranks.next(0).owner, 2);
  ranks.writer().submit(long_request(1, 9000));
  EXPECT_EQ(ranks.next(0).owner, 0);
  ranks.writer().submit(long_request(2));
  EXPECT_EQ(ranks.next(0).owner, 2);
  ranks.die(2);
  EXPECT_EQ(ranks.writer().lose_rank(2, false).moved, 2);
  EXPECT_EQ(ranks.next(0).owner, 1);
}

TEST(RequestWriter, RanksThatBeginAgainHaveNoPrefix) {
  RequestWriter::Prompts prompts;
  prompts.record_class = "class";
  Ranks ranks(3, RequestWriter::OnLoss::kReplay, prompts);
  ranks.writer().pages_changed(long_pages(1));
  ranks.die(2);
  ranks.writer().lose_rank(2, false);
  ranks.writer().submit(long_request(0));
  EXPECT_EQ(ranks.next(0).owner, 0);
}

}  // namespace
}  // namespace wideep::run
