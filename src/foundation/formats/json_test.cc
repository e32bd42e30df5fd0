// SPDX-License-Identifier: Apache-2.0
//
// Many texts are not quite JSON: each must be refused with one line that says where. Settings are
// written by people, and a key that appears twice, a number that loses digits or a wrong type would
// otherwise be taken for something else. Integers are held at both ends of their range, and nesting
// exactly at its bound, because a reader that recurses further overflows the stack.
#include "formats/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::formats {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

JsonDocument document_of(const std::string& text) {
  auto document = JsonDocument::parse(text, "c.json");
  EXPECT_TRUE(document.ok()) << document.status().message();
  return std::move(document).value();
}

// The error that the accesses of `read` cause.
template <typename Read>
std::string complaint_of(const std::string& text, Read read) {
  const JsonDocument document = document_of(text);
  read(document.root());
  return document.status().message();
}

std::string parse_error_of(std::string_view text) {
  const auto document = JsonDocument::parse(text, "c.json");
  EXPECT_FALSE(document.ok()) << text;
  EXPECT_EQ(document.status().exit_code(), 2);
  EXPECT_THAT(document.status().message(), Not(HasSubstr("\n")));
  return document.status().message();
}

TEST(Json, ReadsEveryKind) {
  const JsonDocument document = document_of(
      R"({"i": -7, "n": 1e-06, "b": true, "s": "a\u00e9", "l": [1, 2.0, 3], "o": {"x": 4}})");
  const JsonObject root = document.root();
  EXPECT_EQ(root.integer("i"), -7);
  EXPECT_EQ(root.number("n"), 1e-06);
  EXPECT_TRUE(root.boolean("b"));
  EXPECT_EQ(root.string("s"), "a\xc3\xa9");
  EXPECT_THAT(root.integers("l"), ElementsAre(1, 2, 3));
  EXPECT_EQ(root.object("o").integer("x"), 4);
  EXPECT_THAT(root.keys(), ElementsAre("b", "i", "l", "n", "o", "s"));
  EXPECT_TRUE(document.status().ok());
}

TEST(Json, FallbackForAbsentAndNull) {
  const JsonDocument document = document_of(R"({"null": null, "here": 5})");
  const JsonObject root = document.root();
  for (const char* key : {"null", "absent"}) {
    EXPECT_FALSE(root.has(key));
    EXPECT_EQ(root.integer_or(key, 3), 3);
    EXPECT_EQ(root.number_or(key, 0.5), 0.5);
    EXPECT_TRUE(root.boolean_or(key, true));
    EXPECT_EQ(root.string_or(key, "x"), "x");
    EXPECT_THAT(root.integers_or(key, {1, 2}), ElementsAre(1, 2));
  }
  EXPECT_TRUE(root.has("here"));
  EXPECT_EQ(root.integer_or("here", 3), 5);
  EXPECT_TRUE(document.status().ok());
}

TEST(Json, IntegersInEveryNotation) {
  const JsonDocument document = document_of(
      R"({"a": 10000.0, "b": 1e4, "c": 9223372036854775807, "d": -9223372036854775808, "e": -0.0})");
  const JsonObject root = document.root();
  EXPECT_EQ(root.integer("a"), 10000);
  EXPECT_EQ(root.integer("b"), 10000);
  EXPECT_EQ(root.integer("c"), INT64_MAX);
  EXPECT_EQ(root.integer("d"), INT64_MIN);
  EXPECT_EQ(root.integer("e"), 0);
  EXPECT_TRUE(document.status().ok()) << document.status().message();
}

TEST(Json, RefusesOtherValuesAsIntegers) {
  for (const char* value : {"1.5", "9223372036854775808", "-9223372036854775809", "1e19", "1e300",
                            "\"5\"", "true", "[5]", "{}"}) {
    EXPECT_THAT(complaint_of(std::string(R"({"k": )") + value + "}",
                             [](JsonObject root) { EXPECT_EQ(root.integer("k"), 0); }),
                HasSubstr("c.json: k: expected an integer, found"))
        << value;
  }
}

TEST(Json, NumberAlsoTakesIntegers) {
  const JsonDocument document = document_of(R"({"k": 10000, "big": 18446744073709551615})");
  EXPECT_EQ(document.root().number("k"), 10000.0);
  EXPECT_EQ(document.root().number("big"), 0x1p64);
  EXPECT_EQ(complaint_of(R"({"k": "1"})", [](JsonObject root) { root.number("k"); }),
            "c.json: k: expected a number, found '1'");
}

TEST(Json, ErrorsNameTheRange) {
  const std::string text = R"({"k": 9, "f": 1.5, "l": [1, 9]})";
  const auto of = [&](auto read) { return complaint_of(text, read); };
  EXPECT_EQ(of([](JsonObject root) { root.integer("k", {.min = 1, .max = 8}); }),
            "c.json: k: expected an integer from 1 to 8, found 9");
  EXPECT_EQ(of([](JsonObject root) { root.integer("k", {.min = 10}); }),
            "c.json: k: expected an integer of at least 10, found 9");
  EXPECT_EQ(of([](JsonObject root) { root.number("f", {.max = 1}); }),
            "c.json: f: expected a number of at most 1, found 1.5");
  EXPECT_EQ(of([](JsonObject root) { root.integers("l", {.min = 0, .max = 8}); }),
            "c.json: l[1]: expected an integer from 0 to 8, found 9");
  EXPECT_EQ(of([](JsonObject root) { root.integer("k", {.min = 9, .max = 9}); }), "");
}

TEST(Json, ErrorsNameExpectedAndFoundType) {
  const std::string text = R"({"o": {"x": [1, 2]}, "s": "long"})";
  const auto of = [&](auto read) { return complaint_of(text, read); };
  EXPECT_EQ(of([](JsonObject root) { root.object("o").boolean("x"); }),
            "c.json: o.x: expected true or false, found a list of 2");
  EXPECT_EQ(of([](JsonObject root) { root.string("o"); }),
            "c.json: o: expected a string, found an object");
  EXPECT_EQ(of([](JsonObject root) { root.object("s").object("deeper").integer("x"); }),
            "c.json: s: expected an object, found 'long'");
  EXPECT_EQ(of([](JsonObject root) { root.integers("s"); }),
            "c.json: s: expected a list of integers, found 'long'");
}

TEST(Json, MissingKeySuggestsTheClosest) {
  EXPECT_EQ(complaint_of(R"({"hiden_size": 8})",
                         [](JsonObject root) { root.integer("hidden_size", {.min = 1}); }),
            "c.json: hidden_size: missing; expected an integer of at least 1; did you mean "
            "'hiden_size'?");
  EXPECT_EQ(complaint_of("{}", [](JsonObject root) { root.string("model_type"); }),
            "c.json: model_type: missing; expected a string");
}

TEST(Json, ANullKeyIsMissingAndNotSuggested) {
  EXPECT_EQ(complaint_of(R"({"hidden_size": null})",
                         [](JsonObject root) { root.integer("hidden_size", {.min = 1}); }),
            "c.json: hidden_size: missing; expected an integer of at least 1");
}

TEST(Json, KeepsTheFirstError) {
  EXPECT_THAT(complaint_of(R"({"a": 1})",
                           [](JsonObject root) {
                             root.string("a");
                             root.integer("b");
                             root.complain("c", "later");
                           }),
              HasSubstr("c.json: a: "));
}

TEST(Json, ErrorsOfCallersContainThePath) {
  EXPECT_EQ(complaint_of(R"({"o": {"x": 3}})",
                         [](JsonObject root) {
                           root.object("o").complain("x", "expected a divisor of hidden_size");
                         }),
            "c.json: o.x: expected a divisor of hidden_size");
}

TEST(Json, DocumentCanBeMoved) {
  JsonDocument first = document_of(R"({"a": 1})");
  const JsonObject root = first.root();
  const JsonDocument second = std::move(first);
  root.string("a");
  EXPECT_FALSE(second.status().ok());
}

TEST(JsonSyntax, ErrorsGiveLineAndColumn) {
  EXPECT_THAT(parse_error_of("{\n  \"a\": 1,\n  \"b\": tru\n}"), HasSubstr("c.json:3:11: "));
  EXPECT_THAT(parse_error_of("{\"a\": 1,}"), HasSubstr("c.json:1:9: "));
  EXPECT_THAT(parse_error_of(""), HasSubstr("c.json:1:1: "));
  EXPECT_THAT(parse_error_of("{\"a\": 1\n"), HasSubstr("not valid JSON"));
}

TEST(JsonSyntax, RefusesExtensionsOfJson) {
  for (const char* text :
       {"{'a': 1}", "{\"a\": NaN}", "{\"a\": Infinity}", "{\"a\": 01}", "{\"a\": .5}",
        "{\"a\": +1}", "{\"a\": 1} {}", "{\"a\": 1} // c", "{\"a\": \"\t\"}", "{\"a\" 1}", "{a: 1}",
        "{\"a\": \"\\x\"}", "{\"a\": \"\\ud800\"}", "{\"a\": 1e999}", "{\"a\": [1,]}", "{"}) {
    EXPECT_THAT(parse_error_of(text), HasSubstr("not valid JSON")) << text;
  }
}

TEST(JsonSyntax, RefusesInvalidUtf8) {
  for (const char* bytes : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    const std::string text = std::string("{\"a\": \"") + bytes + "\"}";
    EXPECT_THAT(parse_error_of(text), AllOf(HasSubstr("c.json:1:"), HasSubstr("UTF-8"))) << text;
  }
}

TEST(JsonSyntax, RefusesZeroBytes) {
  EXPECT_EQ(parse_error_of(std::string_view("{}\n\0{}", 6)),
            "c.json:2:1: not valid JSON: a zero byte");
}

TEST(JsonSyntax, RefusesAKeyTwice) {
  EXPECT_EQ(parse_error_of("{\"a\": 1,\n \"b\": 2, \"a\": 3}"),
            "c.json:2:12: not valid JSON: key 'a' appears twice");
  EXPECT_THAT(parse_error_of(R"({"o": [{"x": 1, "\u0078": 1}]})"), HasSubstr("'x' appears twice"));
  EXPECT_TRUE(JsonDocument::parse(R"({"a": {"x": 1}, "b": {"x": 1}})", "c.json").ok());
}

TEST(JsonSyntax, RefusesOtherRootsThanObjects) {
  EXPECT_EQ(parse_error_of("[1, 2]"), "c.json: expected an object, found a list of 2");
  EXPECT_EQ(parse_error_of("null"), "c.json: expected an object, found null");
}

TEST(JsonSyntax, BoundsTheDepth) {
  const auto nested = [](size_t depth) {
    return R"({"a":)" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_TRUE(JsonDocument::parse(nested(kMaxJsonDepth), "c.json").ok());
  EXPECT_EQ(parse_error_of(nested(kMaxJsonDepth + 1)),
            "c.json:1:133: not valid JSON: nested deeper than 128 levels");
  EXPECT_THAT(parse_error_of("{\"a\":" + std::string(10'000'000, '[')), HasSubstr("nested deeper"));
}

TEST(JsonSyntax, LongInvalidTextIsCutInTheMessage) {
  EXPECT_LT(parse_error_of("{\"a\": \"" + std::string(100'000, 'x')).size(), 300u);
  EXPECT_LT(parse_error_of("{\"a\": \"" + std::string(100'000, '\n')).size(), 300u);
}

TEST(JsonSyntax, TakesAByteOrderMark) {
  EXPECT_TRUE(JsonDocument::parse("\xef\xbb\xbf{\"a\": 1}", "c.json").ok());
}

TEST(JsonFile, ReadsAndNamesTheFile) {
  const base::ScratchDirectory scratch;
  std::ofstream(scratch.file("config.json")) << "{\"a\": 1}";
  const auto document = JsonDocument::read(scratch.file("config.json"));
  ASSERT_TRUE(document.ok());
  document->root().string("a");
  EXPECT_THAT(document->status().message(), HasSubstr(scratch.file("config.json") + ": a: "));
  EXPECT_THAT(JsonDocument::read(scratch.file("none.json")).status().message(),
              HasSubstr("none.json: cannot be read: No such file"));
}

TEST(JsonFile, ReadsPublishedConfigs) {
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  const std::filesystem::path configs = std::filesystem::path(data ? data : "") / "model_configs";
  if (data == nullptr || !std::filesystem::is_directory(configs)) {
    GTEST_SKIP() << "WIDEEP_DATA_DIR has no model_configs";
  }
  for (const auto& entry : std::filesystem::directory_iterator(configs)) {
    if (entry.path().extension() != ".json") continue;
    const auto document = JsonDocument::read(entry.path().string());
    ASSERT_TRUE(document.ok()) << document.status().message();
    EXPECT_TRUE(document->root().has("model_type")) << entry.path();
  }
}

TEST(JsonTest, TextsKeepAllDigits) {
  for (const char* text :
       {R"({"b":-123456789012345678901234567890,"a":[[],{},[1,2.5,"x\"",null,true]],"\u0001":""})",
        "98765432109876543210", "-7", "[]"}) {
    const auto value = parse_exact_json(text, "t");
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(exact_json_text(*value), text);
  }
}

TEST(JsonTest, MembersKeepTheirOrder) {
  const auto value = parse_exact_json(R"({"b":1,"a":{"d":[{"z":1,"y":2}],"c":3}})", "t", 2);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(json_text(*value), R"({"b":1,"a":{"d":[{"z":1,"y":2}],"c":3}})");
  const auto message = [](const char* text) {
    return parse_exact_json(text, "t", 2).status().message();
  };
  EXPECT_EQ(message(R"({"a":1,"b":2,"c":3})"),
            "t:1:16: not valid JSON: an object of more than 2 members");
  EXPECT_EQ(message(R"({"a":1,"a":2})"), "t:1:10: not valid JSON: key 'a' appears twice");
}

}  // namespace
}  // namespace wideep::formats
