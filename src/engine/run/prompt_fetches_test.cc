// SPDX-License-Identifier: Apache-2.0
//
// Ranks that answer, do not answer, die and are replaced, with a clock that the test moves. A
// failure is a request that is never submitted, or twice, or pages that ranks have lent for a fetch
// and never get back.
#include "run/prompt_fetches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace wideep::run {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Fetches = PromptFetches;
using Step = PromptFetches::Step;
using StepKind = PromptFetches::Kind;

constexpr uint64_t kTicket = 1000;
constexpr size_t kPromptTokens = 10 * 64 + 1;

class PromptFetchesTest : public testing::Test {
 protected:
  void SetUp() override { fetches_.ranks_ready(); }

  Fetches::Steps begin(int index = 5, std::vector<int> ranks = {0, 1}, int owner = 0) {
    return fetches_.begin(
        {.index = index, .owner = owner, .ranks = std::move(ranks), .num_tokens = kPromptTokens});
  }
  Fetches::Steps found(int rank, int known, int pages, double seconds = 0.5) {
    return fetches_.found({.ticket = kTicket,
                           .rank = rank,
                           .known = known,
                           .found = pages,
                           .states = {},
                           .seconds = seconds});
  }
  Fetches::Steps found_states(int rank, int known, int pages, std::vector<int32_t> states) {
    return fetches_.found({.ticket = kTicket,
                           .rank = rank,
                           .known = known,
                           .found = pages,
                           .states = std::move(states),
                           .is_stateless = false});
  }
  Fetches::Steps fetched(int rank, int pages, bool has_room = true) {
    return fetches_.fetched(
        {.ticket = kTicket, .rank = rank, .pages = pages, .has_room = has_room});
  }
  // Of a peer that computes the prompt.
  Fetches::Steps begin_promised(int index = 5, std::vector<int> ranks = {0, 1}) {
    return fetches_.begin({.index = index,
                           .owner = 0,
                           .ranks = std::move(ranks),
                           .num_tokens = kPromptTokens,
                           .tells_transfer = true,
                           .peer_computes = true});
  }
  Fetches::Steps promised(int rank, uint64_t ticket = kTicket) {
    return fetches_.found({.ticket = ticket,
                           .rank = rank,
                           .known = 2,
                           .found = 10,
                           .states = {},
                           .is_promised = true});
  }
  void begin_promised_fetch() {
    begin_promised();
    promised(0);
    ASSERT_THAT(promised(1), ElementsAre(fetch_of(10)));
  }
  void arriving(int rank, int pages = 0) {
    fetches_.arriving({.ticket = kTicket, .rank = rank, .pages = pages});
  }
  // Prompt tokens take so long from now on.
  void set_price(double seconds_per_token) {
    engine::IterationRecord rank;
    rank.prompt_tokens = 1000;
    rank.wall_ns = static_cast<int64_t>(seconds_per_token * 1e12);
    fetches_.iteration_ended({.ranks = {rank}, .members = {}});
  }
  // Up to the fetch of so many pages.
  void begin_fetch(int pages = 8) {
    begin();
    found(0, 2, pages);
    ASSERT_THAT(found(1, 2, pages), ElementsAre(fetch_of(pages)));
  }

  static Step fetch_of(int pages) {
    return {.kind = StepKind::kFetch, .ticket = kTicket, .num_pages = pages};
  }
  static Step import_of(int pages) {
    return {.kind = StepKind::kImport, .ticket = kTicket, .num_pages = pages};
  }
  static Step submit_with(int pages, int index = 5) {
    return {.kind = StepKind::kSubmit, .index = index, .num_pages = pages};
  }
  static inline const Step kAbandon = {.kind = StepKind::kAbandon, .ticket = kTicket};

  double now_ = 100.0;
  Fetches fetches_{kTicket, [this] { return now_; }};
};

TEST_F(PromptFetchesTest, FetchesWhatAllRanksHave) {
  EXPECT_THAT(begin(), ElementsAre(Step{.kind = StepKind::kLook, .index = 5, .ticket = kTicket}));
  EXPECT_THAT(found(0, 2, 9), IsEmpty());
  EXPECT_THAT(found(1, 2, 7), ElementsAre(fetch_of(7)));
  EXPECT_THAT(fetched(1, 7), IsEmpty());
  EXPECT_THAT(fetched(0, 6), ElementsAre(import_of(6), submit_with(6)));
  EXPECT_EQ(fetches_.counts().looked, 1u);
  EXPECT_EQ(fetches_.counts().fetched_requests, 1u);
  EXPECT_EQ(fetches_.counts().fetched_tokens, 4u * 64);
  EXPECT_EQ(fetches_.counts().gave_up, 0u);
}

TEST_F(PromptFetchesTest, SubmitsAtOnceWhatNobodyHasMoreOf) {
  begin();
  found(0, 3, 8);
  EXPECT_THAT(found(1, 3, 3), ElementsAre(kAbandon, submit_with(0)));
  EXPECT_THAT(found(1, 3, 8), IsEmpty());
  EXPECT_EQ(fetches_.counts().refused_as_dearer, 0u);
}

TEST_F(PromptFetchesTest, NumbersOfRanksAreCutToThePrompt) {
  begin();
  found(0, -7, 1 << 30);
  EXPECT_THAT(found(1, 0, 10), ElementsAre(fetch_of(10)));
  fetched(0, 1 << 30);
  EXPECT_THAT(fetched(1, 99), ElementsAre(import_of(10), submit_with(10)));
}

TEST_F(PromptFetchesTest, APageOfTheLastTokenIsNotWorthALook) {
  EXPECT_FALSE(Fetches::is_worth_a_look(0));
  EXPECT_FALSE(Fetches::is_worth_a_look(64));
  EXPECT_TRUE(Fetches::is_worth_a_look(65));
}

TEST_F(PromptFetchesTest, IgnoresWhatIsNotAsked) {
  begin();
  EXPECT_THAT(fetches_.found({.ticket = 1, .rank = 0, .found = 9, .states = {}}), IsEmpty());
  EXPECT_THAT(found(7, 0, 9), IsEmpty());
  EXPECT_THAT(fetched(0, 9), IsEmpty());  // nothing is fetched yet
  found(0, 2, 9);
  EXPECT_THAT(found(0, 2, 9), IsEmpty());  // twice
  EXPECT_THAT(found(1, 2, 9), ElementsAre(fetch_of(9)));
  EXPECT_THAT(found(1, 2, 9), IsEmpty());
}

TEST_F(PromptFetchesTest, ComputesWhatIsDearerToFetch) {
  set_price(0.001);
  begin();
  found(0, 2, 10, 0.1);
  // 8 pages of 64 tokens of 1 ms.
  EXPECT_THAT(found(1, 2, 10, 0.6), ElementsAre(kAbandon, submit_with(0)));
  EXPECT_EQ(fetches_.counts().refused_as_dearer, 1u);
}

TEST_F(PromptFetchesTest, APredictionIsForThePagesThatAllHave) {
  set_price(0.001);
  begin();
  found(0, 2, 10, 0.6);
  found(1, 2, 3, 0.001);
  EXPECT_EQ(fetches_.counts().refused_as_dearer, 1u);
  fetches_.clear();
  begin();
  fetches_.found(
      {.ticket = kTicket + 1, .rank = 0, .known = 2, .found = 10, .states = {}, .seconds = 0.4});
  EXPECT_THAT(fetches_.found({.ticket = kTicket + 1,
                              .rank = 1,
                              .known = 2,
                              .found = 3,
                              .states = {},
                              .seconds = 0.05}),
              ElementsAre(Step{.kind = StepKind::kFetch, .ticket = kTicket + 1, .num_pages = 3}));
}

TEST_F(PromptFetchesTest, APredictionThatIsNoNumberIsDear) {
  set_price(0.001);
  begin();
  found(0, 2, 10, std::nan(""));
  EXPECT_THAT(found(1, 2, 10, 0.1), ElementsAre(kAbandon, submit_with(0)));
}

TEST_F(PromptFetchesTest, SaysWhatWasSaved) {
  set_price(0.01);
  begin_fetch(8);
  now_ += 1.5;
  fetched(0, 8);
  fetched(1, 8);
  EXPECT_NEAR(fetches_.counts().saved_seconds, 6 * 64 * 0.01 - 1.5, 1e-6);
}

// ---- models with states ----

TEST_F(PromptFetchesTest, FetchesUpToAStateThatAllHave) {
  begin(5, {0, 1, 2});
  found_states(0, 1, 9, {2, 4, 6, 8, 9});
  found(2, 1, 8);
  EXPECT_THAT(found_states(1, 1, 9, {2, 6, 9}), ElementsAre(fetch_of(6)));
  fetched(0, 6);
  fetched(1, 6);
  EXPECT_THAT(fetched(2, 6), ElementsAre(import_of(6), submit_with(6)));
}

TEST_F(PromptFetchesTest, PagesWithoutTheirStateAreOfNoUse) {
  begin();
  found_states(0, 1, 9, {6});
  EXPECT_THAT(found_states(1, 1, 9, {6}), ElementsAre(fetch_of(6)));
  fetched(0, 6);
  EXPECT_THAT(fetched(1, 5), ElementsAre(import_of(0), submit_with(0)));
  EXPECT_EQ(fetches_.counts().gave_up, 1u);
}

TEST_F(PromptFetchesTest, WithoutACommonStateNothingIsFetched) {
  begin();
  found_states(0, 0, 9, {6});
  EXPECT_THAT(found_states(1, 0, 9, {5, -3}), ElementsAre(kAbandon, submit_with(0)));
}

// ---- what does not come ----

TEST_F(PromptFetchesTest, ALookThatIsNotAnsweredIsGivenUp) {
  begin();
  found(0, 2, 9);
  now_ += 1.9;
  EXPECT_THAT(fetches_.expire(), IsEmpty());
  now_ += 0.2;
  EXPECT_THAT(fetches_.expire(), ElementsAre(kAbandon, submit_with(0)));
  EXPECT_THAT(fetches_.expire(), IsEmpty());
  EXPECT_THAT(found(1, 2, 9), IsEmpty());
  EXPECT_EQ(fetches_.counts().gave_up, 1u);
}

TEST_F(PromptFetchesTest, ALookWaitsForLongIterations) {
  set_price(0.005);  // 5 s
  begin();
  now_ += 11.9;
  EXPECT_THAT(fetches_.expire(), IsEmpty());
  now_ += 0.2;
  EXPECT_EQ(fetches_.expire().size(), 2u);
}

TEST_F(PromptFetchesTest, ALookWaitsForTheIterationThatRuns) {
  fetches_.set_busy(true);
  begin();
  now_ += 40;
  EXPECT_THAT(fetches_.expire(), IsEmpty());
  now_ += 200;  // it never ends
  EXPECT_EQ(fetches_.expire().size(), 2u);
}

TEST_F(PromptFetchesTest, NothingIsLateBeforeTheRanksAreReady) {
  fetches_ = Fetches(kTicket, [this] { return now_; });
  begin();
  now_ += 1000;
  EXPECT_THAT(fetches_.expire(), IsEmpty());
  fetches_.ranks_ready();
  now_ += 1.9;
  EXPECT_THAT(fetches_.expire(), IsEmpty());
  now_ += 0.2;
  EXPECT_EQ(fetches_.expire().size(), 2u);
}

TEST_F(PromptFetchesTest, ALateFetchGivesBackItsPagesWhenAllHaveAnswered) {
  begin_fetch();  // 0.5 s are predicted
  now_ += 3.9;
  EXPECT_THAT(fetches_.expire(), IsEmpty());
  now_ += 0.2;
  EXPECT_THAT(fetches_.expire(), ElementsAre(kAbandon, submit_with(0)));
  now_ += 1000;
  EXPECT_THAT(fetches_.expire(), IsEmpty());
  EXPECT_THAT(fetched(0, 8), IsEmpty());
  EXPECT_THAT(fetched(1, 8), ElementsAre(import_of(0)));
  EXPECT_THAT(fetched(1, 8), IsEmpty());
  EXPECT_EQ(fetches_.counts().gave_up, 1u);
}

// A rank answers one after the other.
TEST_F(PromptFetchesTest, AFetchWaitsForThoseBeforeIt) {
  for (int i = 0; i < 3; ++i) begin(10 + i);
  for (uint64_t i = 0; i < 3; ++i) {
    for (const int rank : {0, 1})
      fetches_.found(
          {.ticket = kTicket + i, .rank = rank, .found = 8, .states = {}, .seconds = 2.0});
  }
  begin(13);  // a look behind them
  for (uint64_t i = 0; i < 3; ++i) {
    now_ += 7.9;  // four times as long as was predicted: each alone would not be late
    EXPECT_THAT(fetches_.expire(), IsEmpty());
    for (const int rank : {0, 1}) {
      fetches_.fetched({.ticket = kTicket + i, .rank = rank, .pages = 8});
    }
  }
  EXPECT_EQ(fetches_.counts().fetched_requests, 3u);
  now_ += 2.1;
  EXPECT_EQ(fetches_.expire().size(), 2u);
}

TEST_F(PromptFetchesTest, AnswersOfOthersDoNotKeepARequestForEver) {
  begin();
  bool is_submitted = false;
  for (uint64_t i = 1; i < 200 && !is_submitted; ++i) {
    now_ += 1.0;
    begin(static_cast<int>(10 + i));
    for (const int rank : {0, 1}) fetches_.found({.ticket = kTicket + i, .rank = rank});
    is_submitted = fetches_.expire().size() == 2;
  }
  EXPECT_TRUE(is_submitted);
}

// Say a disk hangs: not every request waits for it.
TEST_F(PromptFetchesTest, NobodyWaitsAgainSoonForAnOwnerThatDoesNotAnswer) {
  begin();
  now_ += 2.1;
  EXPECT_EQ(fetches_.expire().size(), 2u);
  EXPECT_THAT(begin(6), ElementsAre(submit_with(0, 6)));
  EXPECT_EQ(begin(7, {2, 3}, 1).size(), 1u);  // another owner
  now_ += 30.1;
  EXPECT_EQ(begin(8).front().kind, StepKind::kLook);
  now_ += 2.1;
  EXPECT_EQ(fetches_.expire().size(), 4u);
  begin(9);
  EXPECT_EQ(begin(10, {2, 3}, 1).front().kind, StepKind::kSubmit);
  fetches_.ranks_ready();  // there are new members
  EXPECT_EQ(begin(11).front().kind, StepKind::kLook);
}

TEST_F(PromptFetchesTest, NobodyWaitsForAnAbsurdPrediction) {
  begin();
  found(0, 2, 8, 1e300);
  ASSERT_THAT(found(1, 2, 8, 1e300), ElementsAre(fetch_of(8)));
  now_ += 121.9;
  EXPECT_THAT(fetches_.expire(), IsEmpty());
  now_ += 0.2;
  EXPECT_THAT(fetches_.expire(), ElementsAre(kAbandon, submit_with(0)));
}

TEST_F(PromptFetchesTest, WithoutRoomARequestDoesNotWaitForTheOthers) {
  begin_fetch();
  EXPECT_THAT(fetched(0, 2, false), ElementsAre(kAbandon, submit_with(0)));
  EXPECT_THAT(fetched(1, 8), ElementsAre(import_of(0)));
}

TEST_F(PromptFetchesTest, WithoutRoomOnTheLastRankThePagesAreGivenBackAtOnce) {
  begin_fetch();
  fetched(0, 8);
  EXPECT_THAT(fetched(1, 8, false), ElementsAre(import_of(0), submit_with(0)));
}

TEST_F(PromptFetchesTest, AFetchThatBringsNothingIsNotImported) {
  begin_fetch();
  fetched(0, 2);
  EXPECT_THAT(fetched(1, 8), ElementsAre(import_of(0), submit_with(0)));
  EXPECT_EQ(fetches_.counts().fetched_requests, 0u);
}

// ---- what a peer computes ----

TEST_F(PromptFetchesTest, WhatIsPromisedIsFetchedWhateverItTakes) {
  set_price(1e-9);
  begin_promised();
  promised(0);
  // Not by a rank that knows no peer, say.
  EXPECT_THAT(found(1, 2, 9, 5.0), ElementsAre(fetch_of(9)));
  fetches_.fetched({.ticket = kTicket,
                    .rank = 0,
                    .pages = 9,
                    .from_peer = {.pages = 7,
                                  .bytes = 100,
                                  .seconds = 2.0,
                                  .transfer_seconds = 1.5,
                                  .exposed_seconds = 0.5,
                                  .trouble = ""}});
  EXPECT_THAT(fetches_.take_transfers(), IsEmpty());
  EXPECT_THAT(fetches_.fetched({.ticket = kTicket,
                                .rank = 1,
                                .pages = 6,
                                .from_peer = {.pages = 4,
                                              .bytes = 50,
                                              .seconds = 3.0,
                                              .transfer_seconds = 0.25,
                                              .exposed_seconds = 1.0,
                                              .kind = PeerTrouble::kGone,
                                              .trouble = "the peer is gone"}}),
              ElementsAre(import_of(6), submit_with(6)));
  const std::vector<PromptTransfer> told = fetches_.take_transfers();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].request_index, 5);
  EXPECT_EQ(told[0].known_pages, 2);
  EXPECT_EQ(told[0].fetched_pages, 4);
  EXPECT_EQ(told[0].from_peer.pages, 7);
  EXPECT_EQ(told[0].from_peer.bytes, 150u);
  EXPECT_EQ(told[0].from_peer.seconds, 3.0);
  EXPECT_EQ(told[0].from_peer.exposed_seconds, 1.0);
  EXPECT_EQ(told[0].from_peer.hidden_seconds(), 0.5);
  EXPECT_EQ(told[0].from_peer.kind, PeerTrouble::kGone);
  EXPECT_EQ(told[0].from_peer.trouble, "the peer is gone");
  EXPECT_THAT(fetches_.take_transfers(), IsEmpty());
  EXPECT_EQ(fetches_.counts().saved_seconds, 0.0);
}

// Of those that caches did not know, two here.
TEST_F(PromptFetchesTest, PagesOnTheirWayAreThoseThatAllRanksHave) {
  const auto waits = [this] {
    const PeerWaits found = fetches_.peer_waits();
    return std::pair(static_cast<int>(found.requests), static_cast<int>(found.pages));
  };
  EXPECT_EQ(waits(), std::pair(0, 0));
  begin_promised_fetch();
  EXPECT_EQ(waits(), std::pair(1, 0));
  arriving(0, 9);
  EXPECT_EQ(waits(), std::pair(1, 0));  // nothing is heard of the other
  arriving(1, 6);
  EXPECT_EQ(waits(), std::pair(1, 4));
  arriving(1, 1'000'000);
  EXPECT_EQ(waits(), std::pair(1, 7));
  arriving(1, -5);
  EXPECT_EQ(waits(), std::pair(1, 0));
  arriving(1, 8);
  fetched(0, 10);  // more than it has said before
  EXPECT_EQ(waits(), std::pair(1, 6));
  fetched(1, 10);
  EXPECT_EQ(waits(), std::pair(0, 0));
  begin_promised(6);
  promised(0, kTicket + 1);
  promised(1, kTicket + 1);
  fetches_.fetched({.ticket = kTicket + 1, .rank = 0, .pages = 5});
  EXPECT_EQ(waits(), std::pair(1, 0));  // the other has said nothing
  fetches_.arriving({.ticket = kTicket + 1, .rank = 1, .pages = 9});
  EXPECT_EQ(waits(), std::pair(1, 3));
}

TEST_F(PromptFetchesTest, ATransferIsToldAlsoWhereNothingCame) {
  begin_promised();
  found(0, 3, 3);
  EXPECT_THAT(found(1, 3, 3), ElementsAre(kAbandon, submit_with(0)));
  const std::vector<PromptTransfer> told = fetches_.take_transfers();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].known_pages, 3);
  EXPECT_EQ(told[0].fetched_pages, 0);
  EXPECT_EQ(told[0].from_peer.trouble, "");
  begin(6);  // without a peer
  now_ += 3;
  EXPECT_EQ(fetches_.expire().size(), 2u);
  EXPECT_THAT(fetches_.take_transfers(), IsEmpty());
  begin_promised(7);  // of an owner that is silent
  EXPECT_EQ(fetches_.take_transfers().size(), 1u);
}

TEST_F(PromptFetchesTest, APeerThatWasNotReachedIsTold) {
  begin_promised();
  fetches_.found({.ticket = kTicket,
                  .rank = 0,
                  .known = 3,
                  .found = 3,
                  .states = {},
                  .peer_kind = PeerTrouble::kGone,
                  .peer_trouble = "nobody is there"});
  EXPECT_THAT(found(1, 3, 3), ElementsAre(kAbandon, submit_with(0)));
  const std::vector<PromptTransfer> told = fetches_.take_transfers();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].from_peer.pages, 0);
  EXPECT_EQ(told[0].from_peer.kind, PeerTrouble::kGone);
  EXPECT_EQ(told[0].from_peer.trouble, "nobody is there");
}

TEST_F(PromptFetchesTest, APromisedStateMustCome) {
  for (const int pages : {10, 9}) {
    const uint64_t ticket = kTicket + (pages == 9 ? 1 : 0);
    begin_promised();
    for (const int rank : {0, 1}) {
      fetches_.found({.ticket = ticket,
                      .rank = rank,
                      .found = 10,
                      .states = {4, 10},
                      .is_stateless = false,
                      .is_promised = true});
    }
    fetches_.fetched({.ticket = ticket, .rank = 0, .pages = 10});
    const int used = pages == 10 ? 10 : 0;
    EXPECT_EQ(fetches_.fetched({.ticket = ticket, .rank = 1, .pages = pages}).back(),
              submit_with(used));
    EXPECT_EQ(fetches_.take_transfers()[0].fetched_pages, used);
  }
}

TEST_F(PromptFetchesTest, AFetchFromAPeerGoesOnAsLongAsItIsHeardOf) {
  begin_promised_fetch();
  for (int i = 0; i < 300; ++i) {
    now_ += 1.5;
    arriving(0);
    arriving(1, i / 50);
    EXPECT_THAT(fetches_.expire(), IsEmpty());
  }
  now_ += 1.5;
  arriving(0);  // and not from the other
  now_ += 0.6;
  EXPECT_THAT(fetches_.expire(), ElementsAre(kAbandon, submit_with(0)));
  const PeerPages came = fetches_.take_transfers()[0].from_peer;
  EXPECT_EQ(came.kind, PeerTrouble::kUnused);
  EXPECT_EQ(came.trouble, "it took too long");
  // That says nothing of the owner.
  EXPECT_EQ(begin(6).front().kind, StepKind::kLook);
  EXPECT_THAT(fetched(0, 0), IsEmpty());
  EXPECT_THAT(fetched(1, 0), ElementsAre(import_of(0)));
}

TEST_F(PromptFetchesTest, AFetchFromAPeerDoesNotGoOnForEver) {
  begin_promised_fetch();
  int seconds = 0;
  for (; fetches_.expire().empty(); ++seconds) {
    now_ += 1.0;
    arriving(0);
    arriving(1);
    ASSERT_LT(seconds, 4000);
  }
  EXPECT_NEAR(seconds, 1802, 2);
}

TEST_F(PromptFetchesTest, OnlyWhatIsPromisedIsWaitedForAsLongAsItIsHeardOf) {
  begin_fetch();  // 0.5 s are predicted
  now_ += 3.9;
  arriving(0);
  arriving(1);
  now_ += 0.2;
  EXPECT_EQ(fetches_.expire().size(), 2u);
}

// Say the answers of others end soon: computing what a peer computes would be for nothing.
TEST_F(PromptFetchesTest, WhatHasNoRoomIsLookedForAgain) {
  begin_promised_fetch();
  fetched(0, 0);
  EXPECT_THAT(fetched(1, 0, false), ElementsAre(import_of(0)));
  uint64_t ticket = kTicket;
  double waited = 0.0;
  for (double pause = 0.25; waited + pause <= 120.0; pause = std::min(2.0, 2.0 * pause)) {
    now_ += pause - 0.01;
    EXPECT_THAT(fetches_.expire(), IsEmpty());
    now_ += 0.01 + 1e-9;
    waited += pause;
    ++ticket;
    ASSERT_THAT(fetches_.expire(),
                ElementsAre(Step{.kind = StepKind::kLook, .index = 5, .ticket = ticket}));
    promised(0, ticket);
    ASSERT_EQ(promised(1, ticket).front().kind, StepKind::kFetch);
    // The first rank's refusal is enough, but the pages of the other are lent until it answers.
    const auto steps = fetches_.fetched({.ticket = ticket, .rank = 0, .has_room = false});
    ASSERT_FALSE(steps.empty());
    ASSERT_EQ(steps[0], (Step{.kind = StepKind::kAbandon, .ticket = ticket}));
    if (steps.size() > 1) {
      EXPECT_EQ(steps[1], submit_with(0));
      break;
    }
    EXPECT_THAT(fetches_.fetched({.ticket = ticket, .rank = 1, .has_room = false}),
                ElementsAre(Step{.kind = StepKind::kImport, .ticket = ticket}));
    EXPECT_THAT(fetches_.take_transfers(), IsEmpty());
  }
  EXPECT_GT(waited, 117.0);
  const std::vector<PromptTransfer> told = fetches_.take_transfers();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0].from_peer.trouble, testing::HasSubstr("no room"));
  EXPECT_EQ(fetches_.counts().looked, 1u);
  EXPECT_EQ(fetches_.counts().gave_up, 1u);
}

// Nobody computes it meanwhile, so this server does.
TEST_F(PromptFetchesTest, WhatAnEarlierServerHasIsNotWorthWaitingForRoom) {
  fetches_.begin({.index = 5, .ranks = {0, 1}, .num_tokens = kPromptTokens});
  promised(0);
  promised(1);
  EXPECT_THAT(fetched(0, 0, false), ElementsAre(kAbandon, submit_with(0)));
  EXPECT_THAT(fetched(1, 0, false), ElementsAre(import_of(0)));
  EXPECT_EQ(fetches_.peer_waits().requests, 0);
}

TEST_F(PromptFetchesTest, WhatFindsRoomLaterIsFetched) {
  begin_promised_fetch();
  fetched(0, 0);
  fetched(1, 0, false);
  now_ += 0.3;
  EXPECT_EQ(fetches_.expire().size(), 1u);
  promised(0, kTicket + 1);
  promised(1, kTicket + 1);
  fetches_.fetched({.ticket = kTicket + 1, .rank = 0, .pages = 10});
  EXPECT_EQ(fetches_.fetched({.ticket = kTicket + 1, .rank = 1, .pages = 10}).back(),
            submit_with(10));
}

// Cancelled, of an owner that has ended, or of an epoch that has.
TEST_F(PromptFetchesTest, WhatPausesCanEnd) {
  for (const int how : {0, 1, 2}) {
    const uint64_t ticket = kTicket + static_cast<uint64_t>(how);
    begin_promised();
    promised(0, ticket);
    promised(1, ticket);
    fetches_.fetched({.ticket = ticket, .rank = 0});
    fetches_.fetched({.ticket = ticket, .rank = 1, .has_room = false});
    if (how == 0) EXPECT_THAT(fetches_.release(5), IsEmpty());
    if (how == 1) fetches_.drop_owner(0);
    if (how == 2) fetches_.clear();
    now_ += 3;
    EXPECT_THAT(fetches_.expire(), IsEmpty());
    EXPECT_THAT(fetches_.take_transfers(), IsEmpty());
  }
}

TEST_F(PromptFetchesTest, ARankThatDiesInAPauseIsNotAsked) {
  begin_promised_fetch();
  fetched(0, 0);
  fetched(1, 0, false);
  EXPECT_THAT(fetches_.lose_rank(1), IsEmpty());
  now_ += 0.3;
  EXPECT_EQ(fetches_.expire().size(), 1u);
  EXPECT_EQ(promised(0, kTicket + 1).front().kind, StepKind::kFetch);
  EXPECT_EQ(fetches_.fetched({.ticket = kTicket + 1, .rank = 0, .pages = 10}).back(),
            submit_with(10));
}

// ---- who does not wait any more ----

TEST_F(PromptFetchesTest, ACancelledLookIsForgotten) {
  begin();
  EXPECT_THAT(fetches_.release(5), ElementsAre(kAbandon));
  EXPECT_THAT(fetches_.release(5), IsEmpty());
  found(0, 2, 8);
  EXPECT_THAT(found(1, 2, 8), IsEmpty());
}

TEST_F(PromptFetchesTest, ACancelledFetchGivesBackItsPages) {
  begin_fetch();
  fetched(0, 8);
  EXPECT_THAT(fetches_.release(5), ElementsAre(kAbandon));
  EXPECT_THAT(fetched(1, 8), ElementsAre(import_of(0)));
}

TEST_F(PromptFetchesTest, ADeadRankIsNotWaitedFor) {
  begin();
  found(0, 2, 8);
  EXPECT_THAT(fetches_.lose_rank(1), ElementsAre(fetch_of(8)));
  EXPECT_THAT(fetched(0, 8), ElementsAre(import_of(8), submit_with(8)));
}

TEST_F(PromptFetchesTest, AFetchIsOfThoseThatLive) {
  begin_fetch();
  fetched(0, 8);
  EXPECT_THAT(fetches_.lose_rank(1), ElementsAre(import_of(8), submit_with(8)));
}

TEST_F(PromptFetchesTest, WhereNobodyAnswersNothingIsConcluded) {
  begin();
  EXPECT_THAT(fetches_.lose_rank(0), IsEmpty());
  EXPECT_THAT(fetches_.lose_rank(1), IsEmpty());
  now_ += 2.1;
  EXPECT_THAT(fetches_.expire(), ElementsAre(kAbandon, submit_with(0)));
}

TEST_F(PromptFetchesTest, NothingIsSaidToAnOwnerThatHasEnded) {
  begin();
  begin(6, {1}, 1);
  fetches_.drop_owner(0);
  EXPECT_THAT(found(0, 2, 8), IsEmpty());
  EXPECT_THAT(fetches_.release(5), IsEmpty());
  EXPECT_EQ(fetches_.release(6).size(), 1u);
}

TEST_F(PromptFetchesTest, AnswersOfAnEarlierEpochAreStale) {
  begin_fetch();
  fetches_.clear();
  fetched(0, 8);
  EXPECT_THAT(fetched(1, 8), IsEmpty());
  EXPECT_EQ(begin()[0].ticket, kTicket + 1);
}

// ---- random sequences ----

// Ranks that answer in any order or not at all, and a check of what they are told.
class FetchesPlay {
 public:
  explicit FetchesPlay(uint32_t seed) : random_(seed) { fetches_.ranks_ready(); }

  void play(int num_events) {
    for (int i = 0; i < num_events; ++i) {
      now_ += 0.01 * any(20);
      step(any(12));
      if (testing::Test::HasFailure()) return;
    }
    end();
  }

 private:
  static constexpr int kOwners = 3;
  struct Ticket {
    int owner = 0;
    std::vector<int> ranks;
    bool fetches = false, was_abandoned = false;
  };
  int any(int count) { return static_cast<int>(random_() % static_cast<uint32_t>(count)); }
  static std::vector<int> ranks_of(int owner) { return {2 * owner, 2 * owner + 1}; }

  void step(int what) {
    if (what < 3) return begin();
    if (what < 6) return answer_look();
    if (any(4) == 0) fetches_.arriving({.ticket = any_ticket(), .rank = any(2 * kOwners)});
    if (what < 9) return answer_fetch();
    if (what == 9) return take(fetches_.expire());
    if (what == 10) return cancel();
    if (any(20) == 0) lose_owner();
  }
  void begin() {
    const int owner = any(kOwners);
    const int index = next_index_++;
    waiting_[index] = owner;
    take(fetches_.begin({.index = index,
                         .owner = owner,
                         .ranks = ranks_of(owner),
                         .num_tokens = static_cast<size_t>(65 + any(1000)),
                         .peer_computes = any(2) == 0}));
  }
  // Of any ticket, also of those that ended long ago, by any rank.
  uint64_t any_ticket() { return kTicket + static_cast<uint64_t>(any(num_looks_ + 1)); }
  void answer_look() {
    const int known = any(6);
    take(fetches_.found({.ticket = any_ticket(),
                         .rank = any(2 * kOwners),
                         .known = known,
                         .found = known + any(12),
                         .states = {any(4), 4 + any(4)},
                         .is_stateless = any(4) > 0,
                         .seconds = 0.01 * any(30),
                         .is_promised = any(3) == 0}));
  }
  void answer_fetch() {
    take(fetches_.fetched({.ticket = any_ticket(),
                           .rank = any(2 * kOwners),
                           .pages = any(20) - 2,
                           .has_room = any(8) > 0}));
  }
  void cancel() {
    if (waiting_.empty()) return;
    const int index = waiting_.begin()->first;
    waiting_.erase(index);
    take(fetches_.release(index));
  }
  void lose_owner() {
    const int owner = any(kOwners);
    fetches_.drop_owner(owner);
    std::erase_if(waiting_, [&](const auto& each) { return each.second == owner; });
    std::erase_if(tickets_, [&](const auto& each) { return each.second.owner == owner; });
  }

  void take(const Fetches::Steps& steps) {
    for (const Step& each : steps) take(each);
  }
  void take(const Step& step) {
    if (step.kind == StepKind::kSubmit) {
      ASSERT_TRUE(waiting_.contains(step.index)) << "submitted twice, or after its end";
      EXPECT_EQ(waiting_.at(step.index), step.owner);
      waiting_.erase(step.index);
      return;
    }
    if (step.kind == StepKind::kLook) {
      ASSERT_FALSE(tickets_.contains(step.ticket));
      ASSERT_TRUE(waiting_.contains(step.index)) << "looked for after its end";
      ++num_looks_;
      tickets_[step.ticket] = {.owner = step.owner, .ranks = ranks_of(step.owner)};
      return;
    }
    ASSERT_TRUE(tickets_.contains(step.ticket)) << "of what has ended";
    Ticket& ticket = tickets_.at(step.ticket);
    EXPECT_EQ(ticket.owner, step.owner);
    if (step.kind == StepKind::kFetch) {
      EXPECT_FALSE(ticket.fetches);
      EXPECT_GT(step.num_pages, 0);
      ticket.fetches = true;
    } else if (step.kind == StepKind::kAbandon) {
      EXPECT_FALSE(ticket.was_abandoned);
      ticket.was_abandoned = true;
      if (!ticket.fetches) tickets_.erase(step.ticket);
    } else {
      EXPECT_TRUE(ticket.fetches);
      EXPECT_TRUE(!ticket.was_abandoned || step.num_pages == 0);
      tickets_.erase(step.ticket);
    }
  }

  // All that is left expires, also what is looked for once more, and all ranks answer.
  void end() {
    for (int i = 0; i < 2; ++i) {
      now_ += 3000;
      take(fetches_.expire());
    }
    EXPECT_THAT(waiting_, IsEmpty());
    for (const auto& [number, ticket] : std::map<uint64_t, Ticket>(tickets_)) {
      for (const int rank : ticket.ranks) {
        take(fetches_.fetched({.ticket = number, .rank = rank, .pages = 1}));
      }
    }
    EXPECT_THAT(tickets_, IsEmpty());
  }

  std::mt19937 random_;
  double now_ = 0.0;
  Fetches fetches_{kTicket, [this] { return now_; }};
  int next_index_ = 0, num_looks_ = 0;
  std::map<int, int> waiting_;  // request → owner
  std::map<uint64_t, Ticket> tickets_;
};

TEST(PromptFetches, EveryRequestIsSubmittedOnceAndEveryFetchIsImportedOnce) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    FetchesPlay(seed).play(300);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace wideep::run
