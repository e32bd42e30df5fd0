// SPDX-License-Identifier: Apache-2.0
//
// Random merges are held against the definition, which looks for the best pair anew after each
// merge; they are few and over four letters, so that pairs overlap and several merges make the same
// token. A wrong order of merges gives other tokens for the same text, which a model was never
// trained with. A word of a megabyte must not take quadratic time, since a prompt may be one word.
#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include "base/work_timer.h"

namespace wideep::tokenizer {
namespace {

using Pair = std::pair<int32_t, int32_t>;

struct Rule {
  int32_t rank;
  int32_t merged;
};

std::array<int32_t, 256> identity() {
  std::array<int32_t, 256> ids{};
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  return ids;
}

Bpe make_bpe(const std::map<Pair, Rule>& rules) {
  MergeTable table(rules.size());
  for (const auto& [pair, rule] : rules)
    table.set(pair.first, pair.second, {rule.rank, rule.merged});
  return Bpe(identity(), std::move(table));
}

std::vector<int32_t> encode(const Bpe& bpe, const std::string& word) {
  BpeScratch scratch;
  std::vector<int32_t> ids;
  bpe.encode(word, &scratch, &ids);
  return ids;
}

// A naive reference: find the best pair, merge its leftmost occurrence, repeat.
std::vector<int32_t> encode_by_definition(const std::map<Pair, Rule>& rules,
                                          const std::string& word) {
  std::vector<int32_t> ids;
  for (const char c : word) ids.push_back(static_cast<uint8_t>(c));
  while (true) {
    size_t best_at = ids.size();
    Rule best{};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = rules.find({ids[i], ids[i + 1]});
      if (found == rules.end()) continue;
      if (best_at < ids.size() && found->second.rank >= best.rank) continue;
      best = found->second;
      best_at = i;
    }
    if (best_at == ids.size()) return ids;
    ids[best_at] = best.merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

TEST(BpeTest, MergesTheLowestRankThenTheLeftmost) {
  const Bpe bpe =
      make_bpe({{{'a', 'b'}, {1, 300}}, {{'b', 'c'}, {0, 301}}, {{'a', 'a'}, {2, 302}}});
  EXPECT_EQ(encode(bpe, "abc"), (std::vector<int32_t>{'a', 301}));
  EXPECT_EQ(encode(bpe, "aaa"), (std::vector<int32_t>{302, 'a'}));
  EXPECT_EQ(encode(bpe, "aaab"), (std::vector<int32_t>{302, 300}));
  EXPECT_EQ(encode(bpe, "x"), (std::vector<int32_t>{'x'}));
  EXPECT_EQ(encode(bpe, ""), (std::vector<int32_t>{}));
}

TEST(BpeTest, TwoMergesMayMakeTheSameToken) {
  // "a"+"bc" and "ab"+"c" are both "abc" (302).
  const std::map<Pair, Rule> rules = {{{'a', 'b'}, {3, 300}},
                                      {{'b', 'c'}, {1, 301}},
                                      {{'a', 301}, {2, 302}},
                                      {{300, 'c'}, {0, 302}}};
  EXPECT_EQ(encode(make_bpe(rules), "abcab"), encode_by_definition(rules, "abcab"));
  EXPECT_EQ(encode(make_bpe(rules), "abc"), (std::vector<int32_t>{302}));
}

TEST(BpeTest, EqualsTheNaiveReference) {
  std::mt19937 random(11);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c", "d"};
    std::map<std::string, int32_t> ids = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}, {"d", 'd'}};
    std::map<Pair, Rule> rules;
    for (int32_t rank = 0; rank < 30; ++rank) {
      const std::string left = tokens[below(tokens.size())];
      const std::string right = tokens[below(tokens.size())];
      const auto merged = ids.emplace(left + right, 256 + static_cast<int32_t>(ids.size())).first;
      rules.try_emplace({ids.at(left), ids.at(right)}, Rule{rank, merged->second});
      tokens.push_back(left + right);
    }
    const Bpe bpe = make_bpe(rules);
    for (int i = 0; i < 20; ++i) {
      std::string word;
      for (size_t n = below(60); n > 0; --n) word += "abcd"[below(4)];
      ASSERT_EQ(encode(bpe, word), encode_by_definition(rules, word)) << word;
    }
  }
}

TEST(BpeTest, LongWordsTakeLessThanQuadraticTime) {
  std::map<Pair, Rule> rules;
  int32_t id = 'a';
  for (int32_t rank = 0; rank < 20; ++rank) {  // aa, aaaa, ...: every merge doubles
    rules[{id, id}] = {rank, 256 + rank};
    id = 256 + rank;
  }
  const base::WorkTimer work;
  EXPECT_EQ(encode(make_bpe(rules), std::string(1 << 20, 'a')), (std::vector<int32_t>{256 + 19}));
  // A tenth of a second; the naive reference would take minutes.
  EXPECT_LT(work.seconds(), 20);
}

TEST(MergeTableTest, FindsAllPairsAndNoOthers) {
  constexpr int32_t kSize = 300;
  MergeTable table(size_t{kSize} * kSize);
  for (int32_t a = 0; a < kSize; ++a) {
    for (int32_t b = 0; b < kSize; ++b) table.set(a, b, {a * kSize + b, a + b});
  }
  for (int32_t a = 0; a < kSize; ++a) {
    for (int32_t b = 0; b < kSize; ++b) ASSERT_EQ(table.find(a, b).rank, a * kSize + b);
    ASSERT_EQ(table.find(a, kSize).rank, -1);
    ASSERT_EQ(table.find(kSize + a, a).rank, -1);
  }
  table.set(1, 2, {7, 8});
  EXPECT_EQ(table.find(1, 2).rank, 7);
  EXPECT_EQ(MergeTable(0).find(0, 0).rank, -1);
}

}  // namespace
}  // namespace wideep::tokenizer
