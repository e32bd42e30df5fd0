// SPDX-License-Identifier: Apache-2.0
//
// Grammar and reader are held against each other: random texts of each format's grammar must be
// read as calls whose arguments satisfy their schemas. A failure means that a model is made to
// write what its client does not get as a call. Tables say which texts match, begin or do not. Many
// tools and costly schemas must stay within time and memory, because clients choose them.
#include "server/call_grammar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "answer/call_formats.h"
#include "answer/make_answer_reader.h"
#include "answer/written_calls_testing.h"
#include "base/work_timer.h"
#include "grammar/automaton.h"
#include "grammar/constraint_testing.h"
#include "grammar/grammar.h"
#include "server/harmony_testing.h"

namespace wideep::server {
namespace {

using grammar::Automaton;
using nlohmann::ordered_json;

const ordered_json& tools() {
  static const auto all = ordered_json::parse(R"([
    {"type": "function", "function": {"name": "find", "parameters": {"type": "object",
      "properties": {"a": {"type": "integer"}, "s": {"type": "string"}, "b": {"type": "boolean"},
        "k": {"type": "string", "enum": ["one", "two"]}, "o": {"$ref": "#/$defs/thing"},
        "n": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
      "required": ["s", "a"],
      "$defs": {"thing": {"type": "object", "properties": {"x": {"type": "number"}}}}}}},
    {"type": "function", "function": {"name": "stop"}}])");
  return all;
}

AnswerStyle style_of(const answer::CallFormat& format) {
  AnswerStyle style;
  style.format.calls = &format;
  style.calls_tools = true;
  return style;
}

Result<grammar::Grammar> grammar_of(const AnswerStyle& style, const std::string& name = "",
                                    bool one_call = false) {
  grammar::Rules rules;
  auto calls = required_calls(
      {.style = style, .tools = tools(), .name = name, .one_call = one_call}, &rules);
  if (!calls.ok()) return calls.status();
  return grammar::build_grammar(rules, rules.add("answer", *calls));
}

Automaton::State after(Automaton& automaton, Automaton::State state, std::string_view text) {
  for (const char byte : text) {
    if (state != Automaton::kDead) state = automaton.next(state, static_cast<uint8_t>(byte));
  }
  return state;
}

// A text of the grammar: random for a while, then what ends strings, objects and values, until the
// text is whole.
std::string random_text(Automaton& automaton, const answer::CallFormat& format,
                        std::mt19937& random) {
  constexpr int kBytesOfText = 0xf8;  // larger ones are in no UTF-8
  std::string text;
  Automaton::State state = automaton.start();
  const auto take = [&](std::string_view more) {
    const Automaton::State next = after(automaton, state, more);
    if (next == Automaton::kDead) return false;
    state = next;
    text += more;
    return true;
  };
  const auto take_any = [&] {
    for (int tries = 0; tries < 8; ++tries) {
      if (take(std::string(1, static_cast<char>(random() % 128)))) return true;
    }
    for (int byte = 0; byte < kBytesOfText; ++byte) {
      if (take(std::string(1, static_cast<char>(byte)))) return true;
    }
    return false;
  };
  for (auto steps = random() % 100; steps > 0 && take_any(); --steps) continue;
  const std::string value_end =
      std::string(format.tags.around_value) + std::string(format.tags.value_end);
  constexpr std::string_view kEnds[] = {"\"", "}", "]"};
  for (int steps = 0; steps < 5000 && !automaton.accepts(state); ++steps) {
    if (!value_end.empty() && take(value_end)) continue;
    if (random() % 3 == 0 && !format.shape.end.empty() && take(format.shape.end)) continue;
    if (!take(kEnds[random() % 3]) && !take_any()) break;
  }
  EXPECT_TRUE(automaton.accepts(state)) << text;
  return text;
}

struct Call {
  std::string name, arguments;
};

std::vector<Call> read_calls(const answer::CallFormat& format, std::string_view text) {
  const answer::AnswerSettings settings{.format = {.calls = &format},
                                        .tools = std::make_shared<answer::ToolList>(tools())};
  answer::AnswerParts parts(true);
  const auto reader = answer::make_answer_reader(settings);
  reader->add_text(text, parts);
  reader->finish(false, parts);
  EXPECT_EQ(parts.take_content(), "") << text;
  std::vector<Call> calls;
  for (const answer::CallPart& part : parts.take_calls()) {
    if (part.begins) calls.push_back({part.name, ""});
    calls.back().arguments += part.arguments;
  }
  return calls;
}

// Whatever is sampled under the grammar is read as calls whose arguments satisfy their schemas, in
// what these tools' ask for.
TEST(CallGrammarTest, EveryTextIsReadAsCalls) {
  std::mt19937 random(5);
  for (const answer::CallFormat* format : answer::call_formats()) {
    const AnswerStyle style = style_of(*format);
    const auto grammar = grammar_of(style);
    ASSERT_TRUE(grammar.ok()) << format->name << ": " << grammar.status().message();
    Automaton automaton(*grammar);
    for (int i = 0; i < 40; ++i) {
      const std::string text = random_text(automaton, *format, random);
      const std::vector<Call> calls = read_calls(*format, text);
      EXPECT_FALSE(calls.empty()) << format->name << ": " << text;
      for (const Call& call : calls) {
        const ordered_json arguments = ordered_json::parse(call.arguments, nullptr, false);
        ASSERT_TRUE(arguments.is_object()) << format->name << ": " << text;
        if (call.name == "stop") continue;
        EXPECT_EQ(call.name, "find");
        ASSERT_TRUE(arguments.contains("s") && arguments.contains("a")) << text;
        EXPECT_TRUE(arguments["s"].is_string()) << text;
        EXPECT_TRUE(arguments["a"].is_number()) << text;
        EXPECT_TRUE(!arguments.contains("b") || arguments["b"].is_boolean()) << text;
        EXPECT_TRUE(!arguments.contains("o") || arguments["o"].is_object()) << text;
        if (arguments.contains("k")) {
          EXPECT_TRUE(arguments["k"] == "one" || arguments["k"] == "two") << text;
        }
      }
    }
  }
}

TEST(CallGrammarTest, NamesAndNumbersOfCalls) {
  const AnswerStyle style = style_of(*answer::find_call_format("hermes"));
  const auto call = [](const std::string& name, const std::string& arguments) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + arguments +
           "}\n</tool_call>";
  };
  const std::string stop = call("stop", "{}"), find = call("find", R"({"a": 1, "s": "x"})");
  const auto any = grammar_of(style).value();
  EXPECT_EQ(match(any, stop), grammar::Match::kWhole);
  EXPECT_EQ(match(any, find + "\n" + stop), grammar::Match::kWhole);
  EXPECT_EQ(match(any, call("other", "{}")), grammar::Match::kNone);
  EXPECT_EQ(match(any, call("find", R"({"s": "x"})")), grammar::Match::kNone);
  EXPECT_EQ(match(any, "I think " + stop), grammar::Match::kNone);
  const auto one = grammar_of(style, "", true).value();
  EXPECT_EQ(match(one, find), grammar::Match::kWhole);
  EXPECT_EQ(match(one, find + "\n" + stop), grammar::Match::kNone);
  const auto named = grammar_of(style, "stop").value();
  EXPECT_EQ(match(named, stop), grammar::Match::kWhole);
  EXPECT_EQ(match(named, find), grammar::Match::kNone);
}

TEST(CallGrammarTest, ReasoningMayComeBefore) {
  AnswerStyle style;
  style.format.reasoning = answer::find_reasoning_format("qwen3");
  const auto grammar = [&](Reasoning reasoning) {
    grammar::Rules rules;
    const auto answer = after_reasoning(grammar::text("yes"), style, reasoning);
    return grammar::build_grammar(rules, rules.add("answer", answer)).value();
  };
  const auto begun = grammar(Reasoning::kBegun), possible = grammar(Reasoning::kPossible);
  EXPECT_EQ(match(begun, "hm</think>\n\nyes"), grammar::Match::kWhole);
  EXPECT_EQ(match(begun, "yes"), grammar::Match::kBegins);
  EXPECT_EQ(match(possible, "yes"), grammar::Match::kWhole);
  EXPECT_EQ(match(possible, "<think>hm</think>yes"), grammar::Match::kWhole);
  EXPECT_EQ(match(possible, "hm</think>yes"), grammar::Match::kNone);
  // White space is the beginning of nothing, or the model could only reason behind it.
  EXPECT_EQ(match(possible, "\n"), grammar::Match::kNone);
  EXPECT_EQ(match(grammar(Reasoning::kOff), "yes"), grammar::Match::kWhole);
  EXPECT_EQ(match(grammar(Reasoning::kOff), "<think>"), grammar::Match::kNone);
}

// Arguments with commas between them: those that must come, and any of the others.
TEST(CallGrammarTest, ArgumentsMayBeLeftOut) {
  const auto matches = [](const answer::CallFormat& format, const std::string& arguments) {
    const auto grammar = grammar_of(style_of(format), "find").value();
    return match(grammar, std::string(format.shape.begin) + std::string(format.shape.before_name) +
                              "find" + std::string(format.shape.before_arguments) + arguments +
                              std::string(format.shape.after_arguments) +
                              std::string(format.shape.end));
  };
  const std::string text = R"(s:<|"|>x<|"|>)";
  for (const std::string& good :
       {"a:1," + text, "a:1," + text + R"(,k:<|"|>two<|"|>)", "a:1," + text + ",b:true,o:{}"}) {
    EXPECT_EQ(matches(answer::kGemma4, good), grammar::Match::kWhole) << good;
  }
  for (const std::string& bad : {std::string("a:1"), text, "a:1,," + text, ",a:1," + text,
                                 "a:1," + text + R"(,k:<|"|>three<|"|>)"}) {
    EXPECT_EQ(matches(answer::kGemma4, bad), grammar::Match::kNone) << bad;
  }
  EXPECT_EQ(matches(answer::kPythonic, R"(a=1, s="x")"), grammar::Match::kWhole);
  EXPECT_EQ(matches(answer::kPythonic, R"(a=1, s="x", n=null)"), grammar::Match::kWhole);
  EXPECT_EQ(matches(answer::kPythonic, R"(s="x")"), grammar::Match::kNone);
}

// Of models whose marks are tokens of their own: reasoning, content and calls are messages.
TEST(CallGrammarTest, ContentIsWrappedWhereItAlwaysIs) {
  AnswerStyle style = style_of(answer::kSolarOpen);
  style.format.reasoning = answer::find_reasoning_format("solar_open");
  style.marker_names = {"<|think|>", "<|end|>", "<|begin|>", "<|content|>", "<|tool_calls|>"};
  const auto matches = [&](Reasoning reasoning, std::string_view text) {
    grammar::Rules rules;
    const auto calls = required_calls({.style = style, .tools = tools(), .name = "stop"}, &rules);
    const auto answer = after_reasoning(
        grammar::choice({in_content(grammar::text("yes"), style), *calls}), style, reasoning);
    const auto grammar = grammar::build_grammar(rules, rules.add("answer", answer)).value();
    return match(grammar, text);
  };
  const std::string call =
      "<|tool_calls|><|tool_call:begin|>abcde12345<|tool_call:name|>stop<|tool_call:args|>{}"
      "<|tool_call:end|>";
  const std::string next = "hm<|end|><|begin|>assistant";
  for (const std::string& rest : {std::string("<|content|>yes<|end|>"), call}) {
    EXPECT_EQ(matches(Reasoning::kOff, rest), grammar::Match::kWhole);
    EXPECT_EQ(matches(Reasoning::kBegun, next + rest), grammar::Match::kWhole);
    EXPECT_EQ(matches(Reasoning::kPossible, rest), grammar::Match::kWhole);
    EXPECT_EQ(matches(Reasoning::kPossible, "<|think|>" + next + rest), grammar::Match::kWhole);
    EXPECT_EQ(matches(Reasoning::kBegun, "hm<|end|>" + rest), grammar::Match::kNone);
  }
  EXPECT_EQ(matches(Reasoning::kOff, "yes"), grammar::Match::kNone);
  EXPECT_EQ(matches(Reasoning::kOff, "<|content|>yes<|end|> "), grammar::Match::kNone);
}

TEST(CallGrammarTest, SchemasThatCannotBeKeptAreNamed) {
  const AnswerStyle style = style_of(*answer::find_call_format("hermes"));
  const auto broken = ordered_json::parse(R"([{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object", "properties": {"x": {"type": "what"}}}}}])");
  grammar::Rules rules;
  const auto calls =
      required_calls({.style = style, .tools = broken, .name = "", .one_call = false}, &rules);
  ASSERT_FALSE(calls.ok());
  EXPECT_TRUE(calls.status().message().starts_with("tools[0].function.parameters"))
      << calls.status().message();
}

AnswerStyle harmony_style() {
  AnswerStyle style;
  style.format.is_harmony = true;
  style.calls_tools = true;
  return style;
}

// The same call, as each format writes it.
std::string call_text(const AnswerStyle& style, const std::string& name,
                      const ordered_json& arguments) {
  if (style.format.calls != nullptr) {
    return answer::calls_text(*style.format.calls, {{name, arguments}});
  }
  return with_special_tokens("<|channel|>commentary to=functions." + name +
                             " <|constrain|>json<|message|>" + arguments.dump());
}

std::vector<AnswerStyle> all_styles() {
  std::vector<AnswerStyle> styles = {harmony_style()};
  for (const answer::CallFormat* each : answer::call_formats()) styles.push_back(style_of(*each));
  return styles;
}

// What is sampled ends: a tool whose schema names no members, and does not say that there may be
// others, is called without any.
TEST(CallGrammarTest, ToolsWithoutMembersHaveNoArguments) {
  for (const char* parameters : {R"({"type": "object", "properties": {}})", R"({"type": "object"})",
                                 "{}", R"({"description": "none", "properties": {}})", "null"}) {
    const ordered_json list = ordered_json::array(
        {{{"type", "function"},
          {"function", {{"name", "f"}, {"parameters", ordered_json::parse(parameters)}}}}});
    for (const AnswerStyle& style : all_styles()) {
      grammar::Rules rules;
      const auto calls = required_calls({.style = style, .tools = list, .name = {}}, &rules);
      ASSERT_TRUE(calls.ok()) << calls.status().message();
      const auto grammar = grammar::build_grammar(rules, rules.add("answer", *calls)).value();
      SCOPED_TRACE(style.format.description() + ": " + parameters);
      EXPECT_EQ(match(grammar, call_text(style, "f", ordered_json::object())),
                grammar::Match::kWhole);
      EXPECT_EQ(match(grammar, call_text(style, "f", {{"a", 1}})), grammar::Match::kNone);
    }
  }
}

TEST(CallGrammarTest, ToolsThatMayBeCalledKeepToWhatTheyCan) {
  const auto list = ordered_json::parse(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object",
      "properties": {"x": {"type": "array", "uniqueItems": true}}, "required": ["x"]}}},
    {"type": "function", "function": {"name": "g", "parameters": {"type": "object",
      "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}])");
  for (const AnswerStyle& style : all_styles()) {
    SCOPED_TRACE(style.format.description());
    grammar::Rules rules;
    EXPECT_FALSE(required_calls({.style = style, .tools = list, .name = {}}, &rules).ok());
    rules = {};
    const int before = rules.add("before", grammar::text(""));
    const auto calls = possible_calls({.style = style, .tools = list, .name = {}}, &rules);
    ASSERT_TRUE(calls.ok()) << calls.status().message();
    const auto grammar =
        grammar::build_grammar(
            rules, rules.add("answer", grammar::sequence({grammar::call(before), *calls})))
            .value();
    // Elements are read as lists, and so is JSON in them, which is written here.
    const answer::CallFormat* format = style.format.calls;
    const bool is_json = format != nullptr && format->form == answer::ArgumentsForm::kElements;
    const ordered_json list_of_two = is_json ? ordered_json("[1, 1]") : ordered_json{1, 1};
    EXPECT_EQ(match(grammar, call_text(style, "f", {{"x", list_of_two}})), grammar::Match::kWhole);
    EXPECT_EQ(match(grammar, call_text(style, "g", {{"n", 1}})), grammar::Match::kWhole);
    EXPECT_EQ(match(grammar, call_text(style, "g", {{"n", true}})), grammar::Match::kNone);
  }
}

// A tool whose schema takes most of the work that one may take, many times: together they may not.
TEST(CallGrammarTest, ToolsShareTheWorkOfSchemas) {
  ordered_json kinds = ordered_json::array();
  for (int i = 0; i < 500; ++i) {
    kinds.push_back({{"type", "object"},
                     {"properties", {{"kind", {{"const", fmt::format("k{}", i)}}}}},
                     {"required", {"kind"}}});
  }
  ordered_json list = ordered_json::array();
  for (int i = 0; i < 4; ++i) {
    list.push_back(
        {{"type", "function"},
         {"function", {{"name", fmt::format("f{}", i)}, {"parameters", {{"oneOf", kinds}}}}}});
  }
  const AnswerStyle style = style_of(*answer::find_call_format("hermes"));
  grammar::Rules rules;
  EXPECT_TRUE(required_calls({.style = style, .tools = list, .name = "f3"}, &rules).ok());
  rules = {};
  const auto all = required_calls({.style = style, .tools = list, .name = {}}, &rules);
  ASSERT_FALSE(all.ok());
  EXPECT_NE(all.status().message().find("too much work"), std::string::npos)
      << all.status().message();
  rules = {};
  EXPECT_TRUE(possible_calls({.style = style, .tools = list, .name = {}}, &rules).ok());
}

// Whatever the format, as values of some are never read as schemas. What is only possible takes
// free arguments.
TEST(CallGrammarTest, SchemasOfAWrongFormAreNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"properties": "x"})", "properties: expected an object, of schemas by name, found \"x\""},
      {R"({"properties": [1]})", "properties: expected an object, of schemas by name, found [1]"},
      {R"({"properties": {"a": 5}})",
       "properties.a: expected a schema, which is an object, true or false, found 5"},
      {R"({"properties": {"a": null}})",
       "properties.a: expected a schema, which is an object, true or false, found null"},
      {R"({"properties": {"a": {"$ref": 5}}})", "properties.a.$ref: expected a string, found 5"},
      {R"({"properties": {"a": {"enum": 5}}})",
       "properties.a.enum: expected a list of values, found 5"},
      {R"({"properties": {"a": {"anyOf": {}}}})",
       "properties.a.anyOf: expected a list of schemas, found {}"},
      {R"({"required": "a"})", "required: expected a list of names, found \"a\""},
      {R"({"properties": {"a": {}}, "required": ["a", 1]})",
       "required[1]: expected a name, found 1"},
      {R"({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": [1]})",
       "$defs: expected an object, of schemas by name, found [1]"},
      {R"({"definitions": true})",
       "definitions: expected an object, of schemas by name, found true"}};
  for (const auto& [parameters, complaint] : kCases) {
    const ordered_json list = ordered_json::array(
        {{{"type", "function"},
          {"function", {{"name", "f"}, {"parameters", ordered_json::parse(parameters)}}}}});
    for (const AnswerStyle& style : all_styles()) {
      SCOPED_TRACE(style.format.description() + ": " + parameters);
      grammar::Rules rules;
      const auto calls = required_calls({.style = style, .tools = list, .name = {}}, &rules);
      ASSERT_FALSE(calls.ok());
      EXPECT_EQ(calls.status().message(), std::string("tools[0].function.parameters.") + complaint);
      rules = {};
      EXPECT_TRUE(possible_calls({.style = style, .tools = list, .name = {}}, &rules).ok());
    }
  }
}

// Some clients write null for what they have nothing of.
TEST(CallGrammarTest, NullIsNoKeyword) {
  const auto list = ordered_json::parse(R"([{"type": "function", "function": {"name": "f",
      "parameters": {"type": "object", "properties": null, "required": null, "$defs": null}}}])");
  for (const AnswerStyle& style : all_styles()) {
    SCOPED_TRACE(style.format.description());
    grammar::Rules rules;
    const auto calls = required_calls({.style = style, .tools = list, .name = {}}, &rules);
    ASSERT_TRUE(calls.ok()) << calls.status().message();
    const auto grammar = grammar::build_grammar(rules, rules.add("answer", *calls)).value();
    EXPECT_EQ(match(grammar, call_text(style, "f", ordered_json::object())),
              grammar::Match::kWhole);
  }
}

// Many arguments of a definition that contains itself, in many tools; and large definitions beside
// arguments that do not refer to them.
TEST(CallGrammarTest, DefinitionsOfManyArgumentsTakeLittleWork) {
  ordered_json itself = {{"type", "object"}, {"properties", ordered_json::object()}};
  for (int i = 0; i < 8; ++i) itself["properties"][fmt::format("m{}", i)] = {{"$ref", "#/$defs/A"}};
  ordered_json of_itself, numbers;
  for (int i = 0; i < 200; ++i) {
    of_itself[fmt::format("p{}", i)] = {{"$ref", "#/$defs/A"}};
    numbers[fmt::format("p{}", i)] = {{"type", "integer"}};
  }
  const ordered_json large = {{"enum", ordered_json(100'000, 0)}};
  const ordered_json each[] = {{{"properties", of_itself}, {"$defs", {{"A", itself}}}},
                               {{"properties", numbers}, {"$defs", {{"A", large}}}}};
  for (const ordered_json& parameters : each) {
    ordered_json list = ordered_json::array();
    for (int i = 0; i < 10; ++i) {
      list.push_back({{"type", "function"},
                      {"function", {{"name", fmt::format("f{}", i)}, {"parameters", parameters}}}});
    }
    for (const char* name : {"glm45", "minimax_m3", "gemma4", "pythonic"}) {
      SCOPED_TRACE(name);
      const AnswerStyle style = style_of(*answer::find_call_format(name));
      grammar::Rules rules;
      const auto calls = required_calls({.style = style, .tools = list, .name = {}}, &rules);
      ASSERT_TRUE(calls.ok()) << calls.status().message();
      EXPECT_LT(rules.schema_steps, 400'000u);
    }
  }
}

// GPT-OSS: one call, after reasoning or without, of the tool that is named.
TEST(CallGrammarTest, HarmonyCallsAreMessagesOfTheirOwn) {
  const AnswerStyle style = harmony_style();
  const auto match = [&](const std::string& name, const std::string& text) {
    return grammar::match(grammar_of(style, name).value(), with_special_tokens(text));
  };
  const std::string stop = "<|channel|>commentary to=functions.stop <|constrain|>json<|message|>{}";
  const std::string find =
      "<|channel|>commentary to=functions.find <|constrain|>json<|message|>{\"a\": 1, \"s\": \"\"}";
  const std::string analysis = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
  for (const std::string& before : {std::string(), analysis}) {
    EXPECT_EQ(match("", before + stop), grammar::Match::kWhole);
    EXPECT_EQ(match("", before + find), grammar::Match::kWhole);
    EXPECT_EQ(match("stop", before + stop), grammar::Match::kWhole);
    EXPECT_EQ(match("stop", before + find), grammar::Match::kNone);
    EXPECT_EQ(match("", before + stop + "<|end|>"), grammar::Match::kNone);
    EXPECT_EQ(match("", before + "<|channel|>final<|message|>{}"), grammar::Match::kNone);
  }
  EXPECT_EQ(match("", analysis), grammar::Match::kBegins);
  EXPECT_EQ(match("", "<|channel|>commentary to=functions.f"), grammar::Match::kBegins);
  EXPECT_EQ(match("", "<|channel|>commentary to=functions.other "), grammar::Match::kNone);
}

// Of hundreds of tools each can be called; of ten thousand one that is named can, and a call of any
// is refused. Either takes bounded time and memory.
TEST(CallGrammarTest, ManyTools) {
  ordered_json many = ordered_json::array();
  const auto grammar_of_many = [&](const AnswerStyle& style, const std::string& name) {
    grammar::Rules rules;
    const base::WorkTimer work;
    const auto calls =
        required_calls({.style = style, .tools = many, .name = name, .one_call = false}, &rules);
    EXPECT_TRUE(calls.ok()) << calls.status().message();
    auto grammar = grammar::build_grammar(rules, rules.add("answer", *calls));
    EXPECT_LT(work.seconds(), 20);
    if (grammar.ok()) {
      EXPECT_LT(grammar->encode().size(), size_t{64} << 20);
    }
    return grammar;
  };
  for (const int count : {300, 10'000}) {
    while (static_cast<int>(many.size()) < count) {
      many.push_back(tools()[0]);
      many.back()["function"]["name"] = fmt::format("tool_{}", many.size() - 1);
    }
    const std::string last = fmt::format("tool_{}", count - 1);
    for (const AnswerStyle& style :
         {style_of(*answer::find_call_format("hermes")), harmony_style()}) {
      SCOPED_TRACE(fmt::format("{}, {} tools", style.format.description(), count));
      const auto named = grammar_of_many(style, last), any = grammar_of_many(style, "");
      ASSERT_TRUE(named.ok()) << named.status().message();
      ASSERT_EQ(any.ok(), count == 300) << any.status().message();
      if (!any.ok()) {
        EXPECT_NE(any.status().message().find("too many states"), std::string::npos)
            << any.status().message();
      } else if (style.format.calls != nullptr) {
        const answer::CallToWrite call{last, {{"a", 1}, {"s", "x"}}};
        EXPECT_EQ(match(*any, answer::calls_text(*style.format.calls, {call})),
                  grammar::Match::kWhole);
      }
    }
  }
}

}  // namespace
}  // namespace wideep::server
