// SPDX-License-Identifier: Apache-2.0
//
// The pool is TensorRT-LLM's: the figure of its blog is held as printed, and random texts against a
// pool that follows the same rules with plain lists (ngram_pool_testing.h). What is not theirs is
// the bound of memory, which has a test of its own. A failure changes no answer, since drafts are
// verified: drafts are then wrong more often, and other ones than TensorRT-LLM's.
#include "engine/speculation/ngram_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/work_timer.h"
#include "engine/speculation/ngram_pool_testing.h"

namespace wideep::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<int32_t>;

Tokens found(const NgramPool& pool, const Tokens& text) {
  const NgramPool::Found draft = pool.find(text);
  return {draft.tokens.begin(), draft.tokens.end()};
}

// Figure 1 of TensorRT-LLM's blog on n-gram speculation: a text of 8 tokens, patterns of up to 3.
TEST(NgramPool, AddsThePairsOfTheFigure) {
  NgramPool pool({.max_draft_len = 5, .max_matching_ngram_size = 3});
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8};
  pool.add(text);
  EXPECT_EQ(pool.num_patterns(), 18);
  EXPECT_EQ(pool.num_matches(), 18);
  EXPECT_THAT(found(pool, {9, 1}), ElementsAre(2, 3, 4, 5, 6));
  EXPECT_THAT(found(pool, {9, 1, 2}), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(found(pool, {9, 1, 2, 3}), ElementsAre(4, 5, 6, 7, 8));
  EXPECT_THAT(found(pool, {9, 5, 6, 7}), ElementsAre(8));
  EXPECT_THAT(found(pool, {9, 7}), ElementsAre(8));
  EXPECT_THAT(found(pool, {9, 8}), IsEmpty());
  EXPECT_THAT(found(pool, {1}), IsEmpty());
  EXPECT_EQ(pool.find(Tokens{9, 9, 3}).pattern_size, 1);
  EXPECT_EQ(pool.find(Tokens{9, 2, 3}).pattern_size, 2);
}

TEST(NgramPool, LongerMatchesReplaceShorterOnes) {
  NgramPool pool({.max_draft_len = 3, .max_matching_ngram_size = 1});
  pool.add(Tokens{1, 2});
  EXPECT_THAT(found(pool, {0, 1}), ElementsAre(2));
  pool.add(Tokens{1, 3, 4});
  EXPECT_THAT(found(pool, {0, 1}), ElementsAre(3, 4));
  pool.add(Tokens{1, 5, 6});  // equally long: added behind
  EXPECT_THAT(found(pool, {0, 1}), ElementsAre(3, 4));
  pool.add(Tokens{1, 7, 8, 9});
  EXPECT_THAT(found(pool, {0, 1}), ElementsAre(7, 8, 9));
}

TEST(NgramPool, TheNewestMatchIfWanted) {
  NgramPool pool({.max_draft_len = 2, .max_matching_ngram_size = 1, .is_use_oldest = false});
  pool.add(Tokens{1, 2, 3});
  pool.add(Tokens{1, 4, 5});
  EXPECT_THAT(found(pool, {0, 1}), ElementsAre(4, 5));
  pool.add(Tokens{1, 6});  // shorter, but newer
  EXPECT_THAT(found(pool, {0, 1}), ElementsAre(6));
}

TEST(NgramPool, AgreesWithTheSlowPool) {
  std::mt19937 rng(5);
  for (int round = 0; round < 60; ++round) {
    const NgramOptions options{.max_draft_len = int(1 + rng() % 6),
                               .max_matching_ngram_size = int(1 + rng() % 4),
                               .is_use_oldest = rng() % 2 == 0};
    NgramPool pool(options);
    SlowPool slow(options);
    const int vocabulary = int(2 + rng() % 5);
    Tokens text;
    for (int step = 0; step < 60; ++step) {
      if (rng() % 12 == 0) text.clear();
      for (size_t i = rng() % 4; i > 0; --i) text.push_back(int32_t(rng() % vocabulary));
      // As the drafter: only the open end of the text.
      const size_t open = options.max_draft_len + options.max_matching_ngram_size - 1 + 4;
      const Tokens end(text.end() - std::min(open, text.size()), text.end());
      pool.add(end);
      slow.add(end);
      ASSERT_EQ(found(pool, text), slow.find(text));
      ASSERT_EQ(pool.num_patterns(), slow.num_patterns());
      ASSERT_EQ(pool.num_matches(), slow.num_matches());
    }
  }
}

TEST(NgramPool, KeepsToItsMemory) {
  const size_t max = 20'000;
  NgramPool pool({.max_draft_len = 4, .max_matching_ngram_size = 3, .max_bytes = max});
  std::mt19937 rng(1);
  for (int i = 0; i < 200; ++i) {
    Tokens text;
    for (int t = 0; t < 50; ++t) text.push_back(int32_t(rng() % 30'000));
    pool.add(text);
    ASSERT_LE(pool.bytes(), max);
    ASSERT_THAT(found(pool, {text[47], text[48]}), ElementsAre(text[49]));  // the newest stay
  }
  EXPECT_GT(pool.num_evicted(), 1000);
  NgramPool tiny({.max_draft_len = 4, .max_matching_ngram_size = 3, .max_bytes = 1});
  tiny.add(Tokens{1, 2, 3, 4});
  EXPECT_EQ(tiny.num_patterns(), 1);
}

// A common token, after which every text goes on differently. It takes a tenth of a second; with
// one walk along the pattern's matches in each addition, half a minute.
TEST(NgramPool, ManyMatchesOfAPatternCostNoTime) {
  NgramPool pool({.max_draft_len = 3, .max_matching_ngram_size = 1, .max_bytes = size_t{1} << 30});
  const base::WorkTimer work;
  for (int i = 0; i < 100'000; ++i) pool.add(Tokens{0, i + 1, i + 2, i + 3});
  EXPECT_THAT(found(pool, {5, 0}), ElementsAre(1, 2, 3));
  EXPECT_LT(work.seconds(), 2.0);
  EXPECT_EQ(pool.num_matches(), 2 * 100'000 + 1);  // half of them of the common token
}

}  // namespace
}  // namespace wideep::engine
