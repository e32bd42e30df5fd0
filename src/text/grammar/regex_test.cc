// SPDX-License-Identifier: Apache-2.0
//
// Random patterns, some with look-ahead, must match just those random texts that PCRE2 matches.
// What dialects read differently is refused, or the part that all have in common is taken, and
// tables hold which: a client checks the text by its own engine, and that may be any. Patterns
// whose automata have too many states must be refused when they come, because a client chooses
// them.
#include "grammar/regex.h"

#include <gmock/gmock.h>
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

std::string error_of(const std::string& pattern) {
  const auto body = parse_regex(pattern);
  if (!body.ok()) return body.status().message();
  Rules rules;
  return build_grammar(rules, rules.add("pattern", *body)).status().message();
}

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
  EXPECT_EQ(error_of("a(?<=b)"),
            "at byte 3: look-behind, flags and comments, (?…), are not supported");
  EXPECT_EQ(error_of("(?i)a"),
            "at byte 2: look-behind, flags and comments, (?…), are not supported");
  const std::string middle =
      "look-ahead is not supported in a group that is repeated or that more follows";
  EXPECT_EQ(error_of("((?=a)b)+"), "at byte 1: " + middle);
  EXPECT_EQ(error_of("((?=a)b)c"), "at byte 1: " + middle);
  EXPECT_EQ(error_of("(?=a)*b"), "at byte 5: a repeat of a look-ahead");
  EXPECT_EQ(error_of("(?=a)b"), "rule 'pattern': no text matches it");
  EXPECT_EQ(error_of(R"((a)\1)"), "at byte 4: references to groups are not supported");
  EXPECT_EQ(error_of(R"(\bab)"), "at byte 1: \\b and \\B are not supported");
  EXPECT_EQ(error_of(R"(\p{L})"), "at byte 1: \\p{…} is not supported");
  EXPECT_EQ(error_of("[b-a]"), "at byte 4: expected a range from a character to a later one");
  EXPECT_EQ(error_of("[a"), "at byte 2: a [ without its ]");
  EXPECT_EQ(error_of("a^b"),
            "at byte 1: ^ and $ are known only at the ends of the pattern and of its alternatives");
  EXPECT_EQ(error_of("a{3,2}"), "at byte 6: expected {m,n} with m not above n");
  EXPECT_EQ(error_of("a{2}{3}"),
            "at byte 4: a repeat of a repeat; possessive ones are not supported");
  EXPECT_EQ(error_of("{3}a"), "at byte 0: nothing to repeat");
  EXPECT_EQ(error_of("[^\\s\\S]"), "rule 'pattern': no text matches it");
  EXPECT_EQ(error_of("\xff"), "at byte 0: is not UTF-8");
  EXPECT_EQ(error_of(std::string(1000, '(')), "at byte 128: nested more than 128 deep");
}

// Python, ECMA-262, PCRE2, Go and Java do not agree on these.
TEST(Regex, RefusesWhatDialectsReadDifferently) {
  const std::string bounds =
      ": write {m,n} with both numbers and without spaces, or \\{ for the text";
  EXPECT_EQ(error_of("a{,3}"), "at byte 1: dialects differ in {,3}" + bounds);
  EXPECT_EQ(error_of("a{,}"), "at byte 1: dialects differ in {,}" + bounds);
  EXPECT_EQ(error_of("a{ 1, 3 }"), "at byte 1: dialects differ in { 1, 3 }" + bounds);
  EXPECT_EQ(error_of("a{2000000000}"), "at byte 1: more than 9 digits of a number of repeats");
  EXPECT_EQ(error_of("a{99999999999999999999,}"),
            "at byte 1: more than 9 digits of a number of repeats");
  EXPECT_EQ(error_of("a{2000000}"), "at byte 10: more than 1000000 repeats");
  const std::string posix = "POSIX classes, as [:alpha:], are not supported: write a-zA-Z, or \\[";
  EXPECT_EQ(error_of("[[:alpha:]]"), "at byte 1: " + posix);
  EXPECT_EQ(error_of("[^x[:digit:]]"), "at byte 3: " + posix);
  EXPECT_EQ(error_of("[[.a.]]"), "at byte 1: " + posix);
  EXPECT_EQ(error_of("\\012"),
            "at byte 1: \\0 with digits is not supported: write \\x and two of them");
  // What all of them read alike.
  EXPECT_TRUE(matches("a{b}", "a{b}"));
  EXPECT_TRUE(matches("a{}", "a{}"));
  EXPECT_TRUE(matches("a\\{,3}", "a{,3}"));
  EXPECT_TRUE(matches("[x[]+", "x["));
}

// White space is not the same in all of them: a class has what all of them have in it.
TEST(Regex, ClassesOfSeveralDialects) {
  EXPECT_FALSE(matches("\\s", "\u00a0"));
  EXPECT_FALSE(matches("\\S", "\u00a0"));
  EXPECT_FALSE(matches("[^\\s]", "\u00a0"));
  EXPECT_FALSE(matches("[^\\S]", "\u00a0"));
  EXPECT_FALSE(matches("[\\sa]", "\u0085"));
  EXPECT_FALSE(matches("[^\\Sa]", "\ufeff"));
  EXPECT_TRUE(matches("[\\s\\S]", "\u00a0"));
  EXPECT_TRUE(matches("[\\s\u00a0]", "\u00a0"));
  EXPECT_TRUE(matches("[^\\S]", " "));
  EXPECT_TRUE(matches("[^\\D]", "7"));
  EXPECT_TRUE(matches("[\\w-]+", "a-b"));
}

TEST(Regex, LookAhead) {
  const RegexOptions searches{.searches = true};
  // Numbers as pydantic has them: no text of signs and points alone.
  const std::string decimal = "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$";
  for (const char* text : {"1", "-1.5", "+0.", ".5", "00012.50"}) {
    EXPECT_TRUE(matches(decimal, text, searches)) << text;
    EXPECT_TRUE(matches(decimal, text)) << text;
  }
  for (const char* text : {"", "-", "+.", ".", "1.5.", "a", "-+1"}) {
    EXPECT_FALSE(matches(decimal, text, searches)) << text;
  }
  // With max_digits and decimal_places.
  const std::string digits =
      "^(?!^[-+.]*$)[+-]?0*(?:\\d{0,3}|(?=[\\d.]{1,6}0*$)\\d{0,3}\\.\\d{0,2}0*$)";
  EXPECT_TRUE(matches(digits, "123.45", searches));
  EXPECT_TRUE(matches(digits, "0.5", searches));
  EXPECT_TRUE(matches(digits, "123.456", searches));  // as re.search does, by its first part
  EXPECT_FALSE(matches(digits, "123.456"));
  EXPECT_TRUE(matches(digits, "-123.450000"));
  EXPECT_FALSE(matches(digits, "-."));
  const std::string password = "^(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]{4,}$";
  EXPECT_TRUE(matches(password, "aB3d", searches));
  EXPECT_FALSE(matches(password, "ab3d", searches));
  EXPECT_FALSE(matches(password, "aBcd", searches));
  EXPECT_FALSE(matches(password, "B3", searches));
  EXPECT_TRUE(matches("^(?!admin$|root$)\\w+$", "roots", searches));
  EXPECT_FALSE(matches("^(?!admin$|root$)\\w+$", "root", searches));
  EXPECT_TRUE(matches("^a(?!b)", "ac", searches));
  EXPECT_TRUE(matches("^a(?!b)", "a", searches));
  EXPECT_FALSE(matches("^a(?!b)", "ab", searches));
  EXPECT_TRUE(matches("a(?!b)", "abac", searches));
  EXPECT_FALSE(matches("a(?!b)", "abab", searches));
  EXPECT_TRUE(matches("(?!a(?!b))..", "ab"));
  EXPECT_FALSE(matches("(?!a(?!b))..", "ac"));
}

TEST(Regex, LookAheadIsBounded) {
  std::string many;
  for (int i = 0; i < 40; ++i) many += "(?=.*" + std::string(1, "abcdefghij"[i % 10]) + ")";
  EXPECT_EQ(error_of(many + ".*"), "at byte 224: more than 32 look-aheads");
  // The number of states is a power of the number of parts.
  EXPECT_THAT(error_of(many.substr(0, 7 * 30) + "[^k]*k"), testing::HasSubstr("too many states"));
  EXPECT_THAT(error_of("(?=.*(a|b)*a(a|b){25})(?!.*(a|b)*b(a|b){25}).*"),
              testing::HasSubstr("too many states"));
}

TEST(Regex, LargePatternsAreBounded) {
  const auto build = [](const std::string& pattern) {
    const auto body = parse_regex(pattern);
    if (!body.ok()) return body.status();
    Rules rules;
    return build_grammar(rules, rules.add("pattern", *body)).status();
  };
  // Counted, not written out: so the last one has few states as well, where all are found at once.
  EXPECT_TRUE(build("((([a-z]{1,1000}){1,1000}){1,1000})").ok());
  EXPECT_TRUE(build("[a-z]{100000}").ok());
  EXPECT_TRUE(build("(x+x+)+y(((a|b)*a(a|b){30})|c)").ok());
  // Small enough to be written out: 2^21 states.
  EXPECT_THAT(build("(a|b)*a(a|b){21}").message(), testing::HasSubstr("too many states"));
  EXPECT_THAT(build("(x+x+)+y(((a|b)*a(a|b){20})|c)").message(),
              testing::HasSubstr("too many states"));
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
  std::string with_look_ahead() {
    std::string pattern = below(2) == 0 ? make(1) : "";
    for (int i = 1 + below(2); i > 0; --i) {
      pattern += below(2) == 0 ? "(?=" : "(?!";
      pattern += make(2) + (below(2) == 0 ? "$)" : ")");
    }
    const std::string rest = below(2) == 0 ? "[abc1_é-]*" : "(?:" + make(2) + ")*";
    return below(3) == 0 ? pattern + "(?:" + make(1) + "|(?!" + make(1) + ")" + rest + ")"
                         : pattern + rest;
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
  int whole = 0, with_look_ahead = 0;
  for (unsigned seed = 0; seed < 700; ++seed) {
    RandomPattern random(seed);
    const bool looks_ahead = seed >= 500;
    const std::string pattern = looks_ahead ? random.with_look_ahead() : random.make(4);
    int error = 0;
    PCRE2_SIZE at = 0;
    const std::string anchored = "^(?:" + pattern + ")\\z";
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(anchored.data()), anchored.size(),
                                     PCRE2_UTF, &error, &at, nullptr);
    ASSERT_NE(code, nullptr) << anchored;
    if (looks_ahead && error_of(pattern) == "rule 'pattern': no text matches it") {
      pcre2_code_free(code);
      continue;
    }
    Automaton automaton(grammar_of(pattern));
    for (int i = 0; i < 40; ++i) {
      const std::string text = random.text();
      const bool expected = pcre_matches(code, text);
      ASSERT_EQ(match(automaton, text) == Match::kWhole, expected)
          << "seed " << seed << ": " << pattern << " and " << text;
      whole += expected ? 1 : 0;
      with_look_ahead += looks_ahead && expected ? 1 : 0;
    }
    pcre2_code_free(code);
  }
  EXPECT_GT(whole, 500);
  EXPECT_GT(with_look_ahead, 100);
}

}  // namespace
}  // namespace wideep::grammar
