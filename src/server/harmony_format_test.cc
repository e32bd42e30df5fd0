// SPDX-License-Identifier: Apache-2.0
#include "server/harmony_format.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/constraint_testing.h"
#include "grammar/special_bytes.h"

namespace wideep::server {
namespace {

// Names of special tokens become what stands for them in a text.
std::string with_tokens(std::string text) {
  for (const std::string name :
       {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"}) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      if (at > 0 && text[at - 1] == grammar::kSpecialBegin) continue;
      text.replace(at, name.size(), grammar::special_bytes(name));
    }
  }
  return text;
}

TEST(HarmonyFormat, TheFinalMessageHasTheFormat) {
  grammar::Rules rules;
  const auto answer = in_harmony(grammar::text("{}"));
  const auto grammar = grammar::build_grammar(rules, rules.add("answer", answer));
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const auto match = [&](const std::string& text) {
    return grammar::match(*grammar, with_tokens(text));
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
