// SPDX-License-Identifier: Apache-2.0
//
// Formats that are made to cost much: each becomes a grammar or is refused, in bounded time and
// memory. What each of them took is in the test's properties (--gtest_output=xml).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "base/cpu_time.h"
#include "grammar/output_format.h"

namespace wideep::grammar {
namespace {

using nlohmann::ordered_json;

OutputFormat schema(ordered_json schema) {
  return {.kind = OutputFormat::Kind::kJsonSchema, .schema = std::move(schema), .place = "schema"};
}
OutputFormat regex(std::string pattern) {
  return {.kind = OutputFormat::Kind::kRegex, .texts = {std::move(pattern)}, .place = "regex"};
}
OutputFormat rules(std::string text) {
  return {.kind = OutputFormat::Kind::kGrammar, .texts = {std::move(text)}, .place = "grammar"};
}

std::string repeated(const std::string& part, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += part;
  return all;
}

long peak_mb() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss >> 10;
}

// Some tenths of a second in a release build; sanitizers and slow machines have their time.
void expect_bounded(const std::string& name, const OutputFormat& format, bool is_refused) {
  const long before_mb = peak_mb();
  const int64_t start = base::thread_cpu_ns();
  const auto grammar = compile_output(format);
  const double ms = static_cast<double>(base::thread_cpu_ns() - start) * 1e-6;
  const long more_mb = peak_mb() - before_mb;
  EXPECT_EQ(!grammar.ok(), is_refused) << name << ": " << grammar.status().message();
  EXPECT_LT(grammar.status().message().size(), 2000u) << name;
  EXPECT_LT(ms, 20'000) << name;
  EXPECT_LT(more_mb, 2000) << name;
  const std::string took =
      fmt::format("{:.1f} ms, {} MB, {}", ms, more_mb,
                  grammar.ok() ? fmt::format("{} states", grammar->num_states())
                               : grammar.status().message().substr(0, 160));
  testing::Test::RecordProperty(name, took);
}

ordered_json numbers_from(int first, int count) {
  ordered_json list = ordered_json::array();
  for (int i = 0; i < count; ++i) list.push_back(first + i);
  return list;
}

// As many as a request may name (formats::parse_exact_json).
ordered_json members_from(int first, int count) {
  ordered_json members = ordered_json::object();
  for (int i = 0; i < count; ++i) {
    members["m" + std::to_string(first + i)] = {{"type", "integer"}};
  }
  return members;
}

TEST(Bombs, SchemasThatReferToOthersTwice) {
  for (const char* const key : {"anyOf", "allOf", "oneOf"}) {
    ordered_json defs = ordered_json::object();
    for (int i = 0; i < 40; ++i) {
      const std::string next = "#/$defs/d" + std::to_string(i + 1);
      defs["d" + std::to_string(i)] = {
          {key, {{{"$ref", next}, {"title", "a"}}, {{"$ref", next}, {"minimum", i}}}}};
    }
    defs["d40"] = {{"type", "integer"}};
    expect_bounded(std::string("twice_") + key,
                   schema({{"$defs", std::move(defs)}, {"$ref", "#/$defs/d0"}}),
                   std::string_view(key) != "allOf");  // there each is merged with itself
  }
}

TEST(Bombs, LongListsThatBothHold) {
  expect_bounded(
      "enum_and_enum",
      schema({{"allOf",
               {{{"enum", numbers_from(0, 100'000)}}, {{"enum", numbers_from(50'000, 100'000)}}}}}),
      true);
  ordered_json parts = ordered_json::array();
  for (int i = 0; i < 400; ++i) parts.push_back({{"properties", members_from(500 * i, 500)}});
  expect_bounded("properties_of_many", schema({{"allOf", std::move(parts)}}), true);
}

TEST(Bombs, LargeSchemasThatManyReferTo) {
  ordered_json large = {{"type", "object"}, {"properties", members_from(0, 500)}};
  ordered_json list = ordered_json::array();
  for (int i = 0; i < 15'000; ++i) {
    list.push_back({{"$ref", "#/$defs/large"},
                    {"title", "t" + std::to_string(i)},
                    {"required", {"m" + std::to_string(i % 500)}}});
  }
  expect_bounded("references_to_large",
                 schema({{"$defs", {{"large", large}}}, {"anyOf", std::move(list)}}), true);
}

TEST(Bombs, ManyAlternativesThatMustDiffer) {
  ordered_json list = ordered_json::array();
  for (int i = 0; i < 5'000; ++i) {
    list.push_back({{"type", "object"},
                    {"properties", {{"kind", {{"const", "k" + std::to_string(i)}}}}},
                    {"required", {"kind"}}});
  }
  expect_bounded("one_of_5000", schema({{"oneOf", std::move(list)}}), true);
}

TEST(Bombs, DepthAndSize) {
  ordered_json deep = {{"type", "integer"}};
  for (int i = 0; i < 250; ++i) deep = {{"type", "array"}, {"items", deep}};
  expect_bounded("deep_schema", schema(deep), true);
  ordered_json list = ordered_json::array();
  for (int i = 0; i < 200'000; ++i) list.push_back("value number " + std::to_string(i));
  expect_bounded("enum_200000", schema({{"enum", std::move(list)}}), true);
  ordered_json wide = members_from(0, 500);
  for (auto& [name, each] : wide.items()) {
    each = {{"type", "object"}, {"properties", members_from(0, 50)}};
  }
  expect_bounded("wide_25000", schema({{"type", "object"}, {"properties", std::move(wide)}}), true);
  expect_bounded("deep_pattern", regex(repeated("(", 5'000) + "a" + repeated(")", 5'000)), true);
  expect_bounded("deep_grammar",
                 rules("root ::= " + repeated("(", 5'000) + "\"a\"" + repeated(")", 5'000)), true);
  expect_bounded("long_pattern", regex(repeated("[^a]", 200'000)), true);
  expect_bounded("long_grammar", rules("root ::= " + repeated("[^a]", 200'000)), true);
  ordered_json patterns = ordered_json::array();
  for (int i = 0; i < 100; ++i) {
    patterns.push_back({{"type", "string"}, {"pattern", "^" + repeated("[^a]", 15'000) + "$"}});
  }
  expect_bounded("long_patterns", schema({{"prefixItems", std::move(patterns)}}), true);
  OutputFormat choice{.kind = OutputFormat::Kind::kChoice, .place = "choice"};
  for (int i = 0; i < 200'000; ++i) choice.texts.push_back("choice " + std::to_string(i));
  expect_bounded("choice_200000", choice, true);
}

TEST(Bombs, PatternsThatGrowExponentially) {
  expect_bounded("last_but_30", regex("(a|b)*a" + repeated("(a|b)", 30)), true);
  expect_bounded("nested_counts", regex("((((((a{1,60}){1,60}){1,60}){1,60}){1,60}){1,60})"),
                 false);
  expect_bounded("nested_stars", regex(repeated("(", 100) + "a" + repeated(")*", 100)), false);
  expect_bounded("optional_30", regex(repeated("(a?)", 5'000) + repeated("a", 5'000)), true);
  expect_bounded("million", regex("(ab?c?d?){1000000}"), false);
  expect_bounded("dots", regex(repeated(".*a", 300)), true);
  expect_bounded("alternatives", regex(repeated("(ab|ac|ad|a.)*", 400)), false);
  ordered_json patterns = ordered_json::array();
  for (int i = 0; i < 500; ++i) {
    patterns.push_back({{"type", "string"}, {"pattern", "(a|b)*a(a|b){8}" + std::to_string(i)}});
  }
  expect_bounded("many_patterns", schema({{"anyOf", std::move(patterns)}}), true);
}

TEST(Bombs, RulesThatCallEachOther) {
  std::string chain, doubling, mutual = "root ::= r0\n";
  constexpr int kRules = 3'000;
  for (int i = 0; i < kRules; ++i) {
    const std::string name = i == 0 ? "root" : fmt::format("r{}", i),
                      next = fmt::format("r{}", i + 1);
    chain += fmt::format("{} ::= {} | \"x\"\n", name, next);
    doubling += fmt::format("{} ::= {} {}\n", name, next, next);
  }
  const std::string last = fmt::format("r{} ::= \"a\"\n", kRules);
  expect_bounded("chain", rules(chain + last), false);
  expect_bounded("doubling", rules(doubling + last), false);
  for (int i = 0; i < 100; ++i) {
    mutual += fmt::format("r{} ::= \"x\"", i);
    for (int j = 0; j < 100; ++j) mutual += fmt::format(" | \"{}\" r{}", j % 10, j);
    mutual += "\n";
  }
  expect_bounded("mutual", rules(mutual), false);
}

}  // namespace
}  // namespace wideep::grammar
