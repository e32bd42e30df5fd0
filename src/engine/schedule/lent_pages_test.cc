// SPDX-License-Identifier: Apache-2.0
//
// By hand: what is filled elsewhere is not computed again, what was not filled is, and running
// requests never miss a page for it. Random work is in page_news_test.cc. A failure waits for ever,
// or attends to a page that nobody has filled.
#include "schedule/lent_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "schedule/layout_testing.h"
#include "schedule/scheduler.h"

namespace wideep::engine {
namespace {

constexpr size_t kLentStateBytes = 64;

SharedTokens prompt_from(int first, int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

Request asked(int index, const SharedTokens& prompt, int max_tokens, const std::string& salt = {}) {
  return {.index = index, .prompt = prompt, .max_tokens = max_tokens, .salt = salt};
}

SchedulerLimits lent_limits(int max_pages) {
  return {.max_batch_size = 4,
          .max_num_tokens = 1000,
          .max_pages = max_pages,
          .reuse_pages = true,
          .record_class = "class"};
}

// The prompt tokens that are computed until all requests have ended.
int run_to_end(Scheduler& scheduler) {
  int prompt_tokens = 0;
  for (int steps = 0; scheduler.has_work(); ++steps) {
    EXPECT_LT(steps, 1000);
    const Scheduler::Step& step = scheduler.schedule();
    EXPECT_GT(step.num_tokens, 0);
    if (testing::Test::HasFailure()) return -1;
    prompt_tokens += step.prompt_tokens;
    for (Sequence* sequence : std::vector(step.sampled)) {
      scheduler.append(*sequence, std::vector<int32_t>{7}, {});
      if (sequence->num_generated() == sequence->request.max_tokens) scheduler.finish(sequence);
    }
  }
  return prompt_tokens;
}

int used_pages(Scheduler& scheduler) {
  scheduler.schedule();
  return scheduler.record().cache_pages;
}

TEST(LentPages, WhatWasFilledIsNotComputed) {
  Scheduler scheduler(small_layout(), lent_limits(10));
  const SharedTokens prompt = prompt_from(0, 200);
  const auto lent = scheduler.lend(1, prompt, "", 3);
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(lent->first, 0);
  EXPECT_EQ(lent->pages.size(), 3u);
  EXPECT_EQ(std::ranges::count(lent->pages, nullptr), 0);
  EXPECT_EQ(lent->state, nullptr);
  EXPECT_EQ(scheduler.num_requests(), 0);
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.known(prompt, "").pages, 0);
  EXPECT_EQ(used_pages(scheduler), 3);
  scheduler.import(1, 3);
  EXPECT_EQ(scheduler.known(prompt, "").pages, 3);
  EXPECT_EQ(scheduler.known(prompt, "a").pages, 0);
  scheduler.schedule();
  const PageNews news = scheduler.take_news();
  EXPECT_EQ(news.changes.size(), 3u);
  ASSERT_EQ(news.kept.size(), 3u);
  EXPECT_TRUE(std::ranges::all_of(news.kept, &KeptBytes::is_imported));
  ASSERT_TRUE(scheduler.submit(asked(1, prompt, 1)).ok());
  EXPECT_EQ(run_to_end(scheduler), 200 - 3 * 64);
  ASSERT_TRUE(scheduler.submit(asked(2, prompt, 1, "a")).ok());
  EXPECT_EQ(run_to_end(scheduler), 200);
  EXPECT_EQ(used_pages(scheduler), 0);
}

TEST(LentPages, WhatWasNotFilledIsGivenBack) {
  Scheduler scheduler(small_layout(), lent_limits(10));
  const SharedTokens prompt = prompt_from(0, 300);
  for (const int filled : {0, 2}) {
    ASSERT_TRUE(scheduler.lend(1, prompt, "", 4).has_value());
    scheduler.import(1, filled);
    EXPECT_EQ(scheduler.known(prompt, "").pages, filled);
    EXPECT_EQ(used_pages(scheduler), 0);
  }
  // Those that are known are held, and not lent again.
  const auto lent = scheduler.lend(2, prompt, "", 9);
  ASSERT_TRUE(lent.has_value());
  EXPECT_EQ(lent->first, 2);
  EXPECT_EQ(lent->pages.size(), 2u);  // not that of the last token
  EXPECT_EQ(used_pages(scheduler), 4);
  scheduler.import(2, 100);
  EXPECT_EQ(scheduler.known(prompt, "").pages, 4);
  EXPECT_EQ(used_pages(scheduler), 0);
  EXPECT_EQ(scheduler.take_news().changes.size(), 4u);
}

TEST(LentPages, AreRefusedWhereThereIsNothingToFill) {
  Scheduler scheduler(small_layout(), lent_limits(10));
  const SharedTokens prompt = prompt_from(0, 129);
  ASSERT_TRUE(scheduler.lend(1, prompt, "", 1).has_value());
  EXPECT_FALSE(scheduler.lend(1, prompt_from(5, 200), "", 1).has_value());  // has lent
  scheduler.import(1, 1);
  scheduler.import(1, 1);   // no effect
  scheduler.import(77, 3);  // likewise
  EXPECT_FALSE(scheduler.lend(2, prompt, "", 1).has_value());
  EXPECT_FALSE(scheduler.lend(2, prompt, "", 0).has_value());
  EXPECT_FALSE(scheduler.lend(2, prompt_from(0, 65), "", 1).has_value());
  EXPECT_FALSE(scheduler.lend(2, prompt_from(9, 64), "", 1).has_value());
  EXPECT_FALSE(scheduler.lend(2, prompt_from(9, 900), "", 11).has_value());  // more than there is
  EXPECT_EQ(used_pages(scheduler), 0);
  SchedulerLimits limits = lent_limits(10);
  limits.reuse_pages = false;
  Scheduler without(small_layout(), limits);
  EXPECT_FALSE(without.lend(1, prompt, "", 1).has_value());
}

TEST(LentPages, AllCanBeTakenBackAndSurviveTheRequests) {
  Scheduler scheduler(small_layout(), lent_limits(10));
  ASSERT_TRUE(scheduler.lend(1, prompt_from(0, 130), "", 2).has_value());
  ASSERT_TRUE(scheduler.lend(2, prompt_from(1, 130), "", 2).has_value());
  scheduler.drop_requests();
  EXPECT_EQ(used_pages(scheduler), 4);
  scheduler.take_back_lent();
  EXPECT_EQ(used_pages(scheduler), 0);
  scheduler.import(1, 2);
  EXPECT_EQ(scheduler.known(prompt_from(0, 130), "").pages, 0);
}

// A request has computed the same meanwhile: its pages stay the known ones.
TEST(LentPages, AreFreeIfTheirContentIsKnownAlready) {
  Scheduler scheduler(small_layout(), lent_limits(10));
  const SharedTokens prompt = prompt_from(0, 200);
  ASSERT_TRUE(scheduler.lend(1, prompt, "", 3).has_value());
  ASSERT_TRUE(scheduler.submit(asked(1, prompt, 1)).ok());
  EXPECT_EQ(run_to_end(scheduler), 200);
  scheduler.import(1, 3);
  EXPECT_EQ(used_pages(scheduler), 0);
  EXPECT_EQ(scheduler.record().kept_pages, 3);
  EXPECT_EQ(scheduler.take_news().changes.size(), 3u);
}

TEST(LentPages, LeaveRunningRequestsWhatTheyMayClaim) {
  for (const auto policy : {CapacityPolicy::kGuaranteedNoEvict, CapacityPolicy::kMaxUtilization}) {
    SchedulerLimits limits = lent_limits(6);
    limits.policy = policy;
    Scheduler scheduler(small_layout(), limits);
    // 4 pages in the end; with max_utilization it claims 2 now.
    ASSERT_TRUE(scheduler.submit(asked(1, prompt_from(0, 60), 170)).ok());
    const Scheduler::Step& step = scheduler.schedule();
    ASSERT_EQ(step.sampled.size(), 1u);
    scheduler.append(*step.sampled[0], std::vector<int32_t>{7}, {});
    const int room = policy == CapacityPolicy::kGuaranteedNoEvict ? 2 : 4;
    const SharedTokens prompt = prompt_from(1000, 500);
    EXPECT_FALSE(scheduler.lend(1, prompt, "", room + 1).has_value());
    EXPECT_EQ(used_pages(scheduler), 1);
    scheduler.give_up_step();
    ASSERT_TRUE(scheduler.lend(1, prompt, "", room).has_value());
    EXPECT_FALSE(scheduler.lend(2, prompt, "a", 1).has_value());
    if (policy == CapacityPolicy::kMaxUtilization) {
      for (int i = 0; i < 60; ++i) {  // as far as the pages reach that it has claimed
        const Scheduler::Step& next = scheduler.schedule();
        ASSERT_EQ(next.sampled.size(), 1u);
        scheduler.append(*next.sampled[0], std::vector<int32_t>{7}, {});
      }
      scheduler.import(1, room);
    }
    run_to_end(scheduler);
    EXPECT_EQ(scheduler.record().pauses, 0);
    scheduler.take_back_lent();
    EXPECT_EQ(used_pages(scheduler), 0);
  }
}

// Kept pages that are shared count too: they can no longer make room.
TEST(LentPages, CountTheKnownPagesThatTheyHold) {
  Scheduler scheduler(small_layout(), lent_limits(4));
  ASSERT_TRUE(scheduler.submit(asked(0, prompt_from(0, 129), 1)).ok());
  run_to_end(scheduler);                                                   // 2 pages are kept
  ASSERT_TRUE(scheduler.submit(asked(1, prompt_from(500, 60), 60)).ok());  // 2 pages
  scheduler.schedule();
  EXPECT_FALSE(scheduler.lend(1, prompt_from(0, 300), "", 3).has_value());
  EXPECT_EQ(scheduler.known(prompt_from(0, 129), "").pages, 2);
}

// ---- loans that wait for a peer ----

void begin_next(Scheduler& scheduler, int running) {
  scheduler.schedule();
  EXPECT_EQ(scheduler.record().running, running);
  scheduler.give_up_step();
}

// So a request here begins, whatever the peers wait for.
TEST(LongLoans, LeaveHalfOfThePagesToRequests) {
  Scheduler scheduler(small_layout(), lent_limits(10));
  ASSERT_TRUE(scheduler.lend(1, prompt_from(0, 300), "", 3, 1).has_value());
  ASSERT_TRUE(scheduler.lend(2, prompt_from(1, 300), "", 2, 2).has_value());
  EXPECT_FALSE(scheduler.lend(3, prompt_from(2, 300), "", 1, 3).has_value());
  ASSERT_TRUE(scheduler.submit(asked(4, prompt_from(5000, 310), 10)).ok());  // 5 pages
  begin_next(scheduler, 1);
  EXPECT_EQ(run_to_end(scheduler), 310);
  // What comes from places ends by itself; what ends makes room.
  ASSERT_TRUE(scheduler.lend(3, prompt_from(2, 300), "", 1).has_value());
  scheduler.import(3, 1);
  scheduler.import(2, 2);
  EXPECT_FALSE(
      scheduler.lend(2, prompt_from(1, 300), "", 3, 2).has_value());  // it holds known ones
  ASSERT_TRUE(scheduler.lend(2, prompt_from(7, 300), "", 2, 2).has_value());
}

TEST(LongLoans, ShareWhatIsKnown) {
  Scheduler scheduler(small_layout(), lent_limits(10));
  ASSERT_TRUE(scheduler.submit(asked(1, prompt_from(0, 193), 60)).ok());  // 4 pages
  scheduler.schedule();                                                   // 3 of them are full
  ASSERT_TRUE(scheduler.lend(1, prompt_from(0, 400), "", 5, 2).has_value());
  std::vector<int32_t> ids = prompt_from(0, 400).ids();
  std::fill(ids.begin() + 192, ids.end(), 7);
  ASSERT_TRUE(scheduler.lend(2, ids, "", 6, 3).has_value());
  EXPECT_FALSE(scheduler.lend(3, prompt_from(5000, 70), "", 1, 4).has_value());
}

TEST(LongLoans, MayBeLargerAlone) {
  Scheduler scheduler(small_layout(), lent_limits(10));
  const SharedTokens prompt = prompt_from(0, 600);
  ASSERT_TRUE(scheduler.lend(1, prompt, "", 7, 1).has_value());
  EXPECT_FALSE(scheduler.lend(2, prompt_from(5000, 70), "", 1, 2).has_value());
  scheduler.import(1, 0);
  ASSERT_TRUE(scheduler.lend(2, prompt_from(5000, 70), "", 1).has_value());
  EXPECT_FALSE(scheduler.lend(1, prompt, "", 7, 1).has_value());
  scheduler.import(2, 0);
  scheduler.hold_requests(true);
  ASSERT_TRUE(scheduler.submit(asked(9, prompt_from(9000, 20), 1)).ok());
  EXPECT_FALSE(scheduler.lend(1, prompt, "", 7, 1).has_value());
  EXPECT_TRUE(scheduler.lend(1, prompt, "", 5, 1).has_value());
}

TEST(LongLoans, DoNotOvertakeRequestsBeforeThem) {
  for (const auto policy : {CapacityPolicy::kGuaranteedNoEvict, CapacityPolicy::kMaxUtilization}) {
    SchedulerLimits limits = lent_limits(10);
    limits.policy = policy;
    Scheduler scheduler(small_layout(), limits);
    ASSERT_TRUE(scheduler.submit(asked(1, prompt_from(0, 320), 64)).ok());     // 6 pages
    ASSERT_TRUE(scheduler.submit(asked(5, prompt_from(9000, 250), 60)).ok());  // 5 pages
    begin_next(scheduler, 1);
    const SharedTokens prompt = prompt_from(5000, 200);
    EXPECT_FALSE(scheduler.lend(1, prompt, "", 1, 6).has_value());
    for (const std::optional<int> index : {std::optional(4), std::optional<int>()}) {
      ASSERT_TRUE(scheduler.lend(1, prompt, "", 3, index).has_value());
      scheduler.import(1, 0);
    }
    // A request that cannot run before others have ended wants nothing yet.
    ASSERT_TRUE(scheduler.cancel(5));
    for (int index = 2; index < 6; ++index) {
      ASSERT_TRUE(scheduler.submit(asked(index, prompt_from(index, 20), 1)).ok());
    }
    scheduler.hold_requests(true);
    EXPECT_TRUE(scheduler.lend(1, prompt, "", 1, 6).has_value());
    EXPECT_FALSE(scheduler.lend(2, prompt, "a", 1, 6).has_value());
  }
}

TEST(LongLoans, AreToldWhereTheyAreInTheWay) {
  for (const bool are_long : {false, true}) {
    Scheduler scheduler(small_layout(), lent_limits(10));
    const auto index = are_long ? std::optional(1) : std::nullopt;
    ASSERT_TRUE(scheduler.lend(1, prompt_from(0, 600), "", 7, index).has_value());
    scheduler.schedule();
    EXPECT_EQ(scheduler.loan_in_the_way(), std::nullopt);
    ASSERT_TRUE(scheduler.submit(asked(2, prompt_from(5000, 310), 10)).ok());  // 5 pages
    begin_next(scheduler, 0);
    EXPECT_EQ(scheduler.loan_in_the_way(), are_long ? std::optional<uint64_t>(1) : std::nullopt);
    scheduler.import(1, 2);
    scheduler.schedule();
    EXPECT_EQ(scheduler.record().running, 1);
    EXPECT_EQ(scheduler.loan_in_the_way(), std::nullopt);
  }
}

TEST(LongLoans, AreInTheWayOfARequestThatRuns) {
  SchedulerLimits limits = lent_limits(4);
  limits.policy = CapacityPolicy::kMaxUtilization;
  Scheduler scheduler(small_layout(), limits);
  ASSERT_TRUE(scheduler.submit(asked(1, prompt_from(0, 60), 170)).ok());  // 2 pages now, 4 in all
  int tokens = 0;
  const auto computes = [&] {
    const Scheduler::Step& step = scheduler.schedule();
    for (Sequence* sequence : std::vector(step.sampled)) {
      scheduler.append(*sequence, std::vector<int32_t>{7}, {});
      ++tokens;
    }
    return step.num_tokens > 0;
  };
  ASSERT_TRUE(computes());
  ASSERT_TRUE(scheduler.lend(7, prompt_from(1000, 500), "", 2, 2).has_value());
  while (computes()) EXPECT_EQ(scheduler.loan_in_the_way(), std::nullopt);
  EXPECT_EQ(tokens, 2 * 64 - 60 + 1);
  EXPECT_EQ(scheduler.loan_in_the_way(), std::optional<uint64_t>(7));
  scheduler.import(7, 0);
  run_to_end(scheduler);
}

// ---- states ----

SchedulerLimits lent_limits_with_states(int slots) {
  SchedulerLimits limits = lent_limits(20);
  limits.state_slots = slots;
  return limits;
}

store::Kind kind_of(const KeptBytes& kept) { return kept.head.kind; }

TEST(LentStates, AreWhereARequestGoesOn) {
  Scheduler scheduler(small_layout(), lent_limits_with_states(2), {}, kLentStateBytes);
  const SharedTokens prompt = prompt_from(0, 200);
  const auto lent = scheduler.lend(1, prompt, "", 3);
  ASSERT_TRUE(lent.has_value());
  ASSERT_NE(lent->state, nullptr);
  std::memset(lent->state, 42, kLentStateBytes);
  scheduler.import(1, 3);
  EXPECT_EQ(scheduler.known(prompt, "").states, std::vector<int32_t>{3});
  ASSERT_TRUE(scheduler.submit(asked(1, prompt, 1)).ok());
  const Scheduler::Step& step = scheduler.schedule();
  EXPECT_EQ(step.prompt_tokens, 200 - 3 * 64);
  EXPECT_EQ(step.batch.states[0][0], std::byte{42});
}

TEST(LentStates, ComeOnlyWithAllPages) {
  Scheduler scheduler(small_layout(), lent_limits_with_states(3), {}, kLentStateBytes);
  const SharedTokens prompt = prompt_from(0, 200);
  ASSERT_TRUE(scheduler.lend(1, prompt, "", 3).has_value());
  scheduler.import(1, 2);
  EXPECT_EQ(scheduler.known(prompt, "").pages, 2);
  EXPECT_TRUE(scheduler.known(prompt, "").states.empty());
  ASSERT_TRUE(scheduler.submit(asked(1, prompt, 1)).ok());
  EXPECT_EQ(run_to_end(scheduler), 200);
  EXPECT_EQ(scheduler.known(prompt, "").states, (std::vector<int32_t>{2, 3}));
}

TEST(LentStates, MayBeAllThatIsMissing) {
  Scheduler scheduler(small_layout(), lent_limits_with_states(3), {}, kLentStateBytes);
  const SharedTokens prompt = prompt_from(0, 200);
  ASSERT_TRUE(scheduler.lend(1, prompt, "", 3).has_value());
  scheduler.import(1, 2);
  for (const int pages : {2, 1}) {  // all that is known, and less
    const auto lent = scheduler.lend(2, prompt, "", pages);
    ASSERT_TRUE(lent.has_value());
    EXPECT_EQ(lent->first, pages);
    EXPECT_TRUE(lent->pages.empty());
    ASSERT_NE(lent->state, nullptr);
    std::memset(lent->state, 40 + pages, kLentStateBytes);
    scheduler.import(2, pages);
  }
  EXPECT_EQ(scheduler.known(prompt, "").states, (std::vector<int32_t>{1, 2}));
  EXPECT_FALSE(scheduler.lend(2, prompt, "", 2).has_value());
  ASSERT_TRUE(scheduler.submit(asked(1, prompt, 1)).ok());
  const Scheduler::Step& step = scheduler.schedule();
  EXPECT_EQ(step.batch.states[0][0], std::byte{42});
}

// As pages do: a nearer place may want them.
TEST(LentStates, AreToldWithWhereTheyCameFrom) {
  Scheduler scheduler(small_layout(), lent_limits_with_states(3), {}, kLentStateBytes);
  const SharedTokens prompt = prompt_from(0, 200);
  // With pages, and where these are known.
  for (const uint32_t pages : {3, 2}) {
    const auto lent = scheduler.lend(pages, prompt, "", static_cast<int>(pages));
    ASSERT_TRUE(lent.has_value());
    std::memset(lent->state, 42, kLentStateBytes);
    scheduler.import(pages, static_cast<int>(pages));
    const PageNews news = scheduler.take_news();
    ASSERT_EQ(std::ranges::count(news.kept, store::Kind::kState, kind_of), 1);
    const KeptBytes& kept = *std::ranges::find(news.kept, store::Kind::kState, kind_of);
    EXPECT_TRUE(kept.is_imported);
    EXPECT_TRUE(kept.is_intact());
    EXPECT_EQ(kept.bytes, lent->state);
    EXPECT_EQ(kept.head.page, pages - 1);
  }
  // One that is there already is not told again, and one that was computed has come from nowhere.
  ASSERT_TRUE(scheduler.submit(asked(1, prompt_from(1000, 70), 1)).ok());
  ASSERT_TRUE(scheduler.lend(4, prompt_from(1000, 70), "", 1).has_value());
  run_to_end(scheduler);
  scheduler.import(4, 1);
  const PageNews news = scheduler.take_news();
  ASSERT_EQ(std::ranges::count(news.kept, store::Kind::kState, kind_of), 1);
  EXPECT_FALSE(std::ranges::find(news.kept, store::Kind::kState, kind_of)->is_imported);
}

TEST(LentStates, AreAtMostHalfForLongAndNotThoseOfRequestsBefore) {
  Scheduler scheduler(small_layout(), lent_limits_with_states(4), {}, kLentStateBytes);
  const auto lend = [&](uint64_t ticket, std::optional<int> index) {
    const SharedTokens prompt = prompt_from(static_cast<int>(1000 * ticket), 70);
    return scheduler.lend(ticket, prompt, "", 1, index).has_value();
  };
  EXPECT_TRUE(lend(1, 1));
  EXPECT_TRUE(lend(2, 2));
  EXPECT_FALSE(lend(3, 3));
  EXPECT_TRUE(lend(3, std::nullopt));
  scheduler.take_back_lent();
  scheduler.hold_requests(true);
  for (const int index : {1, 2, 3}) {
    ASSERT_TRUE(scheduler.submit(asked(index, prompt_from(index, 20), 1)).ok());
  }
  EXPECT_TRUE(lend(1, 4));
  EXPECT_FALSE(lend(2, 4));
  EXPECT_TRUE(lend(2, 2));
  scheduler.hold_requests(false);
  begin_next(scheduler, 2);
}

TEST(LentStates, TheOnlySlotIsLentForLongWhileNobodyWaits) {
  Scheduler scheduler(small_layout(), lent_limits_with_states(1), {}, kLentStateBytes);
  ASSERT_TRUE(scheduler.lend(1, prompt_from(0, 70), "", 1, 1).has_value());
  ASSERT_TRUE(scheduler.submit(asked(2, prompt_from(5000, 20), 1)).ok());
  begin_next(scheduler, 0);
  EXPECT_EQ(scheduler.loan_in_the_way(), std::optional<uint64_t>(1));
  scheduler.import(1, 0);
  begin_next(scheduler, 1);
}

// Not those of running requests, nor the last one if a request waits.
TEST(LentStates, TakeTheSlotsOfSnapshots) {
  Scheduler scheduler(small_layout(), lent_limits_with_states(2), {}, kLentStateBytes);
  const SharedTokens first = prompt_from(0, 70), second = prompt_from(1000, 70);
  ASSERT_TRUE(scheduler.submit(asked(1, first, 40)).ok());
  scheduler.schedule();
  scheduler.schedule();  // its first page is computed, and there is a snapshot
  EXPECT_EQ(scheduler.known(first, "").states.size(), 1u);
  ASSERT_TRUE(scheduler.submit(asked(2, prompt_from(5000, 20), 1)).ok());
  EXPECT_FALSE(scheduler.lend(1, second, "", 1).has_value());
  EXPECT_TRUE(scheduler.cancel(2));
  ASSERT_TRUE(scheduler.lend(1, second, "", 1).has_value());
  EXPECT_TRUE(scheduler.known(first, "").states.empty());
  EXPECT_FALSE(scheduler.lend(2, prompt_from(2000, 70), "", 1).has_value());
  // A request waits for the slot that is lent.
  ASSERT_TRUE(scheduler.submit(asked(3, prompt_from(6000, 20), 1)).ok());
  scheduler.give_up_step();
  scheduler.schedule();
  EXPECT_EQ(scheduler.record().running, 1);
  scheduler.give_up_step();
  scheduler.import(1, 0);
  scheduler.schedule();
  EXPECT_EQ(scheduler.record().running, 2);
}

}  // namespace
}  // namespace wideep::engine
