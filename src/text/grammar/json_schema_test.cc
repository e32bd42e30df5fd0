// SPDX-License-Identifier: Apache-2.0
//
// Golden values, each judged valid or not by the jsonschema package, are held against the grammar
// of their schema; texts that grammars generate can be written to a file, for the same package to
// judge. Numbers around random bounds are compared with integer arithmetic. A keyword that is
// ignored would give values that a client's own check refuses, so that errors, with the place, are
// held word for word. Schemas made to explode must be refused.
#include "grammar/json_schema.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "formats/json_parse.h"
#include "formats/json_text.h"
#include "grammar/constraint_testing.h"

namespace wideep::grammar {
namespace {

using nlohmann::ordered_json;

Result<Grammar> compile(const ordered_json& schema, const SchemaOptions& options = {}) {
  Rules rules;
  auto root = add_json_schema(schema, options, &rules);
  if (!root.ok()) return root.status();
  return build_grammar(rules, rules.add("#", *root));
}

Result<Grammar> compile_text(const std::string& schema, const SchemaOptions& options = {}) {
  const auto json = formats::parse_exact_json(schema, "schema");
  if (!json.ok()) return json.status();
  return compile(*json, options);
}

bool takes(const std::string& schema, const std::string& value) {
  const auto grammar = compile_text(schema);
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  return grammar.ok() && match(*grammar, value) == Match::kWhole;
}

std::string error_of(const std::string& schema) { return compile_text(schema).status().message(); }

TEST(JsonSchema, AnyObjectIsAnyJson) {
  const std::string schema = R"({"type": "object"})";
  EXPECT_TRUE(takes(schema, R"({"a": [1, -2.5e3, {"b": null}], "c":true})"));
  EXPECT_TRUE(takes(schema, "{\n  \"a\": \"x\\u00e4\\ud83d\\ude00\\n\"\n}"));
  EXPECT_TRUE(takes(schema, "{}"));
  EXPECT_FALSE(takes(schema, "[]"));
  EXPECT_FALSE(takes(schema, R"({"a": 01})"));
  EXPECT_FALSE(takes(schema, R"({"a": "\ud83d"})"));
  EXPECT_FALSE(takes(schema, R"({"a": 1,})"));
  EXPECT_FALSE(takes(schema, "{\"a\": \"\n\"}"));
}

TEST(JsonSchema, MembersComeInOrder) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "integer"},
      "b": {"type": "string"}, "c": {"type": "boolean"}}, "required": ["b"]})";
  EXPECT_TRUE(takes(schema, R"({"a": 1, "b": "x", "c": true})"));
  EXPECT_TRUE(takes(schema, R"({"b":"x"})"));
  EXPECT_TRUE(takes(schema, R"({"b":"x","c":false})"));
  EXPECT_FALSE(takes(schema, R"({"a": 1})"));
  EXPECT_FALSE(takes(schema, R"({"b": "x", "a": 1})"));
  EXPECT_FALSE(takes(schema, R"({"b": "x", "d": 1})"));
}

// A model would not know when to end, whether `properties` has names or none.
TEST(JsonSchema, NoPropertiesAreNoMembers) {
  const std::string schema = R"({"type": "object", "properties": {}})";
  EXPECT_TRUE(takes(schema, "{}"));
  EXPECT_FALSE(takes(schema, R"({"a": 1})"));
  EXPECT_TRUE(takes(R"({"type": "object", "properties": {}, "additionalProperties": true})",
                    R"({"a": 1})"));
  const auto open = compile_text(schema, {.allows_more_members = true});
  ASSERT_TRUE(open.ok()) << open.status().message();
  EXPECT_EQ(match(*open, R"({"a": 1})"), Match::kWhole);
}

TEST(JsonSchema, OtherMembersAreNoneOfTheNamed) {
  const std::string schema = R"({"type": "object", "properties": {"a": {"type": "integer"},
      "ab": {"type": "integer"}}, "additionalProperties": {"type": "null"}})";
  EXPECT_TRUE(takes(schema, R"({"a": 1, "ab": 2, "x": null, "abc": null, "": null})"));
  EXPECT_TRUE(takes(schema, R"({"b": null})"));
  EXPECT_FALSE(takes(schema, R"({"a": null})"));
  EXPECT_FALSE(takes(schema, R"({"ab": null})"));
  EXPECT_FALSE(takes(schema, R"({"\u0061": null})"));
}

TEST(JsonSchema, ManyMembersThatMayBeLeftOut) {
  ordered_json schema = {{"type", "object"}, {"properties", ordered_json::object()}};
  for (int i = 0; i < 1000; ++i) {
    schema["properties"]["member " + std::to_string(i)] = {{"type", "integer"}};
  }
  const auto grammar = compile(schema);
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  EXPECT_EQ(match(*grammar, R"({"member 7": 1, "member 500": 2, "member 999": 3})"), Match::kWhole);
  EXPECT_EQ(match(*grammar, R"({"member 500": 1, "member 7": 2})"), Match::kNone);
}

TEST(JsonSchema, RecursiveSchemas) {
  const std::string schema = R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type":
      "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v",
      "next"]}}, "$ref": "#/$defs/node"})";
  EXPECT_TRUE(takes(schema, R"({"v": 1, "next": {"v": 2, "next": null}})"));
  EXPECT_FALSE(takes(schema, R"({"v": 1, "next": {"v": 2}})"));
}

TEST(JsonSchema, Numbers) {
  EXPECT_TRUE(takes(R"({"type": "integer", "minimum": -3, "maximum": 120})", "-3"));
  EXPECT_FALSE(takes(R"({"type": "integer", "minimum": -3, "maximum": 120})", "-4"));
  EXPECT_FALSE(takes(R"({"type": "integer", "minimum": -3, "maximum": 120})", "121"));
  EXPECT_TRUE(
      takes(R"({"type": "integer", "maximum": 9223372036854775807})", "9223372036854775807"));
  EXPECT_FALSE(
      takes(R"({"type": "integer", "maximum": 9223372036854775807})", "9223372036854775808"));
  EXPECT_TRUE(takes(R"({"type": "integer", "maximum": 100000000000000000000000})",
                    "100000000000000000000000"));
  EXPECT_TRUE(takes(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})", "0.001"));
  EXPECT_TRUE(takes(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})", "1"));
  EXPECT_FALSE(takes(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})", "0.0"));
  EXPECT_FALSE(takes(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1})", "1.01"));
  EXPECT_TRUE(takes(R"({"type": "integer", "multipleOf": 7})", "-49"));
  EXPECT_FALSE(takes(R"({"type": "integer", "multipleOf": 7})", "50"));
  EXPECT_TRUE(takes(R"({"type": "number", "multipleOf": 0.01})", "3.14"));
  EXPECT_FALSE(takes(R"({"type": "number", "multipleOf": 0.01})", "3.141"));
}

// Random bounds of up to three digits before and two behind the point, against a sample of the
// numbers around them, with as many digits, and with one more.
TEST(JsonSchema, BoundsHoldExactly) {
  std::mt19937 rng(5);
  const auto below = [&](int limit) {
    return static_cast<int>(rng() % static_cast<unsigned>(limit));
  };
  const auto written = [](int hundredths) {
    const std::string sign = hundredths < 0 ? "-" : "";
    const int size = std::abs(hundredths);
    std::string text = sign + std::to_string(size / 100);
    if (size % 100 != 0) text += "." + std::to_string(size % 100 / 10) + std::to_string(size % 10);
    return text;
  };
  int num_compared = 0;
  for (int round = 0; round < 60; ++round) {
    const int size = round % 3 == 0 ? 300 : 30'000;
    int low = below(2 * size) - size, high = below(2 * size) - size;
    if (low > high) std::swap(low, high);
    if (round % 2 == 0) low = low / 100 * 100, high = high / 100 * 100;
    const bool excludes_low = below(2) == 0, excludes_high = below(2) == 0;
    const bool is_whole = below(2) == 0;
    const std::string schema =
        std::string(R"({"type": ")") + (is_whole ? "integer" : "number") + "\", \"" +
        (excludes_low ? "exclusiveMinimum" : "minimum") + "\": " + written(low) + ", \"" +
        (excludes_high ? "exclusiveMaximum" : "maximum") + "\": " + written(high) + "}";
    const auto fits = [&](int thousandths) {
      return (excludes_low ? thousandths > 10 * low : thousandths >= 10 * low) &&
             (excludes_high ? thousandths < 10 * high : thousandths <= 10 * high);
    };
    const auto grammar = compile_text(schema);
    if (!grammar.ok()) {  // there is none
      const int step = is_whole ? 1000 : 1;
      for (int value = 10 * low / step * step; value <= 10 * high; value += step) {
        ASSERT_FALSE(fits(value)) << schema << " " << grammar.status().message();
      }
      continue;
    }
    ++num_compared;
    Automaton automaton(*grammar);
    const auto expect_taken = [&](const std::string& number, bool is_taken) {
      ASSERT_EQ(match(automaton, number) == Match::kWhole, is_taken) << schema << " " << number;
    };
    for (int value = -size - 150; value <= size + 150 && !HasFatalFailure();
         value += 1 + below(size / 100)) {
      if (value % 100 == 0) {
        expect_taken(written(value), fits(10 * value));
        if (is_whole) continue;
      }
      std::string two = written(value);
      if (value % 100 == 0) two += ".00";
      if (value == 0) two = "0.00";
      expect_taken(two, fits(10 * value) && !is_whole);
      expect_taken(two + "0", fits(10 * value) && !is_whole);
      expect_taken(two + "5", fits(10 * value + (value < 0 ? -5 : 5)) && !is_whole);
    }
  }
  EXPECT_GT(num_compared, 50);
}

TEST(JsonSchema, Strings) {
  const std::string lengths = R"({"type": "string", "minLength": 2, "maxLength": 3})";
  EXPECT_TRUE(takes(lengths, "\"é€\""));
  EXPECT_TRUE(takes(lengths, R"("\ud83d\ude00\n\"")"));
  EXPECT_FALSE(takes(lengths, "\"€\""));
  EXPECT_FALSE(takes(lengths, "\"abcd\""));
  EXPECT_TRUE(
      takes(R"({"type": "string", "maxLength": 100000})", "\"" + std::string(100'000, 'x') + "\""));
  EXPECT_FALSE(
      takes(R"({"type": "string", "maxLength": 100000})", "\"" + std::string(100'001, 'x') + "\""));
  EXPECT_TRUE(takes(R"({"type": "string", "pattern": "^a+\"$"})", R"("aa\"")"));
  EXPECT_FALSE(takes(R"({"type": "string", "pattern": "^a+$"})", R"("ab")"));
  EXPECT_TRUE(takes(R"({"type": "string", "format": "date"})", "\"2024-02-28\""));
  EXPECT_FALSE(takes(R"({"type": "string", "format": "date"})", "\"2024-02-30\""));
  EXPECT_TRUE(takes(R"({"type": "string", "format": "date-time"})", "\"2024-01-31T23:59:00Z\""));
  EXPECT_TRUE(
      takes(R"({"type": "string", "format": "uuid"})", "\"123e4567-e89b-12d3-a456-426614174000\""));
}

TEST(JsonSchema, Arrays) {
  const std::string counts = R"({"type": "array", "items": {"type": "integer"}, "minItems": 1,
      "maxItems": 3})";
  EXPECT_TRUE(takes(counts, "[1, 2,3]"));
  EXPECT_FALSE(takes(counts, "[]"));
  EXPECT_FALSE(takes(counts, "[1,2,3,4]"));
  const std::string tuple = R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type":
      "string"}], "items": {"type": "null"}, "minItems": 1, "maxItems": 3})";
  EXPECT_TRUE(takes(tuple, R"([1])"));
  EXPECT_TRUE(takes(tuple, R"([1, "a", null])"));
  EXPECT_FALSE(takes(tuple, R"([1, "a", null, null])"));
  EXPECT_FALSE(takes(tuple, R"(["a"])"));
}

TEST(JsonSchema, ChoicesAndMerges) {
  EXPECT_TRUE(takes(R"({"enum": ["a", 1, null, {"b": [1]}]})", R"({"b":[1]})"));
  EXPECT_FALSE(takes(R"({"type": "string", "enum": ["a", 1]})", "1"));
  EXPECT_TRUE(takes(R"({"const": 12345678901234567890123})", "12345678901234567890123"));
  EXPECT_TRUE(takes(R"({"type": "object", "properties": {"a": {"type": "integer"}}, "anyOf": [
      {"required": ["a"]}, {"properties": {"b": {"type": "null"}}, "required": ["b"]}]})",
                    R"({"a": 1, "b": null})"));
  EXPECT_TRUE(takes(R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]})", "4"));
  EXPECT_FALSE(takes(R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]})", "6"));
  const std::string one = R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"},
      "x": {"type": "integer"}}, "required": ["kind"]}, {"type": "object", "properties": {"kind":
      {"const": "b"}}, "required": ["kind"]}]})";
  EXPECT_TRUE(takes(one, R"({"kind": "a", "x": 1})"));
  EXPECT_FALSE(takes(one, R"({"kind": "b", "x": 1})"));
}

TEST(JsonSchema, ErrorsNameThePlace) {
  EXPECT_EQ(error_of(R"({"type": "object", "properties": {"a": {"not": {}}}})"),
            "#/properties/a/not: this keyword is not supported");
  EXPECT_EQ(error_of(R"({"type": "objekt"})"),
            "#/type: expected object, array, string, number, integer, boolean, null, or a list of "
            "these");
  EXPECT_EQ(error_of(R"({"$ref": "#/$defs/x"})"), "#/$ref: '#/$defs/x' is not in this schema");
  EXPECT_EQ(error_of(R"({"$ref": "http://x/y"})"),
            "#/$ref: expected a place in this schema, as \"#/$defs/name\", found 'http://x/y'");
  EXPECT_EQ(error_of(R"({"type": "array", "items": {"type": "string", "pattern": "a(b"}})"),
            "#/items/pattern: at byte 3: expected )");
  EXPECT_EQ(error_of(R"({"type": "array", "minItems": 3, "maxItems": 2})"),
            "#/minItems: expected at most maxItems, which is 2");
  EXPECT_EQ(error_of(R"({"enum": []})"), "#/enum: no value of these satisfies the schema");
  EXPECT_EQ(error_of(R"({"type": "integer", "minimum": 5, "maximum": 4})"),
            "rule '#': no text matches it");
  EXPECT_EQ(error_of(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})")
                    .find("no text matches it") == std::string::npos,
            false);
  EXPECT_EQ(error_of(R"({"oneOf": [{"type": "integer"}, {"minimum": 3}]})").substr(0, 9),
            "#/oneOf/1");
  EXPECT_EQ(error_of(R"({"type": "array", "uniqueItems": true})").substr(0, 14), "#/uniqueItems:");
  EXPECT_EQ(error_of(R"([1])"), "#: expected an object, true or false");
}

TEST(JsonSchema, BombsAreBounded) {
  ordered_json deep = {{"type", "integer"}};
  for (int i = 0; i < 100; ++i) deep = {{"type", "array"}, {"items", deep}};
  EXPECT_NE(compile(deep).status().message().find("nested more than 64 deep"), std::string::npos);
  // allOf that doubles: 2^40 schemas.
  ordered_json defs = ordered_json::object();
  for (int i = 0; i < 40; ++i) {
    const std::string next = "#/$defs/d" + std::to_string(i + 1);
    defs["d" + std::to_string(i)] = {
        {"anyOf", {{{"$ref", next}, {"title", "a"}}, {{"$ref", next}, {"minimum", 1}}}}};
  }
  defs["d40"] = {{"type", "integer"}};
  const ordered_json doubling = {{"$defs", defs}, {"$ref", "#/$defs/d0"}};
  EXPECT_FALSE(compile(doubling).ok());
  ordered_json list = ordered_json::array();
  for (int i = 0; i < 200'000; ++i) list.push_back("value number " + std::to_string(i));
  EXPECT_NE(compile({{"enum", list}}).status().message().find("too many states"),
            std::string::npos);
}

// What pydantic 2.12 makes of a Decimal, and of one with max_digits and decimal_places.
TEST(JsonSchema, DecimalsOfPydantic) {
  const auto schema = [](const char* pattern) {
    return ordered_json{
        {"anyOf", {{{"type", "number"}}, {{"type", "string"}, {"pattern", pattern}}}}};
  };
  const auto any = compile(schema("^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"));
  ASSERT_TRUE(any.ok()) << any.status().message();
  for (const char* text : {"1.5", "\"1.5\"", "\"-0\"", "\".5\""}) {
    EXPECT_EQ(match(*any, text), Match::kWhole) << text;
  }
  for (const char* text : {"\"\"", "\"-\"", "\".\"", "\"a\""}) {
    EXPECT_NE(match(*any, text), Match::kWhole) << text;
  }
  const auto small =
      compile(schema("^(?!^[-+.]*$)[+-]?0*(?:\\d{0,3}|(?=[\\d.]{1,6}0*$)\\d{0,3}\\.\\d{0,2}0*$)"));
  ASSERT_TRUE(small.ok()) << small.status().message();
  EXPECT_EQ(match(*small, "\"123.45\""), Match::kWhole);
  EXPECT_NE(match(*small, "\".\""), Match::kWhole);
}

// ---- cases of tests/golden/schemas/make_schemas.py, judged by the jsonschema package ----

// A random text of a grammar; "" if it does not end soon.
std::string sample(Automaton& automaton, std::mt19937& rng) {
  std::string text;
  Automaton::State state = automaton.start();
  for (int step = 0; step < 400; ++step) {
    std::vector<uint8_t> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      if (automaton.next(state, static_cast<uint8_t>(byte)) != Automaton::kDead) {
        bytes.push_back(static_cast<uint8_t>(byte));
      }
    }
    if (automaton.accepts(state) && (bytes.empty() || rng() % 4 == 0)) return text;
    // What closes something comes often, so that texts end.
    std::vector<uint8_t> preferred;
    for (const uint8_t byte : bytes) {
      if (std::string_view("\"}],:").find(static_cast<char>(byte)) != std::string_view::npos) {
        preferred.push_back(byte);
      }
    }
    const auto& from = !preferred.empty() && rng() % 2 == 0 ? preferred : bytes;
    const uint8_t byte = from[rng() % from.size()];
    text += static_cast<char>(byte);
    state = automaton.next(state, byte);
  }
  return "";
}

TEST(JsonSchema, AgreesWithJsonschema) {
  const char* const other = std::getenv("WIDEEP_SCHEMA_CASES");
  const std::string path =
      other != nullptr ? other : WIDEEP_SOURCE_DIR "/tests/golden/schemas/cases.json";
  std::ifstream file(path);
  ASSERT_TRUE(file.is_open()) << path;
  std::stringstream content;
  content << file.rdbuf();
  const auto cases = formats::parse_exact_json(content.str(), path);
  ASSERT_TRUE(cases.ok()) << cases.status().message();
  ordered_json samples = ordered_json::array();
  int compiled = 0, taken = 0, refused = 0;
  std::mt19937 rng(1);
  for (const ordered_json& each : *cases) {
    const auto grammar = compile(each["schema"]);
    if (!grammar.ok()) continue;
    ++compiled;
    Automaton automaton(*grammar);
    for (const ordered_json& text : each["valid"]) {
      ++taken;
      EXPECT_EQ(match(automaton, text.get<std::string>()), Match::kWhole)
          << each["schema"] << " should take " << text;
    }
    for (const ordered_json& text : each["invalid"]) {
      ++refused;
      EXPECT_NE(match(automaton, text.get<std::string>()), Match::kWhole)
          << each["schema"] << " should not take " << text;
    }
    ordered_json texts = ordered_json::array();
    for (int i = 0; i < 10; ++i) {
      const std::string text = sample(automaton, rng);
      if (!text.empty()) texts.push_back(text);
    }
    samples.push_back({{"schema", each["schema"]}, {"texts", std::move(texts)}});
  }
  EXPECT_GT(compiled, static_cast<int>(cases->size()) / 2);
  EXPECT_GT(taken, compiled);
  EXPECT_GT(refused, compiled);
  if (const char* const to = std::getenv("WIDEEP_SCHEMA_SAMPLES")) {
    std::ofstream(to) << formats::json_text(samples);
  }
}

}  // namespace
}  // namespace wideep::grammar
