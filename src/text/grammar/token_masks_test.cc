// SPDX-License-Identifier: Apache-2.0
//
// Masks are held against the slow way, which follows each token byte by byte by a fresh automaton:
// along random walks, for random rules, counted loops and schemas, with one cache for all of a
// test's schemas. Limits are set so that each way to find a mask is taken, as small vocabularies
// would use only the first. A token that is missing makes a model write something else; one too
// many breaks the format, which nothing after it can mend.
#include "grammar/token_masks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "formats/json_parse.h"
#include "grammar/constraint.h"
#include "grammar/constraint_testing.h"
#include "grammar/json_schema.h"
#include "grammar/random_rules_testing.h"
#include "grammar/special_bytes.h"

namespace wideep::grammar {
namespace {

Grammar schema_grammar(const std::string& schema) {
  Rules rules;
  auto json = formats::parse_exact_json(schema, "schema");
  auto root = add_json_schema(*json, {}, &rules);
  EXPECT_TRUE(root.ok()) << root.status().message();
  return *build_grammar(rules, rules.add("root", *root));
}

// The slow way: each token's bytes, one token after the other, by an automaton that nothing was
// asked of before.
std::vector<int32_t> allowed_slowly(const Grammar& grammar, const Vocabulary& vocabulary,
                                    const std::string& text) {
  std::vector<int32_t> tokens;
  Automaton automaton(grammar);
  const auto after = [&](Automaton::State state, std::string_view bytes) {
    for (const char byte : bytes) state = automaton.next(state, static_cast<uint8_t>(byte));
    return state;
  };
  const Automaton::State here = after(automaton.start(), text);
  for (int32_t token = 0; token < vocabulary.size(); ++token) {
    const std::string_view bytes = vocabulary.text(token);
    if (!bytes.empty() && after(here, bytes) != Automaton::kDead) tokens.push_back(token);
  }
  return tokens;
}

std::vector<int32_t> allowed_fast(Automaton& automaton, TokenMasks& masks,
                                  const Vocabulary& vocabulary, const std::string& text) {
  Automaton::State state = automaton.start();
  for (const char byte : text) state = automaton.next(state, static_cast<uint8_t>(byte));
  TokenBits bits((static_cast<size_t>(vocabulary.size()) + 63) / 64);
  masks.allow_after(automaton, state, &bits);
  std::vector<int32_t> tokens;
  for (int32_t token = 0; token < vocabulary.size(); ++token) {
    if (is_allowed(bits, token)) tokens.push_back(token);
  }
  EXPECT_EQ(masks.any_after(automaton, state), !tokens.empty());
  return tokens;
}

// Walks through texts by random allowed tokens, and compares all masks on the way.
void compare(const Grammar& grammar, const Vocabulary& vocabulary, PartMasks& parts, unsigned seed,
             int texts, int max_tokens, const TokenMasks::Limits& limits = {}) {
  RandomRules random(seed);
  Automaton automaton(grammar);
  TokenMasks masks(vocabulary, parts, limits);
  for (int i = 0; i < texts; ++i) {
    std::string text;
    for (int step = 0; step < max_tokens; ++step) {
      const auto fast = allowed_fast(automaton, masks, vocabulary, text);
      ASSERT_EQ(fast, allowed_slowly(grammar, vocabulary, text)) << "seed " << seed << ": " << text;
      if (fast.empty()) break;
      text +=
          vocabulary.text(fast[static_cast<size_t>(random.below(static_cast<int>(fast.size())))]);
    }
  }
}

// By whole walks; by places in rules; by places and what follows them, which few tokens may leave.
TEST(TokenMasks, OfRandomRulesAreThoseOfEachToken) {
  const std::vector<TokenMasks::Limits> all_limits = {
      {},
      {.short_nodes = 0, .leaving = 1000, .leaving_there = 1000},
      {.short_nodes = 0, .leaving = 0, .leaving_there = 1000},
      {.short_nodes = 20, .leaving = 10, .leaving_there = 20}};
  for (const TokenMasks::Limits& limits : all_limits) {
    int compared = 0;
    for (unsigned seed = 0; seed < 300; ++seed) {
      RandomRules random(seed);
      auto grammar = build_grammar(random.make(), 0);
      if (!grammar.ok()) continue;
      const Vocabulary vocabulary(random.vocabulary(200), {});
      PartMasks parts;
      compare(*grammar, vocabulary, parts, seed, 3, 8, limits);
      ++compared;
    }
    EXPECT_GT(compared, 100);
  }
}

// Loops that are counted, with what they may leave to at each count.
TEST(TokenMasks, OfCountedLoopsAreThoseOfEachToken) {
  const Vocabulary vocabulary(RandomRules(3).vocabulary(400), {});
  std::vector<Expression> parts_of_loops = {
      byte_range('a', 'c'), sequence({text("a"), repeat(byte_range('b', 'c'), 0, kNoMax)}),
      choice({text("ab"), text("c"), text("abc")}),
      repeat(sequence({text("a"), repeat(text("b"), 1, 70)}), 1, 70)};
  for (const Expression& part : parts_of_loops) {
    for (const int max : {70, 73, 90, kNoMax}) {
      for (const char* const behind : {"d", "a", "cd"}) {
        Rules rules;
        const int root = rules.add("root", sequence({repeat(part, 66, max), text(behind)}));
        const auto grammar = build_grammar(rules, root);
        ASSERT_TRUE(grammar.ok()) << grammar.status().message();
        PartMasks parts;
        compare(*grammar, vocabulary, parts, 5, 1, 80, {.short_nodes = 0, .leaving = 0});
      }
    }
  }
}

// A vocabulary so large that whole walks are given up, and places in rules are used instead. All
// grammars share what they know of these.
TEST(TokenMasks, OfSchemasAreThoseOfEachToken) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const std::vector<std::string> pieces = {"a",    "b",     "1",  "23",       " ",   "\"",   "\",",
                                           "\": ", "{\"",   "}",  "}}",       "]",   ",",    "\\n",
                                           "é",    "\\u00", "e4", "name",     "[1",  "true", "\n",
                                           "  ",   "-",     ".5", "\xe2\x82", "\xac"};
  RandomRules random(1);
  while (tokens.size() < 12'000) {
    std::string token;
    for (int i = 1 + random.below(5); i > 0; --i) {
      token += pieces[static_cast<size_t>(random.below(static_cast<int>(pieces.size())))];
    }
    tokens.push_back(token);
  }
  const Vocabulary vocabulary(tokens, {});
  PartMasks parts;
  const std::vector<std::string> schemas = {
      R"({"type": "object", "properties": {"name": {"type": "string"}, "a": {"type": "number"}},
          "required": ["name"]})",
      R"({"type": "object"})",
      R"({"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 4},
          "maxItems": 3})",
      R"({"type": "string", "maxLength": 40})",
      R"({"type": "array", "items": {"anyOf": [{"type": "string", "pattern": "^[ab1]+$"},
          {"type": "integer", "minimum": 3, "maximum": 123}, {"type": "null"}]}})",
      R"({"$defs": {"tree": {"type": "object", "properties": {"name": {"type": "string"},
          "b": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["name", "b"]}},
          "$ref": "#/$defs/tree"})"};
  for (unsigned i = 0; i < schemas.size(); ++i) {
    compare(schema_grammar(schemas[i]), vocabulary, parts, i, 2, 6);
  }
  EXPECT_GT(parts.bytes(), 0u);
}

// Every prefix state of this pattern differs; the masks stay bounded and never empty.
TEST(TokenMasks, PatternsThatAreMadeToBeSlowAreBounded) {
  Rules rules;
  const int letter = rules.add("letter", byte_range('a', 'b'));
  std::vector<Expression> parts = {repeat(call(letter), 0, kNoMax), text("a")};
  for (int i = 0; i < 30; ++i) parts.push_back(call(rules.add("x", call(letter))));
  const int root = rules.add("root", sequence(parts));
  // Parts that are calls keep the rules small: no rule has many states, but the whole has.
  const auto grammar = build_grammar(rules, root);
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  std::vector<std::string> tokens = {"a", "b"};
  for (int bits = 0; bits < 1 << 14; ++bits) {
    std::string token;
    for (int i = 0; i < 14; ++i) token += (bits >> i & 1) != 0 ? 'a' : 'b';
    tokens.push_back(token);
  }
  const Vocabulary vocabulary(tokens, {});
  PartMasks masks_of_parts;
  Automaton automaton(*grammar);
  TokenMasks masks(vocabulary, masks_of_parts);
  RandomRules random(7);
  Automaton::State state = automaton.start();
  for (int step = 0; step < 40; ++step) {
    const int states_before = automaton.num_states();
    TokenBits bits((static_cast<size_t>(vocabulary.size()) + 63) / 64);
    masks.allow_after(automaton, state, &bits);
    ASSERT_TRUE(masks.any_after(automaton, state)) << step;
    // Any letter may follow, whatever came before.
    ASSERT_TRUE(is_allowed(bits, 0) && is_allowed(bits, 1)) << step;
    EXPECT_LT(automaton.num_states() - states_before, 4 * static_cast<int>(kMaxWalkStates)) << step;
    // Single letters between long tokens, so that places of all kinds are reached.
    const int32_t last = step % 2 == 0 ? vocabulary.size() : 2;
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < last; ++token) {
      if (is_allowed(bits, token)) allowed.push_back(token);
    }
    const auto chosen = static_cast<size_t>(random.below(static_cast<int>(allowed.size())));
    for (const char byte : vocabulary.text(allowed[chosen])) {
      state = automaton.next(state, static_cast<uint8_t>(byte));
    }
    ASSERT_NE(state, Automaton::kDead) << step;
  }
}

TEST(Constraint, EndsWhereTheTextIsWhole) {
  Rules rules;
  const int root = rules.add("root", choice({text("ab"), text("abc")}));
  // 4: the end token, with a text that grammars could match if it were a text.
  const Vocabulary vocabulary({"a", "b", "c", "ab", "c"}, {4});
  PartMasks parts;
  Constraint constraint(*build_grammar(rules, root), vocabulary, parts);
  TokenBits bits;
  const auto allowed = [&](std::vector<int32_t> generated) {
    Progress progress;
    constraint.follow(generated, &progress);
    constraint.find_allowed(progress, 70, &bits);
    std::vector<int32_t> tokens;
    for (int32_t token = 0; token < 70; ++token) {
      EXPECT_EQ(is_allowed(bits, token), constraint.allows(progress, token)) << token;
      if (is_allowed(bits, token)) tokens.push_back(token);
    }
    return tokens;
  };
  EXPECT_EQ(allowed({}), (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(allowed({0}), (std::vector<int32_t>{1}));
  EXPECT_EQ(allowed({3}), (std::vector<int32_t>{2, 4}));
  EXPECT_EQ(allowed({0, 1, 2}), (std::vector<int32_t>{4}));
  EXPECT_EQ(allowed({3, 4}), (std::vector<int32_t>{4}));
}

// The vocabulary cannot spell the text: the answer ends.
TEST(Constraint, EndsWhereNothingCanFollow) {
  Rules rules;
  const int root = rules.add("root", text("az"));
  const Vocabulary vocabulary({"a", "b", "<end>"}, {2});
  PartMasks parts;
  Constraint constraint(*build_grammar(rules, root), vocabulary, parts);
  Progress progress;
  constraint.follow(std::vector<int32_t>{0}, &progress);
  TokenBits bits;
  constraint.find_allowed(progress, 3, &bits);
  EXPECT_EQ(bits[0], 4u);
  EXPECT_TRUE(constraint.allows(progress, 2));
}

TEST(Constraint, SpecialTokensAreNoText) {
  Rules rules;
  const int root =
      rules.add("root", sequence({marker("<call>"), text_without("<"), special_token("<end>")}));
  const Vocabulary vocabulary(
      {"<", "call>", special_bytes("<call>"), "x", special_bytes("<end>"), "<end>", "\xff"}, {});
  PartMasks parts;
  Constraint constraint(*build_grammar(rules, root), vocabulary, parts);
  Progress progress;
  const auto allowed = [&](std::vector<int32_t> generated) {
    constraint.follow(generated, &progress);
    TokenBits bits;
    constraint.find_allowed(progress, 7, &bits);
    return bits[0];
  };
  EXPECT_EQ(allowed({}), 0b101u);     // spelled out or not
  EXPECT_EQ(allowed({2}), 0b11010u);  // "call>", "x", the special <end>
  progress = {};
  EXPECT_EQ(allowed({0, 1, 3}), 0b11010u);
}

}  // namespace
}  // namespace wideep::grammar
