// SPDX-License-Identifier: Apache-2.0
#include "engine/yield.h"

#include <gtest/gtest.h>

#include <random>

namespace wideep::engine {
namespace {

TEST(Yields, ComeBackAsTheyWere) {
  std::mt19937 random(1);
  constexpr int kMaxBatch = 5, kMaxDraftLen = 4;
  std::vector<int32_t> words;
  for (int round = 0; round < 200; ++round) {
    std::vector<Yield> sent(random() % (kMaxBatch + 1));
    for (Yield& each : sent) {
      each.tokens.resize(1 + random() % (kMaxDraftLen + 1), 7);
      each.drafts.resize(random() % (kMaxDraftLen + 1), 9);
      if (random() % 4 == 0) each.tokens.back() = kNoToken;
    }
    pack(sent, &words);
    ASSERT_LE(words.size(), static_cast<size_t>(words_of_yields(kMaxBatch, kMaxDraftLen)));
    const std::vector<Yield> found = unpack_yields(words);
    ASSERT_EQ(found.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(found[i].tokens, sent[i].tokens);
      EXPECT_EQ(found[i].drafts, sent[i].drafts);
    }
  }
}

TEST(Yields, TheEndOfAFailedSequenceIsNotKnown) {
  EXPECT_EQ((Yield{.tokens = {3, kNoToken}, .drafts = {}}).known().size(), 1u);
  EXPECT_EQ((Yield{.tokens = {kNoToken}, .drafts = {}}).known().size(), 0u);
  EXPECT_EQ((Yield{.tokens = {3, 4}, .drafts = {}}).known().size(), 2u);
}

}  // namespace
}  // namespace wideep::engine
