// SPDX-License-Identifier: Apache-2.0
//
// Random rules and words are held against a matcher without automata, which reads the expressions
// themselves; enough words must match, and enough begin one. Hand-made grammars hold the number of
// states and items, where naive constructions grow with the text or with the number of derivations.
// A failure is a text that the format allows and the model can never write, or one that it must not
// and does.
#include "grammar/automaton.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/constraint_testing.h"
#include "grammar/ebnf.h"
#include "grammar/random_rules_testing.h"
#include "grammar/reference_testing.h"

namespace wideep::grammar {
namespace {

Grammar grammar_of(std::string_view ebnf) {
  Rules rules;
  const auto root = parse_ebnf(ebnf, &rules);
  EXPECT_TRUE(root.ok()) << root.status().message();
  auto grammar = build_grammar(rules, *root);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  return std::move(*grammar);
}

std::string error_of(std::string_view ebnf) {
  Rules rules;
  const auto root = parse_ebnf(ebnf, &rules);
  if (!root.ok()) return root.status().message();
  return build_grammar(rules, *root).status().message();
}

TEST(Automaton, FollowsRulesThatCallThemselves) {
  Automaton automaton(grammar_of("root ::= \"(\" root* \")\""));
  EXPECT_EQ(match(automaton, "(()(()))"), Match::kWhole);
  EXPECT_EQ(match(automaton, "(()(())"), Match::kBegins);
  EXPECT_EQ(match(automaton, "(()))"), Match::kNone);
  std::string deep(10'000, '(');
  EXPECT_EQ(match(automaton, deep), Match::kBegins);
  deep.append(10'000, ')');
  EXPECT_EQ(match(automaton, deep), Match::kWhole);
  EXPECT_EQ(match(automaton, deep + ")"), Match::kNone);
}

// Each bracket may have been opened for two reasons: 2^n derivations, states of a few items.
TEST(Automaton, ManyDerivationsShareTheirCalls) {
  Automaton automaton(grammar_of(R"gbnf(
      root ::= term "+" root | term "-" root | term
      term ::= "(" root ")" | [0-9]+)gbnf"));
  const std::string deep = std::string(60, '(') + "1" + std::string(60, ')');
  EXPECT_EQ(match(automaton, deep + "-1"), Match::kWhole);
  for (Automaton::State state = 1; state < automaton.num_states(); ++state) {
    EXPECT_LE(automaton.items(state).size(), 4u);
  }
}

// A rule that ends with itself needs no stack.
TEST(Automaton, RepetitionByCallsNeedsNoMoreStates) {
  Automaton automaton(grammar_of("root ::= \"a\" root | \"a\""));
  EXPECT_EQ(match(automaton, std::string(5'000, 'a')), Match::kWhole);
  EXPECT_LT(automaton.num_states(), 8);
}

TEST(Automaton, CountsRepetitions) {
  Automaton automaton(grammar_of("root ::= item{2,500} item ::= [a-z] \";\""));
  const auto items = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "x;";
    return text;
  };
  EXPECT_EQ(match(automaton, items(1)), Match::kBegins);
  EXPECT_EQ(match(automaton, items(2)), Match::kWhole);
  EXPECT_EQ(match(automaton, items(500)), Match::kWhole);
  EXPECT_EQ(match(automaton, items(501)), Match::kNone);
}

TEST(Automaton, RefusesWhatHasNoMeaning) {
  EXPECT_EQ(error_of("root ::= root \"a\" | \"b\""),
            "rule 'root' begins with itself (left recursion); write it as a repetition");
  EXPECT_EQ(error_of("root ::= a? b \"x\"\na ::= \"a\"\nb ::= root | \"b\"").substr(0, 11),
            "rule 'root'");
  EXPECT_EQ(error_of("root ::= \"a\" root"), "rule 'root': no text matches it");
  EXPECT_EQ(error_of("root ::= \"a\" b"), "there is no rule 'b', which others name");
  EXPECT_EQ(error_of("a ::= \"a\""), "there is no rule 'root'");
}

TEST(Automaton, TooManyStatesAreRefused) {
  EXPECT_NE(error_of("root ::= [ab]* \"a\" [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] "
                     "[ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab] [ab]")
                .find("too many states"),
            std::string::npos);
}

// The expected text is worked out by reading expressions, without automata.
TEST(Automaton, RandomRulesMatchWhatTheySay) {
  int whole = 0, begins = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    RandomRules random(seed);
    const Rules rules = random.make();
    auto grammar = build_grammar(rules, 0);
    if (!grammar.ok()) continue;  // left recursion, or nothing matches
    Automaton automaton(std::move(*grammar));
    for (int i = 0; i < 60; ++i) {
      const std::string text = random.word(12);
      const Match expected = SlowMatcher(rules, 0, text).match();
      ASSERT_EQ(match(automaton, text), expected) << "seed " << seed << " text " << text;
      whole += expected == Match::kWhole ? 1 : 0;
      begins += expected == Match::kBegins ? 1 : 0;
    }
  }
  EXPECT_GT(whole, 1000);
  EXPECT_GT(begins, 1000);
}

TEST(Automaton, TextWithoutAnEnd) {
  for (const char* end : {"a", "ab", "aab", "aabcab", "abbb"}) {
    Rules rules;
    const int root = rules.add("root", sequence({text_without(end), text(end)}));
    const auto grammar = build_grammar(rules, root);
    ASSERT_TRUE(grammar.ok());
    Automaton automaton(*grammar);
    RandomRules random(7);
    for (int i = 0; i < 500; ++i) {
      const std::string text = random.word(10);
      const size_t found = text.find(end);
      const bool is_whole =
          found != std::string::npos && found + std::string(end).size() == text.size();
      const Match got = match(automaton, text);
      EXPECT_EQ(got == Match::kWhole, is_whole) << end << " in " << text;
      if (found == std::string::npos) {
        EXPECT_EQ(got, Match::kBegins) << end << " in " << text;
      }
    }
  }
  Rules rules;
  const int root = rules.add("root", sequence({text_without("</x>"), text("</x>")}));
  const Grammar grammar = *build_grammar(rules, root);
  EXPECT_EQ(match(grammar, "ä<€</\xf0\x9f\x98\x80</x>"), Match::kWhole);
  EXPECT_EQ(match(grammar, "\xc3("), Match::kNone);
  EXPECT_EQ(match(grammar, "\xed\xa0\x80"), Match::kNone);
}

TEST(Automaton, TravelsAsBytes) {
  const Grammar grammar = grammar_of("root ::= item{2,500} item ::= [a-z] \";\"");
  const Grammar again = Grammar::decode(grammar.encode());
  EXPECT_EQ(again.encode(), grammar.encode());
  EXPECT_EQ(match(again, "x;y;"), Match::kWhole);
}

}  // namespace
}  // namespace wideep::grammar
