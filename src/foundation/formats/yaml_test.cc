// SPDX-License-Identifier: Apache-2.0
//
// YAML has many spellings of a value, and libraries differ in them. So tables say which texts are
// an integer, a number or a boolean, and which are none: 010, 0x10, 1_000 and quoted numbers are
// refused rather than guessed. Error lines are held word for word, because a user corrects a file
// by them. Texts that were made to be costly, nested, with aliases of aliases or brackets without a
// beginning, must be refused.
#include "formats/yaml.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/scratch_directory.h"
#include "formats/yaml_parse.h"

namespace wideep::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

YamlDocument document_of(const std::string& text) {
  auto document = YamlDocument::parse(text, "c.yaml");
  EXPECT_TRUE(document.ok()) << document.status().message();
  return std::move(document).value();
}

template <typename Read>
std::string complaint_of(const std::string& text, Read read) {
  const YamlDocument document = document_of(text);
  YamlMap root = document.root();
  read(root);
  EXPECT_THAT(document.status().message(), Not(HasSubstr("\n")));
  return document.status().message();
}

std::string parse_error_of(const std::string& text) {
  const auto document = YamlDocument::parse(text, "c.yaml");
  EXPECT_FALSE(document.ok()) << text;
  EXPECT_EQ(document.status().exit_code(), 2);
  EXPECT_THAT(document.status().message(), Not(HasSubstr("\n")));
  return document.status().message();
}

TEST(Yaml, ReadsEveryKind) {
  const YamlDocument document = document_of(
      "tp: 8\n"
      "ratio: 0.5\n"
      "dp: true\n"
      "path: some/file.yaml\n"
      "assignments:\n"
      "  3: [0, 1, 2]\n"
      "  4: [2, 1, 0]\n");
  YamlMap root = document.root();
  EXPECT_EQ(root.integer("tp"), 8);
  EXPECT_EQ(root.number_or("ratio", 0), 0.5);
  EXPECT_TRUE(root.boolean_or("dp", false));
  EXPECT_EQ(root.string_or("path", ""), "some/file.yaml");
  EXPECT_TRUE(root.is_map("assignments"));
  EXPECT_FALSE(root.is_map("path"));
  YamlMap assignments = root.map("assignments");
  EXPECT_THAT(assignments.keys(), ElementsAre("3", "4"));
  EXPECT_THAT(assignments.integers("4"), ElementsAre(2, 1, 0));
  root.refuse_unknown_keys();
  EXPECT_TRUE(document.status().ok()) << document.status().message();
}

TEST(Yaml, FallbackForAbsentAndNull) {
  const YamlDocument document = document_of("a:\nb: ~\nc: null\n");
  YamlMap root = document.root();
  for (const char* key : {"a", "b", "c", "absent"}) {
    EXPECT_FALSE(root.has(key)) << key;
    EXPECT_FALSE(root.is_map(key));
    EXPECT_EQ(root.integer_or(key, 3), 3);
    EXPECT_EQ(root.number_or(key, 0.5), 0.5);
    EXPECT_TRUE(root.boolean_or(key, true));
    EXPECT_EQ(root.string_or(key, "x"), "x");
  }
  EXPECT_TRUE(document.status().ok());
}

TEST(Yaml, EmptyDocumentIsAnEmptyMap) {
  for (const char* text : {"", "# only a comment\n", "---\n", "{}", "~"}) {
    const YamlDocument document = document_of(text);
    YamlMap root = document.root();
    EXPECT_EQ(root.integer_or("a", 3), 3);
    EXPECT_TRUE(root.keys().empty());
    root.refuse_unknown_keys();
    EXPECT_TRUE(document.status().ok()) << document.status().message();
    root.integer("a");
    EXPECT_THAT(document.status().message(), HasSubstr("a: missing; expected an integer")) << text;
  }
}

TEST(Yaml, IntegersInEveryNotation) {
  const YamlDocument document =
      document_of("k: [0, 5, +5, -5, 10000.0, 1e4, 9223372036854775807, -9223372036854775808, -0]");
  EXPECT_THAT(document.root().integers("k"),
              ElementsAre(0, 5, 5, -5, 10000, 10000, INT64_MAX, INT64_MIN, 0));
  EXPECT_TRUE(document.status().ok()) << document.status().message();
}

TEST(Yaml, RefusesOtherValuesAsIntegers) {
  for (const char* value : {"1.5",    "\"5\"", "'5'",   "9223372036854775808",
                            "1e300",  "010",   "0x10",  "1_000",
                            "five",   "true",  "[5]",   "{}",
                            "5 6",    "+-5",   "-+5",   "--5",
                            ".",      "+",     "inf",   ".inf",
                            "nan",    ".nan",  "5.0.0", "1e",
                            "!!str 5"}) {
    const std::string complaint = complaint_of(
        std::string("k: ") + value, [](YamlMap& root) { EXPECT_EQ(root.integer_or("k", -1), -1); });
    EXPECT_THAT(complaint, HasSubstr("c.yaml:1: k: expected an integer, found ")) << value;
  }
}

TEST(Yaml, TextsAreWrittenAsTheyAre) {
  const YamlDocument document = document_of("a: 010\nb: [1.50, yes, 'no']\nc: ''\nd: []\n");
  YamlMap root = document.root();
  EXPECT_THAT(root.texts("a"), ElementsAre("010"));
  EXPECT_THAT(root.texts("b"), ElementsAre("1.50", "yes", "no"));
  EXPECT_THAT(root.texts("c"), ElementsAre(""));
  EXPECT_THAT(root.texts("d"), ElementsAre());
  EXPECT_TRUE(document.status().ok());
  for (const char* wrong : {"a: {b: c}\n", "a: [[1]]\n", "a:\n", "a: [{b: 1}]\n"}) {
    EXPECT_THAT(complaint_of(wrong, [](YamlMap& map) { map.texts("a"); }),
                HasSubstr("expected a value"))
        << wrong;
  }
}

TEST(Yaml, Numbers) {
  const YamlDocument document = document_of("a: 1e-3\nb: -2\nc: .5\nd: +1.5E+2\ne: 0.25\n");
  YamlMap root = document.root();
  EXPECT_EQ(root.number_or("a", 9), 1e-3);
  EXPECT_EQ(root.number_or("b", 9), -2.0);
  EXPECT_EQ(root.number_or("c", 9), 0.5);
  EXPECT_EQ(root.number_or("d", 9), 150.0);
  EXPECT_EQ(root.number_or("e", 9), 0.25);
  EXPECT_TRUE(document.status().ok()) << document.status().message();
  for (const char* value : {".inf", "-.inf", ".nan", "inf", "nan", "1e999", "00.5", "\"0.5\""}) {
    EXPECT_THAT(complaint_of(std::string("k: ") + value,
                             [](YamlMap& map) { EXPECT_EQ(map.number_or("k", 7), 7); }),
                HasSubstr("c.yaml:1: k: expected a number, found"))
        << value;
  }
}

TEST(Yaml, Booleans) {
  for (const char* value : {"true", "True", "TRUE", "yes", "on", "On"}) {
    const YamlDocument document = document_of(std::string("k: ") + value);
    EXPECT_TRUE(document.root().boolean_or("k", false)) << value;
  }
  for (const char* value : {"false", "False", "no", "NO", "off"}) {
    const YamlDocument document = document_of(std::string("k: ") + value);
    EXPECT_FALSE(document.root().boolean_or("k", true)) << value;
  }
  for (const char* value : {"1", "0", "\"true\"", "tRUE", "y", "[true]"}) {
    EXPECT_THAT(complaint_of(std::string("k: ") + value,
                             [](YamlMap& root) { EXPECT_TRUE(root.boolean_or("k", true)); }),
                HasSubstr("expected true or false, found"))
        << value;
  }
}

TEST(Yaml, ErrorsNameLineKeyExpectedAndFound) {
  const std::string text =
      "tp: 8\n"
      "online:\n"
      "  window: 3\n"
      "  list:\n"
      "    - 1\n"
      "    - two\n";
  const auto of = [&](auto read) { return complaint_of(text, read); };
  EXPECT_EQ(of([](YamlMap& root) { root.integer("tp", {.min = 1, .max = 4}); }),
            "c.yaml:1: tp: expected an integer from 1 to 4, found '8'");
  EXPECT_EQ(of([](YamlMap& root) { root.map("online").boolean_or("window", false); }),
            "c.yaml:3: online.window: expected true or false, found '3'");
  EXPECT_EQ(of([](YamlMap& root) { root.map("online").integers("list", {.min = 0}); }),
            "c.yaml:6: online.list[1]: expected an integer of at least 0, found 'two'");
  EXPECT_EQ(of([](YamlMap& root) { root.map("tp"); }), "c.yaml:1: tp: expected a map, found '8'");
  EXPECT_EQ(of([](YamlMap& root) { root.string_or("online", ""); }),
            "c.yaml:2: online: expected a string, found a map");
  EXPECT_EQ(of([](YamlMap& root) { root.integers("tp"); }),
            "c.yaml:1: tp: expected a list of integers, found '8'");
  EXPECT_EQ(of([](YamlMap& root) { root.complain("online", "is not for this command"); }),
            "c.yaml:2: online: is not for this command");
}

TEST(Yaml, MissingKeysAreNamedWithTheirPath) {
  EXPECT_EQ(complaint_of("online:\n  windw: 3\n",
                         [](YamlMap& root) { root.map("online").integer("window"); }),
            "c.yaml:2: online.window: missing; expected an integer; did you mean 'windw'?");
  EXPECT_EQ(complaint_of("window: ~\n", [](YamlMap& root) { root.integer("window"); }),
            "c.yaml:1: window: missing; expected an integer");
  EXPECT_EQ(complaint_of("a: 1\n", [](YamlMap& root) { root.map("online").integer("window"); }),
            "c.yaml:1: online: missing; expected a map");
}

TEST(Yaml, UnknownKeysAreRefusedWithTheKnownOnes) {
  const auto read = [](YamlMap& root) {
    root.integer_or("tensor_parallel_size", 1);
    root.has("mapping");
    root.refuse_unknown_keys();
  };
  EXPECT_EQ(complaint_of("mapping: x\ntensor_paralel_size: 8\n", read),
            "c.yaml:2: tensor_paralel_size: unknown key; did you mean 'tensor_parallel_size'?; "
            "known keys: mapping, tensor_parallel_size");
  EXPECT_EQ(complaint_of("mapping: x\n\n\nbatch: 8\n", read),
            "c.yaml:4: batch: unknown key; known keys: mapping, tensor_parallel_size");
  EXPECT_EQ(
      complaint_of("a:\n  b: 1\n", [](YamlMap& root) { root.map("a").refuse_unknown_keys(); }),
      "c.yaml:2: a.b: unknown key; known keys: none");
}

TEST(YamlSyntax, ErrorsGiveTheLine) {
  EXPECT_THAT(parse_error_of("a: 1\nb: [1, 2\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(parse_error_of("a: 1\n\tb: 2\n"), HasSubstr("c.yaml:2: "));
  EXPECT_THAT(parse_error_of("a: 1\nb: *nobody\n"), HasSubstr("c.yaml:2: not valid YAML"));
}

TEST(YamlSyntax, RefusesAKeyTwice) {
  EXPECT_EQ(parse_error_of("a: 1\nb: 2\na: 3\n"), "c.yaml:3: key 'a' appears twice");
  EXPECT_EQ(parse_error_of("l:\n  - x: 1\n    'x': 2\n"), "c.yaml:3: key 'x' appears twice");
}

TEST(YamlSyntax, RefusesOtherRootsAndKeys) {
  EXPECT_EQ(parse_error_of("- 1\n- 2\n"), "c.yaml:1: expected a map, found a list of 2");
  EXPECT_EQ(parse_error_of("\nword\n"), "c.yaml:2: expected a map, found 'word'");
  EXPECT_EQ(parse_error_of("a: 1\n[1, 2]: x\n"), "c.yaml:2: expected a scalar as the key");
  EXPECT_THAT(parse_error_of("a: 1\n---\nb: 2\n"),
              HasSubstr("expected one YAML document, found more"));
  EXPECT_TRUE(YamlDocument::parse("---\na: 1\n...\n# end\n", "c.yaml").ok());
}

// In these texts the parser finds empty documents without end.
TEST(YamlSyntax, RefusesClosingBracketsWithoutOpeningOnes) {
  for (const char* text : {"]", ",,]]", "}", "a: 1\n]"}) {
    EXPECT_THAT(parse_error_of(text), HasSubstr("c.yaml:")) << text;
  }
}

TEST(YamlSyntax, AliasesHaveTheValuesOfTheirAnchors) {
  const YamlDocument document = document_of("a: &x [1, 2]\nb: *x\n");
  EXPECT_THAT(document.root().integers("b"), ElementsAre(1, 2));
}

TEST(YamlSyntax, BoundsTheExpansionOfAliases) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::vector<std::string> ten(10, fmt::format("*a{}", i - 1));
    text += fmt::format("a{}: &a{} [{}]\n", i, i, fmt::join(ten, ", "));
  }
  EXPECT_THAT(parse_error_of(text), HasSubstr("more than 4000000 values"));
}

TEST(YamlSyntax, BoundsTheDepth) {
  const auto nested = [](size_t depth) {
    return "a: " + std::string(depth - 1, '[') + std::string(depth - 1, ']');
  };
  EXPECT_TRUE(YamlDocument::parse(nested(kMaxYamlDepth), "c.yaml").ok());
  EXPECT_THAT(parse_error_of(nested(kMaxYamlDepth + 1)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(parse_error_of("a: " + std::string(1'000'000, '[')), HasSubstr("c.yaml"));
  EXPECT_THAT(parse_error_of("a: &a [*a]\n"), HasSubstr("c.yaml:1: "));
}

TEST(YamlSyntax, BoundsTheSize) {
  EXPECT_THAT(parse_error_of(std::string(kMaxYamlBytes + 1, ' ')), HasSubstr("too large"));
}

TEST(YamlFile, ReadsAndNamesTheFile) {
  const base::ScratchDirectory scratch;
  std::ofstream(scratch.file("p.yaml")) << "tp: x\n";
  const auto document = YamlDocument::read(scratch.file("p.yaml"));
  ASSERT_TRUE(document.ok());
  document->root().integer("tp");
  EXPECT_THAT(document->status().message(), HasSubstr(scratch.file("p.yaml") + ":1: tp: "));
  EXPECT_THAT(YamlDocument::read(scratch.file("none.yaml")).status().message(),
              HasSubstr("none.yaml: cannot be read: No such file"));
}

TEST(Yaml, APartBecomesTheRoot) {
  const char* text =
      "shared: 1\nown: 3.0\nworkers:\n  one: {own: 3, wrong: x}\n  two: {}\nlist: [1]\n";
  auto document = YamlDocument::parse(text, "w.yaml");
  ASSERT_TRUE(document.ok());
  ASSERT_TRUE(document->enter("workers.one").ok());
  const std::string_view but[] = {"list", "workers"};
  document->inherit(but);
  YamlMap root = document->root();
  EXPECT_EQ(root.integer("shared"), 1);
  EXPECT_EQ(root.integer("own"), 3);  // both say the same
  EXPECT_THAT(root.keys(), testing::UnorderedElementsAre("own", "wrong", "shared"));
  root.refuse_unknown_keys();
  EXPECT_THAT(document->status().message(),
              testing::HasSubstr("w.yaml:4: workers.one.wrong: unknown key"));
}

TEST(Yaml, APartContradictsWhatItInherits) {
  const auto said = [](const std::string& shared, const std::string& own) {
    auto document = YamlDocument::parse(
        fmt::format("a: {}\nworkers:\n  b: 1\n  a: {}\n", shared, own), "w.yaml");
    EXPECT_TRUE(document->enter("workers").ok());
    const std::string_view but[] = {"workers"};
    document->inherit(but);
    return document->status().message();
  };
  EXPECT_EQ(said("64", "32"),
            "w.yaml:4: workers.a: '32' contradicts line 1, where a is '64' for all parts of the "
            "file; leave it out at one of the two");
  EXPECT_THAT(said("{x: 1}", "{x: 2}"), testing::HasSubstr("a map contradicts line 1"));
  EXPECT_THAT(said("[1, 2]", "[1, 3]"), testing::HasSubstr("a list of 2 contradicts"));
  EXPECT_THAT(said("'1'", "1"), testing::HasSubstr("contradicts"));
  EXPECT_THAT(said("null", "1"), testing::HasSubstr("where a is nothing"));
  for (const auto& [shared, own] : std::initializer_list<std::pair<const char*, const char*>>{
           {"{x: 1, y: [true]}", "{y: [yes], x: 1.0}"}, {"text", "'text'"}, {"null", "null"}}) {
    EXPECT_EQ(said(shared, own), "") << shared;
  }
}

TEST(Yaml, AMergedPartIsWrittenAsItIsRead) {
  auto document = YamlDocument::parse("a: {b: [1, '2']}\nworkers: {c: true}\n", "w.yaml");
  ASSERT_TRUE(document->enter("workers").ok());
  const std::string_view but[] = {"workers"};
  document->inherit(but);
  const auto again = YamlDocument::parse(document->text(), "again.yaml");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->text(), document->text());
  EXPECT_TRUE(again->root().boolean_or("c", false));
  EXPECT_EQ(again->root().map("a").texts("b"), (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(YamlDocument::parse("", "w.yaml")->text(), "");
}

TEST(Yaml, PartsThatAreNotThereAreNamed) {
  const auto said = [](const char* path) {
    auto document = YamlDocument::parse("a: {b: {c: 1}, d: 2}\nlist: [1]\n", "w.yaml");
    return document->enter(path).message();
  };
  EXPECT_EQ(said("a.b"), "");
  EXPECT_EQ(said("x"),
            "w.yaml:1: x: no such part: expected one of the maps of the file, a; found 'x'");
  EXPECT_EQ(said("a.d"),
            "w.yaml:1: a.d: no such part: expected one of the maps of a, b; found 'd'");
  EXPECT_EQ(said("a.b.c"),
            "w.yaml:1: a.b.c: no such part: expected one of the maps of a.b, which has none; found "
            "'c'");
}

}  // namespace
}  // namespace wideep::formats
