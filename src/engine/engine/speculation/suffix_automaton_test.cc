// SPDX-License-Identifier: Apache-2.0
//
// Random texts of two to five different tokens repeat themselves often and at length. After each
// token the longest repeated end must be that of a search of the whole text, and be followed by
// what has followed it somewhere. Bytes per token have a bound, because every text in it stays in
// memory. A failure is a worse draft, or memory; answers stay right.
#include "engine/speculation/suffix_automaton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace wideep::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Tokens = std::vector<int32_t>;

Tokens copy_of(std::span<const int32_t> tokens) { return {tokens.begin(), tokens.end()}; }

bool contains(const Tokens& text, std::span<const int32_t> part) {
  return std::search(text.begin(), text.end(), part.begin(), part.end()) != text.end();
}

TEST(SuffixAutomaton, FindsTheLongestRepeatedEnd) {
  SuffixAutomaton automaton;
  EXPECT_EQ(automaton.repeated(), SuffixAutomaton::kRoot);
  for (const int32_t token : {1, 2, 3, 4, 2, 3}) automaton.append(token);
  EXPECT_EQ(automaton.length(automaton.repeated()), 2);
  EXPECT_THAT(copy_of(automaton.continuation(automaton.repeated(), 9)), ElementsAre(4, 2, 3));
  EXPECT_THAT(copy_of(automaton.continuation(automaton.repeated(), 1)), ElementsAre(4));
  automaton.append(9);
  EXPECT_EQ(automaton.repeated(), SuffixAutomaton::kRoot);
}

TEST(SuffixAutomaton, TheLatestOccurrenceCounts) {
  SuffixAutomaton automaton;
  for (const int32_t token : {1, 2, 7, 1, 2, 8, 1, 2}) automaton.append(token);
  EXPECT_THAT(copy_of(automaton.continuation(automaton.repeated(), 1)), ElementsAre(8));
}

TEST(SuffixAutomaton, ContinuationsEndWithTheirTexts) {
  SuffixAutomaton automaton;
  for (const int32_t token : {1, 2, 3}) automaton.append(token);
  automaton.begin_text();
  for (const int32_t token : {5, 6}) automaton.append(token);
  SuffixAutomaton::Cursor cursor;
  automaton.advance(cursor, 2);
  EXPECT_THAT(copy_of(automaton.continuation(cursor.state, 9)), ElementsAre(3));
  automaton.advance(cursor, 3);
  EXPECT_EQ(cursor.length, 2);
  EXPECT_THAT(copy_of(automaton.continuation(cursor.state, 9)), IsEmpty());
  automaton.advance(cursor, 5);  // of another text
  EXPECT_EQ(cursor.length, 1);
}

// Against searches of the whole text.
TEST(SuffixAutomaton, AgreesWithASearchOfRandomTexts) {
  std::mt19937 rng(3);
  for (int round = 0; round < 40; ++round) {
    const int vocabulary = int(2 + rng() % 4);
    SuffixAutomaton automaton;
    Tokens text;
    for (int i = 0; i < 120; ++i) {
      text.push_back(int32_t(rng() % vocabulary));
      automaton.append(text.back());
      const std::span<const int32_t> all = text;
      const Tokens before(text.begin(), text.end() - 1);
      size_t longest = 0;  // an occurrence that ends earlier
      while (longest + 1 < text.size() && contains(before, all.last(longest + 1))) ++longest;
      const SuffixAutomaton::State state = automaton.repeated();
      ASSERT_EQ(automaton.length(state), static_cast<int>(longest));
      if (longest == 0) continue;
      Tokens expected = copy_of(all.last(longest));
      const Tokens next = copy_of(automaton.continuation(state, 1));
      ASSERT_EQ(next.size(), 1u);
      expected.push_back(next[0]);
      ASSERT_TRUE(contains(text, expected));
    }
  }
}

TEST(SuffixAutomaton, CursorsAgreeWithASearchOfRandomTexts) {
  std::mt19937 rng(4);
  for (int round = 0; round < 40; ++round) {
    const int vocabulary = int(2 + rng() % 4);
    SuffixAutomaton automaton;
    std::vector<Tokens> texts;
    SuffixAutomaton::Cursor cursor;
    Tokens read;
    for (int i = 0; i < 30; ++i) {
      automaton.begin_text();
      Tokens& text = texts.emplace_back();
      for (size_t t = rng() % 12; t > 0; --t) {
        text.push_back(int32_t(rng() % vocabulary));
        automaton.append(text.back());
      }
      cursor = {};
      read.clear();
      for (int t = 0; t < 20; ++t) {
        read.push_back(int32_t(rng() % (vocabulary + 1)));
        automaton.advance(cursor, read.back());
        const auto known = [&](size_t count) {
          return std::any_of(texts.begin(), texts.end(), [&](const Tokens& each) {
            return contains(each, std::span(read).last(count));
          });
        };
        size_t longest = 0;
        while (longest < read.size() && known(longest + 1)) ++longest;
        ASSERT_EQ(cursor.length, static_cast<int>(longest));
        if (longest == 0) continue;
        Tokens expected = copy_of(std::span(read).last(longest));
        const Tokens next = copy_of(automaton.continuation(cursor.state, 3));
        expected.insert(expected.end(), next.begin(), next.end());
        ASSERT_TRUE(std::any_of(texts.begin(), texts.end(),
                                [&](const Tokens& each) { return contains(each, expected); }));
      }
    }
  }
}

TEST(SuffixAutomaton, TakesLinearSpace) {
  std::mt19937 rng(1);
  SuffixAutomaton random, repeats;
  for (int i = 0; i < 50'000; ++i) {
    random.append(int32_t(rng() % 50'000));
    repeats.append(i % 7);
  }
  EXPECT_LT(random.bytes() / random.num_tokens(), 160u);
  EXPECT_LT(repeats.bytes() / repeats.num_tokens(), 160u);
}

}  // namespace
}  // namespace wideep::engine
