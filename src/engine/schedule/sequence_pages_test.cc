// SPDX-License-Identifier: Apache-2.0
#include "schedule/sequence_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "schedule/layout_testing.h"

namespace wideep::engine {
namespace {

using kernels::kPageTokens;

Sequence sequence_of(int first, int count) {
  Sequence sequence;
  sequence.tokens.resize(static_cast<size_t>(count));
  std::iota(sequence.tokens.begin(), sequence.tokens.end(), first);
  sequence.request.prompt = sequence.tokens;
  return sequence;
}

// Computes the tokens before `end` as the scheduler does.
void compute(SequencePages& pages, Sequence& sequence, int end) {
  if (sequence.state == StateSlots::kNone) pages.take_state(sequence);
  pages.grow(sequence, end);
  sequence.num_computed = end;
  pages.keep_state(sequence);
}

// It keeps the pages that it has taken, but not what is in them.
TEST(SequencePages, ASharedPageReplacesOneOfAGivenUpStep) {
  SequencePages pages(small_layout(), 0, {.max_pages = 6, .reuse_pages = true}, {});
  Sequence first = sequence_of(0, 3 * kPageTokens), second = sequence_of(0, 3 * kPageTokens);
  first.before_step = {0, 0};
  pages.begin_step();
  pages.grow(first, 3 * kPageTokens);
  first.num_computed = 3 * kPageTokens;
  pages.forget_new_pages();
  SequencePages::take_back(first);
  pages.begin_step();
  pages.grow(second, 2 * kPageTokens);
  second.num_computed = 2 * kPageTokens;
  EXPECT_EQ(pages.reuse(first), 2 * kPageTokens);
  ASSERT_EQ(first.page_ids.size(), 3u);
  for (int page = 0; page < 2; ++page) EXPECT_EQ(first.pages[page], second.pages[page]);
  EXPECT_EQ(pages.cache().used(0), 3);
}

class PagesWithStates : public testing::Test {
 protected:
  SequencePages pages_{
      small_layout(), 64, {.max_pages = 4, .state_slots = 4, .reuse_pages = true}, {}};
};

TEST_F(PagesWithStates, SnapshotsEndWithTheirPages) {
  Sequence first = sequence_of(0, 3 * kPageTokens);
  ASSERT_EQ(pages_.next_cut(first), 2 * kPageTokens);
  compute(pages_, first, 2 * kPageTokens);
  compute(pages_, first, 3 * kPageTokens);  // awaits a token that may come
  EXPECT_EQ(pages_.states().num_snapshots(), 2);
  pages_.release(first, false);
  EXPECT_EQ(pages_.states().num_states(), 0);
  EXPECT_EQ(pages_.states().num_snapshots(), 2);
  Sequence other = sequence_of(1000, 2 * kPageTokens + 1);
  compute(pages_, other, 1 * kPageTokens + 1);  // one page more than was free
  EXPECT_EQ(pages_.states().num_snapshots(), 1);
  compute(pages_, other, 2 * kPageTokens + 1);  // and another
  EXPECT_EQ(pages_.states().num_snapshots(), 0);
}

TEST_F(PagesWithStates, SnapshotsOfAnAnswerReplaceEachOther) {
  Sequence chat = sequence_of(0, kPageTokens + 1);
  compute(pages_, chat, kPageTokens);
  compute(pages_, chat, kPageTokens + 1);
  EXPECT_EQ(pages_.states().num_snapshots(), 1);
  while (chat.tokens.size() < 4 * kPageTokens) {
    chat.tokens.push_back(7);
    compute(pages_, chat, static_cast<int>(chat.tokens.size()));
  }
  EXPECT_EQ(pages_.states().num_snapshots(), 2);  // of the prompt, and at the end
  pages_.release(chat, false);
  Sequence next = sequence_of(0, 4 * kPageTokens + 9);
  std::copy(chat.tokens.begin(), chat.tokens.end(), next.tokens.begin());
  EXPECT_EQ(pages_.reuse(next), 4 * kPageTokens);
}

// Known pages without a snapshot are of no use, except to show where to make one.
TEST_F(PagesWithStates, PagesAreSharedUpToASnapshot) {
  Sequence first = sequence_of(0, 3 * kPageTokens + 1);
  compute(pages_, first, 2 * kPageTokens);  // ends inside the prompt: no snapshot
  EXPECT_EQ(pages_.states().num_snapshots(), 0);
  Sequence second = sequence_of(0, 2 * kPageTokens + 1);
  EXPECT_EQ(pages_.reuse(second), 0);
  EXPECT_EQ(second.branch, 2 * kPageTokens);
  compute(pages_, first, 3 * kPageTokens);
  EXPECT_EQ(pages_.states().num_snapshots(), 1);
  Sequence third = sequence_of(0, 3 * kPageTokens + 1);
  EXPECT_EQ(pages_.reuse(third), 3 * kPageTokens);
  EXPECT_EQ(third.branch, 0);
}

// A later prompt has another last message: it goes on from the state before it.
TEST_F(PagesWithStates, ASnapshotStaysBeforeTheLastMessage) {
  Sequence first = sequence_of(0, 3 * kPageTokens + 1);
  first.request.turn_begin = kPageTokens + 7;
  EXPECT_EQ(pages_.next_cut(first), kPageTokens);
  compute(pages_, first, kPageTokens);
  EXPECT_EQ(pages_.next_cut(first), 3 * kPageTokens);
  EXPECT_EQ(pages_.states().num_snapshots(), 1);
  EXPECT_EQ(first.own_snapshot, StateSlots::kNoTokens);
  compute(pages_, first, 3 * kPageTokens);
  EXPECT_EQ(pages_.states().num_snapshots(), 2);
  Sequence next = sequence_of(0, 3 * kPageTokens);
  std::fill(next.tokens.begin() + kPageTokens + 7, next.tokens.end(), 5);
  EXPECT_EQ(pages_.reuse(next), kPageTokens);
}

class PagesWithNames : public testing::Test {
 protected:
  PageNews news() {
    pages_.begin_step();
    return pages_.take_news();
  }
  SequencePages pages_{small_layout(),
                       64,
                       {.max_pages = 6,
                        .state_slots = 3,
                        .reuse_pages = true,
                        .roles_differ = true,
                        .record_class = "class"},
                       {}};
};

TEST_F(PagesWithNames, TellWhatTheyKeep) {
  Sequence first = sequence_of(0, 2 * kPageTokens + 1);
  compute(pages_, first, 2 * kPageTokens);  // and a snapshot
  const PageNews made = news();
  ASSERT_EQ(made.changes.size(), 2u);
  ASSERT_EQ(made.kept.size(), 3u);
  const auto state = std::ranges::find(made.kept, store::Kind::kState,
                                       [](const KeptBytes& each) { return each.head.kind; });
  ASSERT_NE(state, made.kept.end());
  EXPECT_EQ(state->head.name, made.changes[1].name);
  EXPECT_EQ(state->head.before, made.changes[0].name);
  EXPECT_EQ(state->head.page, 1u);
  EXPECT_EQ(state->head.tokens[0], kPageTokens);
  for (const KeptBytes& each : made.kept) {
    EXPECT_TRUE(each.is_intact());
    if (each.head.kind != store::Kind::kPage) continue;
    EXPECT_EQ(each.bytes, first.pages[each.head.page]);
    EXPECT_EQ(each.head.name, made.changes[each.head.page].name);
  }
  EXPECT_TRUE(news().empty());
}

// Few could share it.
TEST_F(PagesWithNames, APageWithARoleIsKnownButNotKept) {
  Sequence first = sequence_of(0, kPageTokens / 2);
  first.tokens.resize(kPageTokens, 3);
  compute(pages_, first, kPageTokens);
  const PageNews made = news();
  EXPECT_EQ(made.changes.size(), 1u);
  EXPECT_TRUE(made.kept.empty());
  pages_.release(first, false);
  const PageNews ended = news();
  ASSERT_EQ(ended.changes.size(), 1u);
  EXPECT_FALSE(ended.changes[0].is_known);
}

// Nobody has computed them.
TEST_F(PagesWithNames, PagesOfAStepThatIsGivenUpAreNotTold) {
  Sequence first = sequence_of(0, 2 * kPageTokens);
  pages_.take_state(first);
  pages_.begin_step();
  pages_.grow(first, kPageTokens);
  pages_.forget_new_pages();
  EXPECT_TRUE(news().empty());
}

TEST_F(PagesWithNames, PagesOfDraftsAreToldWhenTheyWereRight) {
  SequencePages pages(small_layout(), 0,
                      {.max_pages = 3, .reuse_pages = true, .record_class = "class"}, {});
  Sequence first = sequence_of(0, kPageTokens - 2);
  pages.grow(first, kPageTokens - 2, 3);
  first.num_computed = kPageTokens - 2;
  pages.begin_step();
  EXPECT_TRUE(pages.take_news().empty());
  first.tokens.resize(kPageTokens + 1, 4);
  pages.accept(first, kPageTokens);
  EXPECT_TRUE(pages.take_news().empty());
  pages.begin_step();
  const PageNews made = pages.take_news();
  EXPECT_EQ(made.changes.size(), 1u);
  EXPECT_EQ(made.kept.size(), 1u);
}

TEST_F(PagesWithNames, WhatWasKeptIsIntactUntilItsPlaceIsTaken) {
  Sequence first = sequence_of(0, 2 * kPageTokens + 1);
  compute(pages_, first, 2 * kPageTokens);
  const PageNews made = news();
  pages_.release(first, false);
  Sequence other = sequence_of(1000, 5 * kPageTokens + 1);
  compute(pages_, other, 4 * kPageTokens);
  for (const KeptBytes& each : made.kept) EXPECT_TRUE(each.is_intact());
  compute(pages_, other, 5 * kPageTokens);  // in the place of the second page and its state
  for (const KeptBytes& each : made.kept) EXPECT_EQ(each.is_intact(), each.head.page == 0);
}

}  // namespace
}  // namespace wideep::engine
