// SPDX-License-Identifier: Apache-2.0
#include "grammar/regex.h"

#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <random>
#include <string>
#include <vector>

#include "grammar/constraint_testing.h"
#include "grammar/json_text.h"

namespace wideep::grammar {
namespace {

Grammar grammar_of(const std::string& pattern, const RegexOptions& options = {}) {
  const auto body = parse_regex(pattern, options);
  EXPECT_TRUE(body.ok()) << pattern << ": " << body.status().message();
  Rules rules;
  auto grammar = build_grammar(rules, rules.add("pattern", *body));
  EXPECT_TRUE(grammar.ok()) << pattern << ": " << grammar.status().message();
  return std::move(*grammar);
}

bool matches(const std::string& pattern, std::string_view text, const RegexOptions& options = {}) {
  return match(grammar_of(pattern, options), text) == Match::kWhole;
}

std::string error_of(const std::string& pattern) { return parse_regex(pattern).status().message(); }

TEST(Regex, TakesWhatItSays) {
  EXPECT_TRUE(matches("a(b|cd)*e?", "abcdb"));
  EXPECT_FALSE(matches("a(b|cd)*e?", "abcb"));
  EXPECT_TRUE(matches(R"(\d{3}-\d{4})", "555-1234"));
  EXPECT_FALSE(matches(R"(\d{3}-\d{4})", "555-123"));
  EXPECT_TRUE(matches(R"([^a-c\]]+)", "xyz[é€\xf0\x9f\x98\x80"));
  EXPECT_FALSE(matches(R"([^a-c\]]+)", "x]"));
  EXPECT_TRUE(matches("[ä-ü]{2}", "öä"));
  EXPECT_TRUE(matches("^(?P<year>19|20)\\d\\d$", "1999"));
  EXPECT_TRUE(matches("a{2", "a{2"));
  EXPECT_TRUE(matches(R"(\x41\u00e4\u{1F600}\t\.)", "Aä\xf0\x9f\x98\x80\t."));
  EXPECT_TRUE(matches("a+?b*?", "aab"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches(".", "\n"));
}

TEST(Regex, SearchesWhereNothingIsAnchored) {
  const RegexOptions searches{.searches = true};
  EXPECT_TRUE(matches("b", "abc", searches));
  EXPECT_TRUE(matches("^a|c$", "axx", searches));
  EXPECT_TRUE(matches("^a|c$", "xxc", searches));
  EXPECT_FALSE(matches("^a|c$", "xax", searches));
  EXPECT_TRUE(matches("(^a|c$)", "xxc", searches));
  EXPECT_FALSE(matches("^[0-9]+$", "12x", searches));
}

TEST(Regex, WritesCharactersAsJsonDoes) {
  const RegexOptions json{.characters = JsonText::characters};
  EXPECT_TRUE(matches("a\"\\\\\n", "a\\\"\\\\\\n", json));
  EXPECT_FALSE(matches("a\"", "a\"", json));
  EXPECT_TRUE(matches("[^b]", "\\u0001", json));
}

TEST(Regex, RefusesByName) {
  EXPECT_EQ(error_of("ab)"), "at byte 2: a ) without its (");
  EXPECT_EQ(error_of("(ab"), "at byte 3: expected )");
  EXPECT_EQ(error_of("a**"), "at byte 2: a repeat of a repeat; possessive ones are not supported");
  EXPECT_EQ(error_of("*a"), "at byte 0: nothing to repeat");
  EXPECT_EQ(error_of("a(?=b)"),
            "at byte 3: look-around, flags and comments, (?…), are not supported");
  EXPECT_EQ(error_of(R"((a)\1)"), "at byte 4: references to groups are not supported");
  EXPECT_EQ(error_of(R"(\bab)"), "at byte 1: \\b and \\B are not supported");
  EXPECT_EQ(error_of(R"(\p{L})"), "at byte 1: \\p{…} is not supported");
  EXPECT_EQ(error_of("[b-a]"), "at byte 4: expected a range from a character to a later one");
  EXPECT_EQ(error_of("[a"), "at byte 2: a [ without its ]");
  EXPECT_EQ(error_of("a^b"),
            "at byte 1: ^ and $ are known only at the ends of the pattern and of its alternatives");
  EXPECT_EQ(error_of("a{3,2}"), "at byte 6: expected {m,n} with m not above n");
  EXPECT_EQ(error_of("\xff"), "at byte 0: is not UTF-8");
  EXPECT_EQ(error_of(std::string(1000, '(')), "at byte 128: nested more than 128 deep");
}

TEST(Regex, LargePatternsAreBounded) {
  const auto build = [](const std::string& pattern) {
    const auto body = parse_regex(pattern);
    if (!body.ok()) return body.status();
    Rules rules;
    return build_grammar(rules, rules.add("pattern", *body)).status();
  };
  // Counted, not written out.
  EXPECT_TRUE(build("((([a-z]{1,1000}){1,1000}){1,1000})").ok());
  EXPECT_TRUE(build("[a-z]{100000}").ok());
  EXPECT_FALSE(build("(a|b)*a(a|b){21}").ok() && build("(x+x+)+y(((a|b)*a(a|b){30})|c)").ok());
}

// ---- PCRE2 says what matches ----

bool pcre_matches(pcre2_code* code, const std::string& text) {
  pcre2_match_data* data = pcre2_match_data_create_from_pattern(code, nullptr);
  const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                                data, nullptr);
  pcre2_match_data_free(data);
  return found >= 0;
}

class RandomPattern {
 public:
  explicit RandomPattern(unsigned seed) : rng_(seed) {}

  std::string make(int depth) {
    const int kind = depth == 0 ? below(3) : below(8);
    if (kind == 0) return std::string(1, static_cast<char>('a' + below(3)));
    if (kind == 1) return below(2) == 0 ? "[ab]" : "[^b\\]]";
    if (kind == 2) return below(3) == 0 ? "\\d" : below(2) == 0 ? "[a-cé]" : "\\w";
    // One after the other: compilers differ in the order of an expression's parts.
    const std::string first = make(depth - 1);
    if (kind == 4) return "(" + first + ")" + quantifier();
    const std::string second = make(depth - 1);
    if (kind == 3) return first + "|" + second;
    return kind == 5 ? "(?:" + first + "|)" + second : first + second;
  }
  std::string text() {
    const std::vector<std::string> letters = {"a", "b", "c", "1", "_", "é", "-"};
    std::string text;
    for (int i = below(9); i > 0; --i) text += letters[static_cast<size_t>(below(7))];
    return text;
  }

 private:
  int below(int limit) { return static_cast<int>(rng_() % static_cast<unsigned>(limit)); }
  std::string quantifier() {
    constexpr const char* kAll[] = {"*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,40}", ""};
    return kAll[below(8)];
  }
  std::mt19937 rng_;
};

TEST(Regex, RandomPatternsMatchAsWithPcre) {
  int whole = 0;
  for (unsigned seed = 0; seed < 500; ++seed) {
    RandomPattern random(seed);
    const std::string pattern = random.make(4);
    int error = 0;
    PCRE2_SIZE at = 0;
    const std::string anchored = "^(?:" + pattern + ")\\z";
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(anchored.data()), anchored.size(),
                                     PCRE2_UTF, &error, &at, nullptr);
    ASSERT_NE(code, nullptr) << anchored;
    Automaton automaton(grammar_of(pattern));
    for (int i = 0; i < 40; ++i) {
      const std::string text = random.text();
      const bool expected = pcre_matches(code, text);
      ASSERT_EQ(match(automaton, text) == Match::kWhole, expected)
          << "seed " << seed << ": " << pattern << " and " << text;
      whole += expected ? 1 : 0;
    }
    pcre2_code_free(code);
  }
  EXPECT_GT(whole, 500);
}

}  // namespace
}  // namespace wideep::grammar
