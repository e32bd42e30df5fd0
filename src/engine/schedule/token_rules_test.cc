// SPDX-License-Identifier: Apache-2.0
//
// A vocabulary of six tokens, so that a rule is held by the whole list of tokens that it leaves.
// Rules are combined where one could undo another: forced tokens before a least number, allowed
// ones that would end the answer. All fields must go over the wire, since a rank that goes on with
// another one's request must find the same. A failure is a token that the client has excluded.
#include "schedule/token_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace wideep::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Tokens = std::vector<int32_t>;

constexpr int kVocab = 6;
const std::vector<int> kEnds = {5};

// The tokens that may follow.
Tokens after(const TokenRules& rules, const Tokens& answer) {
  std::vector<float> logits(kVocab, 1.0f);
  apply_rules(rules, kEnds, answer, logits);
  Tokens left;
  for (int token = 0; token < kVocab; ++token) {
    if (logits[static_cast<size_t>(token)] == 1.0f) left.push_back(token);
  }
  return left;
}

TEST(TokenRulesTest, NoneChangeNothing) {
  EXPECT_FALSE(TokenRules().change_logits());
  EXPECT_THAT(after({}, {0, 1}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_FALSE(TokenRules{.stop_tokens = {1}}.change_logits());
}

TEST(TokenRulesTest, NothingEndsAnAnswerBeforeItsLeastTokens) {
  const TokenRules rules{.min_tokens = 2, .stop_tokens = {3}};
  EXPECT_TRUE(rules.change_logits());
  EXPECT_THAT(after(rules, {}), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(after(rules, {1}), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(after(rules, {1, 1}), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(TokenRulesTest, OnlyAllowedTokensMayCome) {
  EXPECT_THAT(after({.allowed = {-1, 1, 4, 99}}, {0}), ElementsAre(1, 4));
  EXPECT_THAT(after({.allowed = {0, 1, 2, 3, 4, 5}}, {}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(after({.min_tokens = 1, .allowed = {4, 5}}, {}), ElementsAre(4));
}

TEST(TokenRulesTest, BannedSequencesDoNotCome) {
  const TokenRules rules{.banned = {{2}, {0, 1}, {0, 0, 3}}};
  EXPECT_THAT(after(rules, {}), ElementsAre(0, 1, 3, 4, 5));
  EXPECT_THAT(after(rules, {0}), ElementsAre(0, 3, 4, 5));
  EXPECT_THAT(after(rules, {4, 0, 0}), ElementsAre(0, 4, 5));
}

TEST(TokenRulesTest, ForcedTokensComeFirstAndCountAsThePrompt) {
  const TokenRules rules{.forced = {5, 2}, .min_tokens = 1, .banned = {{2, 0}}};
  EXPECT_THAT(after(rules, {}), ElementsAre(5));
  EXPECT_THAT(after(rules, {5}), ElementsAre(2));
  EXPECT_THAT(after(rules, {5, 2}), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(after(rules, {5, 2, 2}), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(required_token(rules, Tokens{5}), 2);
  EXPECT_EQ(required_token(rules, Tokens{5, 2}), std::nullopt);
}

TEST(TokenRulesTest, ThoughtsEndAtTheirLimit) {
  TokenRules rules{.thought = {.max_tokens = 2, .begin = {0}, .end = {3, 4}, .is_open = true}};
  EXPECT_THAT(after(rules, {1}).size(), kVocab);
  EXPECT_THAT(after(rules, {1, 1}), ElementsAre(3));
  EXPECT_THAT(after(rules, {1, 1, 3}), ElementsAre(4));
  EXPECT_THAT(after(rules, {1, 1, 3, 4}).size(), kVocab);
  EXPECT_THAT(after(rules, {3, 4, 1, 1, 1}).size(), kVocab);  // has ended by itself
  // Another time.
  EXPECT_THAT(after(rules, {3, 4, 0, 1, 1}), ElementsAre(3));
  rules.thought.is_open = false;
  EXPECT_THAT(after(rules, {1, 1, 1}).size(), kVocab);
  EXPECT_THAT(after(rules, {1, 0, 1, 1}), ElementsAre(3));
  rules.thought.max_tokens = 0;
  EXPECT_THAT(after(rules, {1, 0}), ElementsAre(3));
}

TEST(TokenRulesTest, GoOverTheWireWhole) {
  const TokenRules rules{
      .forced = {1, 2},
      .min_tokens = 3,
      .stop_tokens = {4},
      .allowed = {5, 6},
      .banned = {{7}, {8, 9}},
      .thought = {.max_tokens = 10, .begin = {11}, .end = {12}, .is_open = true}};
  WireWriter writer;
  put(rules, writer);
  const std::string bytes = writer.take();
  WireReader reader(bytes);
  const TokenRules again = get_token_rules(reader);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(again.forced, rules.forced);
  EXPECT_EQ(again.min_tokens, rules.min_tokens);
  EXPECT_EQ(again.stop_tokens, rules.stop_tokens);
  EXPECT_EQ(again.allowed, rules.allowed);
  EXPECT_EQ(again.banned, rules.banned);
  EXPECT_EQ(again.thought.max_tokens, 10);
  EXPECT_EQ(again.thought.begin, rules.thought.begin);
  EXPECT_EQ(again.thought.end, rules.thought.end);
  EXPECT_TRUE(again.thought.is_open);
}

}  // namespace
}  // namespace wideep::engine
