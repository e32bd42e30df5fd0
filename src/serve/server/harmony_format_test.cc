// SPDX-License-Identifier: Apache-2.0
#include "server/harmony_format.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/constraint_testing.h"
#include "server/harmony_testing.h"

namespace wideep::server {
namespace {

TEST(HarmonyFormat, TheFinalMessageHasTheFormat) {
  grammar::Rules rules;
  const auto answer = in_harmony(grammar::text("{}"));
  const auto grammar = grammar::build_grammar(rules, rules.add("answer", answer));
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const auto match = [&](const std::string& text) {
    return grammar::match(*grammar, with_special_tokens(text));
  };
  EXPECT_EQ(match("<|channel|>final<|message|>{}"), grammar::Match::kWhole);
  EXPECT_EQ(match("<|channel|>final <|constrain|>json<|message|>{}"), grammar::Match::kWhole);
  const std::string analysis = "<|channel|>analysis<|message|>{\n € hm<|end|><|start|>assistant";
  EXPECT_EQ(match(analysis + "<|channel|>final<|message|>{}"), grammar::Match::kWhole);
  EXPECT_EQ(match(analysis), grammar::Match::kBegins);
  EXPECT_EQ(match("{}"), grammar::Match::kNone);
  EXPECT_EQ(match(analysis + "<|channel|>commentary"), grammar::Match::kNone);
  EXPECT_EQ(match("<|channel|>final<|message|>{}<|end|>"), grammar::Match::kNone);
}

}  // namespace
}  // namespace wideep::server
