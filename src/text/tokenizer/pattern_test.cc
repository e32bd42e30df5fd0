// SPDX-License-Identifier: Apache-2.0
//
// Files' expressions are written for Oniguruma, and PCRE2 runs them. So every code point is held
// against Oniguruma's tables in all 28 categories, and what the two read differently is either held
// by example or refused by name. Normal forms are compared with ICU's on runs of marks. A failure
// is a text that is cut elsewhere than in training. Long runs must take linear time: a prompt may
// be one of them.
#include "tokenizer/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unicode/normalizer2.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/work_timer.h"
#include "formats/files.h"
#include "formats/json_parse.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pattern_syntax.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> split(const Result<Pattern>& pattern, const std::string& text) {
  EXPECT_TRUE(pattern.ok()) << pattern.status().message();
  MatchScratch scratch;
  std::vector<std::string_view> pieces;
  if (pattern.ok()) pattern->split(text, &scratch, &pieces);
  return {pieces.begin(), pieces.end()};
}

std::vector<std::string> split(std::string_view regex, const std::string& text) {
  return split(Pattern::from_regex(regex), text);
}

TEST(PatternTest, IsolatesMatches) {
  EXPECT_THAT(split("\\p{N}{1,3}", "in 2024!"), ElementsAre("in ", "202", "4", "!"));
  EXPECT_THAT(split("b", "abba"), ElementsAre("a", "b", "b", "a"));
  EXPECT_THAT(split("b", "xyz"), ElementsAre("xyz"));
  EXPECT_THAT(split("b", ""), ElementsAre());
  EXPECT_THAT(split(Pattern::from_literal("a.c"), "abca.c"), ElementsAre("abc", "a.c"));
}

TEST(PatternTest, LookAheadEndsAtTheEndOfThePiece) {
  EXPECT_THAT(split("\\s+(?!\\S)|\\s+", "a   b  "), ElementsAre("a", "  ", " ", "b", "  "));
}

// The following tests cover differences between Oniguruma and PCRE2.
TEST(PatternTest, WhiteSpaceIsTheUnicodeProperty) {
  EXPECT_THAT(split("\\s", "a\u180Eb"), ElementsAre("a\u180Eb"));  // PCRE2's own \s takes it
  EXPECT_THAT(split("\\s", "a\u0085b\u000Bc\u3000"),
              ElementsAre("a", "\u0085", "b", "\u000B", "c", "\u3000"));
  EXPECT_THAT(split("[^\\s]+", "a\u2028b\u200Bc"), ElementsAre("a", "\u2028", "b\u200Bc"));
}

TEST(PatternTest, IgnoresCaseBeyondAscii) {
  EXPECT_THAT(split("(?i:'s|'k)", "'S'\u017F'\u212A's"),
              ElementsAre("'S", "'\u017F", "'\u212A", "'s"));
  EXPECT_THAT(split("(?i:'s)|x", "'SXx"), ElementsAre("'S", "X", "x"));
}

std::string all_code_points() {
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c >= 0xE000) append_utf8(c, &text);
  }
  return text;
}

std::vector<char32_t> matched_ranges(const Pattern& pattern) {
  static const std::string text = all_code_points();
  MatchScratch scratch;
  std::vector<std::string_view> pieces;
  pattern.split(text, &scratch, &pieces);
  std::vector<char32_t> ranges;
  for (const std::string_view piece : pieces) {
    // Matches are single code points. A gap may be a single code point too, but does not match.
    std::vector<std::string_view> again;
    if (piece.size() > 4 || piece.size() != first_unit(piece).bytes) continue;
    pattern.split(std::string(piece) + "\x01", &scratch, &again);
    if (again.size() != 2) continue;
    const char32_t c = first_code_point(piece);
    if (!ranges.empty() && ranges.back() + 1 == c) {
      ranges.back() = c;
    } else {
      ranges.insert(ranges.end(), {c, c});
    }
  }
  return ranges;
}

// Compares every code point in every category with the library's tables.
TEST(PatternTest, CategoriesEqualOnigurumas) {
  const auto text =
      formats::read_file(WIDEEP_SOURCE_DIR "/tests/golden/tokenizers/categories.json");
  ASSERT_TRUE(text.ok()) << text.status().message();
  const auto categories = formats::parse_json(*text, "categories.json");
  ASSERT_TRUE(categories.ok()) << categories.status().message();
  ASSERT_EQ(categories->size(), 28u);
  for (const auto& [name, expected] : categories->items()) {
    const Result<Pattern> pattern = Pattern::from_regex("\\p{" + name + "}");
    ASSERT_TRUE(pattern.ok()) << pattern.status().message();
    const auto ranges = expected.get<std::vector<uint32_t>>();
    EXPECT_EQ(matched_ranges(*pattern), std::vector<char32_t>(ranges.begin(), ranges.end()))
        << name;
  }
}

TEST(PatternTest, NegatedCategoryIsTheComplement) {
  // U+16D40 is a letter of Unicode 16.
  EXPECT_THAT(split("\\P{L}+", "ab12\U00016D40.c"),
              ElementsAre("ab", "12", "\U00016D40", ".", "c"));
  EXPECT_THAT(split("[^\\p{L}]+", "1\U00016D40."), ElementsAre("1", "\U00016D40", "."));
}

TEST(PatternTest, ClassesMayBeNestedAndIntersected) {
  EXPECT_THAT(split("[a-f&&[^c]]+", "abcdefg"), ElementsAre("ab", "c", "def", "g"));
  EXPECT_THAT(split("[^a-f&&[^c]]+", "abcxyz"), ElementsAre("ab", "cxyz"));
  EXPECT_THAT(split("[\\p{L}&&[^\\p{Han}]]+", "ab\u4E2D\u6587cd"),
              ElementsAre("ab", "\u4E2D\u6587", "cd"));
  EXPECT_THAT(split("[x[0-3]\\-]+", "x-14"), ElementsAre("x-1", "4"));
  EXPECT_THAT(split("[\\P{L}a]+", "1ab"), ElementsAre("1a", "b"));
  EXPECT_THAT(split("\\d", "a1\u0663"), ElementsAre("a", "1", "\u0663"));
}

TEST(PatternTest, DigitsInThreesFromTheRight) {
  const std::string threes = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";
  EXPECT_THAT(split(threes, "ab1234567 12"), ElementsAre("ab", "1", "234", "567", " ", "12"));
  EXPECT_THAT(split(threes, "123456x7"), ElementsAre("123", "456", "x", "7"));
  EXPECT_THAT(split(threes, "\u0661\u0662\u0663\u0664"),
              ElementsAre("\u0661", "\u0662\u0663\u0664"));
  EXPECT_EQ(split(threes, std::string(1'000'000, '7')).size(), 333'334u);
}

TEST(PatternTest, WhiteSpaceAtTheEndOfALine) {
  EXPECT_THAT(split("\\s+$", "a  b  "), ElementsAre("a  b", "  "));
  EXPECT_THAT(split("\\s+$", "a  \n  b"), ElementsAre("a", "  ", "\n  b"));
  EXPECT_THAT(split("\\s+$", "a \n \n b\n"), ElementsAre("a", " \n ", "\n b", "\n"));
  // A search that tries each length from each start would take an hour.
  EXPECT_EQ(split("\\s+$", std::string(1'000'000, ' ') + "x").size(), 1u);
}

constexpr const char* kExaone =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";

TEST(PatternTest, WordsWithSpacesBetweenThem) {
  EXPECT_THAT(split(kExaone, "It's a  big word, 12 3\n\nNew lines"),
              ElementsAre("It", "'s", " a", " ", " big word", ",", " ", "1", "2", " ", "3", "\n\n",
                          "New lines"));
  EXPECT_THAT(split(kExaone, "a\u0301b c\u0301 \u0301d e "),
              ElementsAre("a\u0301b c\u0301", " \u0301", "d e", " "));
  std::string words;
  for (int i = 0; i < 500'000; ++i) words += "word ";
  EXPECT_EQ(split(kExaone, words).size(), 2u);
  EXPECT_EQ(split(kExaone, std::string(3'000'000, 'a')).size(), 1u);
}

TEST(PatternTest, VeryLongRunsMatchWhole) {
  const std::string spaces(3'000'000, ' ');
  EXPECT_EQ(split("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", spaces + "x").size(), 3u);
  EXPECT_EQ(split("[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", std::string(3'000'000, 'a')).size(), 1u);
}

struct Refusal {
  const char* regex;
  const char* reason;
};

class RefusedPatternTest : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedPatternTest, ErrorNamesTheElement) {
  const Result<Pattern> pattern = Pattern::from_regex(GetParam().regex);
  ASSERT_FALSE(pattern.ok());
  EXPECT_EQ(pattern.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(pattern.status().message(), HasSubstr(GetParam().reason));
  EXPECT_EQ(pattern.status().message().find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Patterns, RefusedPatternTest,
    testing::Values(Refusal{"^a", "the anchor '^' at byte 0"}, Refusal{"a$", "the anchor '$'"},
                    Refusal{"\\s+$|a", "the anchor '$'"}, Refusal{"\\w+", "the escape '\\w'"},
                    Refusal{"[\\w&&a]", "the escape '\\w'"}, Refusal{"\\h", "the escape '\\h'"},
                    Refusal{"\\", "the escape '\\'"}, Refusal{"(a)\\1", "the escape '\\1'"},
                    Refusal{"\\p{Greek}", "'\\p{Greek}'"}, Refusal{"\\p{Mn}", "'\\p{Mn}'"},
                    Refusal{"\\p{^L}", "'\\p{^L}'"}, Refusal{"\\p{L", "the property"},
                    Refusal{"[a&&b]", "a class of no or of all"},
                    Refusal{"[[:alpha:]]", "a POSIX class"}, Refusal{"[]a]", "an empty class"},
                    Refusal{"[a", "a class without ']'"}, Refusal{"[[a]", "a class without ']'"},
                    Refusal{"[a&&\\p{Mn}]", "the property '\\p{Mn}'"},
                    Refusal{"[b-a&&c]", "a range that ends before its start"},
                    Refusal{"[[[[[[[[[a]]]]]]]]]", "nested more than eight times"},
                    Refusal{"(?i:[a&&a])", "a nested class in (?i:..)"},
                    Refusal{"[\\p{L}-a]", "no range"}, Refusal{"[a-\\s]", "no range"},
                    Refusal{"(a", "a group without ')'"}, Refusal{"a)", "an unescaped ')'"},
                    Refusal{"(?<=a)b", "the group '(?<='"}, Refusal{"(?>a)", "the group '(?>a'"},
                    Refusal{"(*FAIL)", "the group '(*FA'"}, Refusal{"(?i)a", "the group '(?i)'"},
                    Refusal{"(?:ab)+", "a repeated group"}, Refusal{"(?!a)?b", "the quantifier"},
                    Refusal{R"((?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+a)", "a repeated group"},
                    Refusal{"*a", "the quantifier '*'"}, Refusal{"a**", "the quantifier '*'"},
                    Refusal{"a{1,2}+", "possessive {n,m}"}, Refusal{"a{,2}", "an unescaped '{'"},
                    Refusal{"a{", "an unescaped '{'"}, Refusal{"(?i:ss)", "the letter pair 'ss'"},
                    Refusal{"(?i:a|Fi)", "the letter pair 'fi'"},
                    Refusal{"(?i:\u00E4)", "beyond ASCII in (?i:..)"},
                    Refusal{"(?i:\\p{Lu})", "a property in (?i:..)"},
                    Refusal{"(?i:[^s])", "a negated class in (?i:..)"},
                    Refusal{"a{3,1}", "the pattern 'a{3,1}' is invalid"},
                    Refusal{"\\p{L}*|\\s", "the pattern '\\p{L}*|\\s' matches the empty text"},
                    Refusal{"a*", "the empty text"}, Refusal{"", "the empty text"},
                    Refusal{"a|", "the empty text"}));

TEST(PatternTest, RefusesAnEmptyLiteral) {
  const Result<Pattern> pattern = Pattern::from_literal("");
  ASSERT_FALSE(pattern.ok());
  EXPECT_THAT(pattern.status().message(), HasSubstr("the empty text"));
}

TEST(PatternSyntaxTest, TakesTheExpressionsInUse) {
  const std::vector<std::string> regexes = {
      // Llama 3 and Qwen; o200k (gpt-oss); cl100k with possessive quantifiers
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"((?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}|\s+)",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[-a-z-]+|[^-]x)"};
  for (const std::string& regex : regexes) {
    const Result<Pattern> pattern = Pattern::from_regex(regex);
    EXPECT_TRUE(pattern.ok()) << pattern.status().message();
  }
}

TEST(NormalizerTest, ComposesByTheTablesOfUnicode9) {
  EXPECT_EQ(to_nfc("e\u0301 \u212B"), "\u00E9 \u00C5");
  EXPECT_EQ(to_nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");                        // a composition exclusion
  EXPECT_EQ(to_nfc("a\u0301\u0316"), "\u00E1\u0316");                 // below moves out of the way
  EXPECT_EQ(to_nfc("a\u0316\u1DFA"), "a\u0316\u1DFA");                // newer: stays where it is
  EXPECT_EQ(to_nfc("\U00011935\U00011930"), "\U00011935\U00011930");  // newer: not composed
}

// NFC by ICU alone, without the sorting of to_nfc().
std::string nfc_by_icu(const std::string& text) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::UnicodeString wide = icu::UnicodeString::fromUTF8(text);
  std::string out;
  icu::Normalizer2::getNFCInstance(error)->normalize(wide, error).toUTF8String(out);
  EXPECT_TRUE(U_SUCCESS(error));
  return out;
}

TEST(NormalizerTest, LongRunsOfMarksEqualIcus) {
  // Classes 0, 1, 7, 9, 129 to 132, 202, 216, 220, 230, 240; U+0344, U+0F73 and U+0F75 decompose to
  // marks, U+00E9 and U+1EA5 end in some, U+0F73 and U+0F75 have class 0 themselves.
  const std::vector<std::string> parts = {
      "a",      "\u00E9", "\u1EA5", "\uAC00", "\u11A8", "\u0300", "\u0301", "\u0308",
      "\u0316", "\u0323", "\u0327", "\u0334", "\u0344", "\u0345", "\u093C", "\u094D",
      "\u0F71", "\u0F72", "\u0F73", "\u0F74", "\u0F75", "\u031B", "\u0343", "\U0001D165"};
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    // One part in `rare` may be any part, the others are marks: runs of marks have all lengths.
    const uint32_t rare = 1 + random() % 60;
    std::string text;
    for (uint32_t i = random() % 150; i > 0; --i) {
      const size_t first = random() % rare == 0 ? 0 : 5;
      text += parts[first + random() % (parts.size() - first)];
    }
    ASSERT_EQ(to_nfc(text), nfc_by_icu(text)) << "round " << round;
  }
}

// ICU alone needs 14 s for a third of this text.
TEST(NormalizerTest, UnsortedMarksTakeLinearTime) {
  constexpr int kMarks = 250'000;
  std::string above, below;
  for (int i = 0; i < kMarks; ++i) {
    above += "\u0301";
    below += "\u0316";
  }
  const base::WorkTimer work;
  const std::string found = to_nfc("a" + above + below);
  EXPECT_LT(work.seconds(), 10);
  EXPECT_EQ(found, "\u00E1" + below + above.substr(2));
}

TEST(NormalizerTest, UnsortedCompatibleMarksTakeLinearTime) {
  std::string text = "a", above, below;
  for (int i = 0; i < 200'000; ++i) {
    text += "\uFF9E\u0345\u0334";
    above += "\u3099";
    below += "\u0334";
  }
  const base::WorkTimer work;
  const std::string found = to_form(UnicodeForm::kNfkd, UnicodeTables::kUnicode9, text);
  EXPECT_LT(work.seconds(), 10);
  EXPECT_TRUE(found.starts_with("a" + below + above + "\u0345"));
}

}  // namespace
}  // namespace wideep::tokenizer
