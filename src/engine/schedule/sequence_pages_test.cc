// SPDX-License-Identifier: Apache-2.0
#include "schedule/sequence_pages.h"

#include <gtest/gtest.h>

#include <numeric>

namespace wideep::engine {
namespace {

using kernels::kPageTokens;

model::KvLayout small_layout() {
  model::ModelConfig config;
  config.num_layers = 1;
  config.layers.resize(1);
  config.num_kv_heads = 1;
  config.head_dim = 4;
  return {config, Dtype::kF32};
}

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

}  // namespace
}  // namespace wideep::engine
