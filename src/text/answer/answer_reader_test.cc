// SPDX-License-Identifier: Apache-2.0
//
// A table has an example of every format with what it means. Each is also cut at every byte and
// into random pieces, and random mixtures of a format's own marks into random ones: the parts must
// be those of the whole text. A stream has no other result than its pieces, and what was sent
// cannot be taken back. Random calls that are written by a format's shape must be read as what was
// meant. A failure is a call that a client gets as text, or text that it runs as a call.
#include "answer/answer_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "answer/answer_testing.h"
#include "answer/written_calls_testing.h"
#include "base/work_timer.h"

namespace wideep::answer {
namespace {

struct Example {
  const char* format;
  std::string text;
  std::string content;
  std::vector<ReadCall> calls;
};

const std::vector<Example>& examples() {
  static const std::vector<Example> all = {
      // Hermes
      {"hermes",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
       "",
       {{"f", "", "{\"a\": 1}"}}},
      {"hermes",
       "Let me see.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\"}}\n"
       "</tool_call>\n<tool_call>{\"arguments\": {}, \"name\": \"g\"}</tool_call>\n",
       "Let me see.",
       {{"f", "", "{\"s\": \"</tool_call>\"}"}, {"g", "", "{}"}}},
      {"hermes",
       "<tool_call>[{\"name\":\"f\",\"arguments\":{}},{\"name\":\"g\"}]</tool_call>",
       "",
       {{"f", "", "{}"}, {"g", "", "{}"}}},
      {"hermes",
       "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":2}\"}</tool_call> Done.",
       "Done.",
       {{"f", "", "{\"a\":2}"}}},
      // A line feed in a string is JSON only as an escape.
      {"hermes",
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"x\ny\"}}</tool_call>",
       "",
       {{"f", "", "{\"s\":\"x\\ny\"}"}}},
      {"hermes",
       "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": oops}}</tool_call>.",
       ".",
       {{"f", "", "{\"a\": oops}}"}}},
      {"hermes",
       "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
       "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
       {}},
      {"hermes",
       "Write <tool_call> and then {} like <tool_cal",
       "Write <tool_call> and then {} like <tool_cal",
       {}},
      {"hermes",
       "<tool_call>{\"name\": 3}</tool_call> \n",
       "<tool_call>{\"name\": 3}</tool_call> \n",
       {}},
      {"hermes",
       "<tool_call>{\"name\":\"g\",\"arguments\":null,\"id\":7}</tool_call>",
       "",
       {{"g", "", "{}"}}},
      // Granite, Hunyuan
      {"granite",
       "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": [1, 2]}}, {\"name\": \"g\", "
       "\"arguments\": {}}]",
       "",
       {{"f", "", "{\"a\": [1, 2]}"}, {"g", "", "{}"}}},
      {"granite", "<tool_call>[]", "<tool_call>[]", {}},
      {"hunyuan_a13b",
       "<tool_calls>\n[{\"name\":\"g\",\"arguments\":{}}]\n</tool_calls>",
       "",
       {{"g", "", "{}"}}},
      {"minimax",
       "<tool_calls>\n{\"name\":\"g\",\"arguments\":{}}\n{\"name\":\"f\",\"arguments\":{}}\n"
       "</tool_calls>",
       "",
       {{"g", "", "{}"}, {"f", "", "{}"}}},
      // Llama
      {"llama3_json",
       "{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
       "",
       {{"f", "", "{\"a\": 1}"}}},
      {"llama3_json",
       "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; "
       "{\"name\": \"g\", \"parameters\": {}}",
       "",
       {{"f", "", "{}"}, {"g", "", "{}"}}},
      {"llama3_json", "{\"name\": \"f\"}", "{\"name\": \"f\"}", {}},
      {"llama3_json", "{\"age\": 3}", "{\"age\": 3}", {}},
      {"llama3_json",
       "Call {\"name\": \"f\", \"parameters\": {}}",
       "Call {\"name\": \"f\", \"parameters\": {}}",
       {}},
      {"llama4_pythonic",
       "<|python_start|>[f(a=1, s=\"x, )\", b=True), g()]<|python_end|>",
       "",
       {{"f", "", R"x({"a": 1, "s": "x, )", "b": true})x"}, {"g", "", "{}"}}},
      {"pythonic",
       "[f(l=[1, 'it\\'s', None], o={'k': (1, 2.5)}, n='\\u00e9')]",
       "",
       {{"f", "", "{\"l\": [1, \"it's\", null], \"o\": {\"k\": [1, 2.5]}, \"n\": \"é\"}"}}},
      {"pythonic", "[f(a=<3>)]", "", {{"f", "", "{\"a\": \"<3>\"}"}}},
      {"pythonic", "[f(a=, s=\"x\")]", "", {{"f", "", "{\"a\": \"\", \"s\": \"x\"}"}}},
      {"qwen3_coder", "<function=f>\n<parameter=s></function>", "", {{"f", "", "{\"s\": \"\"}"}}},
      {"pythonic", "[1, 2, 3]", "[1, 2, 3]", {}},
      {"pythonic", "[f(1)]", "[f(1)]", {}},
      {"lfm2",
       "<|tool_call_start|>[get_weather(city='Bern')]<|tool_call_end|>Checking.",
       "Checking.",
       {{"get_weather", "", "{\"city\": \"Bern\"}"}}},
      // Mistral
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", "
       "\"arguments\": {}}]",
       "",
       {{"f", "", "{\"a\": 1}"}, {"g", "", "{}"}}},
      {"mistral",
       "Yes.[TOOL_CALLS]f[CALL_ID]a1B2c3D4e[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}",
       "Yes.",
       {{"f", "a1B2c3D4e", "{\"a\": 1}"}, {"g", "", "{}"}}},
      {"mistral", "[TOOL_CALLS]f{\"a\": 1}", "", {{"f", "", "{\"a\": 1}"}}},
      {"mistral_v11",
       "[TOOL_CALLS]g[ARGS]{}[TOOL_CALLS]f[ARGS] {\"a\":1}",
       "",
       {{"g", "", "{}"}, {"f", "", "{\"a\":1}"}}},
      // DeepSeek
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n"
       "```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n"
       "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       {{"f", "", "{\"a\": 1}"}, {"g", "", "{}"}}},
      {"deepseek_v31",
       "Now.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "Now.",
       {{"f", "", "{\"a\": 1}"}, {"g", "", "{}"}}},
      {"deepseek_v32",
       "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
       "string=\"true\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"a\" string=\"false\">12"
       "</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n"
       "</｜DSML｜function_calls>",
       "",
       {{"f", "", "{\"s\": \"12\", \"a\": 12}"}, {"g", "", "{}"}}},
      {"deepseek_v4",
       "So.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"g\">\n\n</｜DSML｜invoke>\n"
       "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"l\" string=\"false\">[1]"
       "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
       "So.",
       {{"g", "", "{}"}, {"f", "", "{\"l\": [1]}"}}},
      // Kimi
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
       "{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}"
       "<|tool_call_end|><|tool_calls_section_end|>",
       "",
       {{"f", "functions.f:0", "{\"a\": 1}"}, {"g", "functions.g:1", "{}"}}},
      // GLM
      {"glm45",
       "\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s</arg_key>\n"
       "<arg_value>1 \"x\"\n</arg_value>\n</tool_call>",
       "",
       {{"f", "", "{\"a\": 1, \"s\": \"1 \\\"x\\\"\\n\"}"}}},
      {"glm47",
       "<tool_call>g</tool_call><tool_call>f<arg_key>b</arg_key><arg_value>True</arg_value>"
       "</tool_call>",
       "",
       {{"g", "", "{}"}, {"f", "", "{\"b\": true}"}}},
      // The model has ended its answer in the middle of a value.
      {"glm45",
       "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>abc",
       "",
       {{"f", "", "{\"s\": \"abc\"}"}}},
      // Cohere, Solar
      {"cohere_command4",
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
       "{\"a\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n"
       "]<|END_ACTION|>",
       "",
       {{"f", "", "{\"a\": 1}"}, {"g", "", "{}"}}},
      {"cohere_command3",
       "<|START_ACTION|>[{\"tool_name\":\"g\"}]<|END_ACTION|>",
       "",
       {{"g", "", "{}"}}},
      {"solar_open",
       "<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>f<|tool_call:args|>{\"a\": 1}"
       "<|tool_call:end|><|tool_call:begin|>0000000000<|tool_call:name|>g<|tool_call:args|>"
       "<|tool_call:end|><|calls|>",
       "",
       {{"f", "a1b2c3d4e5", "{\"a\": 1}"}, {"g", "0000000000", "{}"}}},
      // Gemma
      {"gemma4",
       "<|tool_call>call:f{a:1,b:true,l:[1,<|\"|>x, ]<|\"|>],n:<|\"|>\"y\"<|\"|>,o:{k:{},z:null},"
       "s:<|\"|>1}\n<|\"|>}<tool_call|><|tool_call>call:g{}<tool_call|><|tool_response>",
       "",
       {{"f", "",
         "{\"a\": 1, \"b\": true, \"l\": [1, \"x, ]\"], \"n\": \"\\\"y\\\"\", \"o\": {\"k\": {}, "
         "\"z\": null}, \"s\": \"1}\\n\"}"},
        {"g", "", "{}"}}},
      // Spaces, JSON's quotes, Python's words, and none.
      {"gemma4",
       "I see. <|tool_call> call: f { \"a\" : 2 , s:\"a\\\"\\d\\u00e9\\ud800\", <|\"|>o<|\"|>: "
       "{\"k\": [] "
       "}, n: None, x: two words } <tool_call|>",
       "I see.",
       {{"f", "",
         "{\"a\": 2, \"s\": \"a\\\"\\\\d\\u00e9\\ufffd\", \"o\": {\"k\": []}, \"n\": null, "
         "\"x\": \"two words\"}"}}},
      {"gemma4", "<|tool_call>call:g<tool_call|>Yes", "Yes", {{"g", "", "{}"}}},
      // The schema says that it is a text.
      {"gemma4",
       "<|tool_call>call:f{s:12,a:12}<tool_call|>",
       "",
       {{"f", "", "{\"s\": \"12\", \"a\": 12}"}}},
      // Ends that are missing, and one too many.
      {"gemma4",
       "<|tool_call>call:f{l:[1,2<tool_call|><|tool_call>call:f{o:{k:[1},a:1],b:}<tool_call|>",
       "",
       {{"f", "", "{\"l\": [1, 2]}"}, {"f", "", "{\"o\": {\"k\": [1]}, \"a\": 1, \"b\": \"\"}"}}},
      {"gemma4", "<|tool_call>call:f{s:<|\"|>ab", "", {{"f", "", "{\"s\": \"ab\"}"}}},
      {"gemma4", "<|tool_call>call:f{l:[[{k:", "", {{"f", "", "{\"l\": [[{\"k\": \"\"}]]}"}}},
      // Laguna, Ling 3
      {"poolside_v1",
       "<tool_call>g\n</tool_call>\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n"
       "</tool_call>\n",
       "",
       {{"g", "", "{}"}, {"f", "", "{\"a\": 1}"}}},
      {"ling3",
       "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value><arg_key>s</"
       "arg_key>\n<arg_value>"
       "x</arg_value>\n</tool_call>",
       "",
       {{"f", "", "{\"a\": 1, \"s\": \"x\"}"}}},
      // Hy3
      {"hy_v3",
       "Yes.<tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n"
       "<arg_key:opensource>a</arg_key:opensource>\n<arg_value:opensource>1</"
       "arg_value:opensource>\n"
       "<arg_key:opensource>s</arg_key:opensource>\n<arg_value:opensource>1</"
       "arg_value:opensource>\n"
       "</tool_call:opensource>\n<tool_call:opensource>g<tool_sep:opensource></"
       "tool_call:opensource>"
       "</tool_calls:opensource>",
       "Yes.",
       {{"f", "", "{\"a\": 1, \"s\": \"1\"}"}, {"g", "", "{}"}}},
      {"hy_v3_preview",
       "<tool_call>f<tool_sep><arg_key>b</arg_key><arg_value>true</arg_value></tool_call>",
       "",
       {{"f", "", "{\"b\": true}"}}},
      // Qwen3-Coder
      {"qwen3_coder",
       "I call.\n<tool_call>\n<function=f>\n<parameter=s>\nif (a < b) {\n  x();\n}\n</parameter>\n"
       "<parameter=a>\n42\n</parameter>\n<parameter=o>\n{'k': None}\n</parameter>\n<parameter=n>\n"
       "null\n</parameter>\n<parameter=new>\ntext\n</parameter>\n</function>\n</tool_call>",
       "I call.",
       {{"f", "",
         "{\"s\": \"if (a < b) {\\n  x();\\n}\", \"a\": 42, \"o\": {\"k\": null}, "
         "\"n\": null, \"new\": \"text\"}"}}},
      {"qwen3_coder",
       "<function=f>\n<parameter=l>\n[1]\n</function>\n</tool_call>",
       "",
       {{"f", "", "{\"l\": [1]}"}}},
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n</function>\n</tool_call>",
       "",
       {{"f", "", "{}"}}},
      {"mimo",
       "<tool_call>\n<function=f>\n<parameter=s>pwd && ls</parameter>\n</function>\n</tool_call>",
       "",
       {{"f", "", "{\"s\": \"pwd && ls\"}"}}},
      {"qwen3_coder", "<function=f> is written so", "<function=f> is written so", {}},
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=a>\n4\n</parameter>\nno more",
       "no more",
       {{"f", "", "{\"a\": 4}"}}},
      // MiniMax
      {"minimax_m2",
       "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n<parameter "
       "name=\"s\">x</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
       "",
       {{"f", "", "{\"a\": 1, \"s\": \"x\"}"}, {"g", "", "{}"}}},
      {"minimax_m3",
       "Now.]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke "
       "name=\"f\">]<]minimax[>[<a>1]<]minimax[>["
       "</a>]<]minimax[>[<s>a <b> "
       "\"c\"]<]minimax[>[</s>]<]minimax[>[<o>]<]minimax[>[<k>]<]minimax[>["
       "<item>1]<]minimax[>[</item>]<]minimax[>[<item>x]<]minimax[>[</item>]<]minimax[>[</k>"
       "]<]minimax[>[<o>true]<]minimax[>[</o>]<]minimax[>[</o>]<]minimax[>[<l>]<]minimax[>[</l>"
       "]<]minimax[>[</invoke>\n]<]minimax[>[<invoke name=\"g\">]<]minimax[>[</invoke>\n"
       "]<]minimax[>[</tool_call>",
       "Now.",
       {{"f", "",
         "{\"a\": 1, \"s\": \"a <b> \\\"c\\\"\", \"o\": {\"k\": [1, \"x\"], \"o\": true}, \"l\": "
         "[]}"},
        {"g", "", "{}"}}},
      // The schema says what is a text inside, too; ends that are missing; JSON in an element.
      {"minimax_m3",
       "]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<places>]<]minimax[>[<item>"
       "]<]minimax[>[<zip>8001]<]minimax[>[</zip>]<]minimax[>[<x>8001]<]minimax[>[</x>"
       "]<]minimax[>[</invoke>]<]minimax[>[<invoke "
       "name=\"f\">]<]minimax[>[<s>12]<]minimax[>[</invoke>"
       "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<o>{\"k\": 1}]<]minimax[>[</o>]<]minimax[>[<l>"
       "]<]minimax[>[<item>2",
       "",
       {{"get_weather", "", "{\"places\": [{\"zip\": \"8001\", \"x\": 8001}]}"},
        {"f", "", "{\"s\": \"12\"}"},
        {"f", "", "{\"o\": {\"k\": 1}, \"l\": [2]}"}}},
      {"dots",
       "Now.<dots_function_call>\n<invoke name=\"f\">\n<parameter name=\"s\">x</parameter>\n"
       "</invoke>\n</dots_function_call>",
       "Now.",
       {{"f", "", "{\"s\": \"x\"}"}}},
  };
  return all;
}

AnswerSettings settings_for(const Example& example) {
  const CallFormat* format = find_call_format(example.format);
  EXPECT_NE(format, nullptr) << example.format;
  return settings_of(nullptr, format, some_tools());
}

std::string described(const ReadAnswer& answer) {
  std::string text = "reasoning «" + answer.reasoning + "» content «" + answer.content + "»";
  for (const ReadCall& call : answer.calls) {
    text += "\n  " + call.name + " [" + call.id + "] " + call.arguments;
  }
  return text;
}

TEST(AnswerReaderTest, TellsCallsFromContent) {
  for (const Example& each : examples()) {
    const ReadAnswer expected{.reasoning = "", .content = each.content, .calls = each.calls};
    EXPECT_EQ(described(read_answer(settings_for(each), each.text)), described(expected))
        << each.format << ": " << each.text;
  }
}

TEST(AnswerReaderTest, EveryFormatHasAnExample) {
  for (const CallFormat* format : call_formats()) {
    const bool has = std::any_of(examples().begin(), examples().end(), [&](const Example& each) {
      return find_call_format(each.format) == format && !each.calls.empty();
    });
    EXPECT_TRUE(has) << format->name;
  }
}

TEST(AnswerReaderTest, CutAnywhereGivesTheSame) {
  std::minstd_rand random(1);
  for (const Example& each : examples()) {
    const AnswerSettings settings = settings_for(each);
    // Also where the answer itself ends early, by a limit or not.
    for (size_t size = 0; size <= each.text.size(); ++size) {
      const std::string_view text = std::string_view(each.text).substr(0, size);
      const bool is_cut = size % 2 == 1;
      const std::string whole = described(read_answer(settings, text, {}, is_cut));
      const std::vector<size_t> bytes(size, 1);
      ASSERT_EQ(described(read_answer(settings, text, bytes, is_cut)), whole) << text;
      ASSERT_EQ(described(read_answer(settings, text, random_pieces(size, random), is_cut)), whole)
          << text;
    }
  }
}

// Where a limit ends an answer that consists of calls, nothing of their marks is content.
TEST(AnswerReaderTest, MarksOfCallsThatAreCutAreNoContent) {
  for (const CallFormat* format : call_formats()) {
    for (const ReasoningFormat* reasoning :
         {find_reasoning_format("none"), find_reasoning_format("qwen3")}) {
      AnswerSettings settings = settings_of(reasoning, format, some_tools());
      settings.must_call = true;
      const std::string before = reasoning != nullptr ? "<think>hm</think>\n\n" : "";
      const std::string text =
          before + calls_text(*format, {{"f", {{"a", 1}}}, {"get_weather", {{"city", "x"}}}});
      for (size_t size = 0; size <= text.size(); ++size) {
        for (const std::vector<size_t>& pieces :
             {std::vector<size_t>(), std::vector<size_t>(size, 1)}) {
          const ReadAnswer answer = read_answer(settings, text.substr(0, size), pieces, true);
          ASSERT_EQ(trimmed(answer.content), "") << format->name << ": " << text.substr(0, size);
          if (size > text.size() / 2) {
            ASSERT_FALSE(answer.calls.empty()) << text.substr(0, size);
          }
        }
      }
    }
  }
}

// Likewise where there may be content: once a call has ended, what may follow it is begun.
TEST(AnswerReaderTest, MarksAfterCallsThatAreCutAreNoContent) {
  const AnswerSettings settings = settings_of(nullptr, find_call_format("hermes"), some_tools());
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n";
  for (const char* rest : {"<", "</tool", "</tool_call>", "</tool_call>\n"}) {
    EXPECT_EQ(read_answer(settings, call + rest, {}, true).content, "") << rest;
  }
  EXPECT_EQ(read_answer(settings, call + "</tool_call>\na <", {}, true).content, "a <");
  EXPECT_EQ(read_answer(settings, "a <tool_call>\n{\"na", {}, true).content,
            "a <tool_call>\n{\"na");
}

TEST(AnswerReaderTest, WithoutToolsAllIsContent) {
  for (const Example& each : examples()) {
    const AnswerSettings settings =
        settings_of(nullptr, find_call_format(each.format), nlohmann::ordered_json());
    EXPECT_EQ(read_answer(settings, each.text).content, each.text);
  }
}

// What a model has completed is JSON.
TEST(AnswerReaderTest, ArgumentsAreJson) {
  for (const Example& each : examples()) {
    if (each.text.find("oops") != std::string::npos) continue;
    for (const ReadCall& call : read_answer(settings_for(each), each.text).calls) {
      EXPECT_TRUE(nlohmann::json::accept(call.arguments)) << call.arguments;
    }
  }
}

// Random mixtures of the formats' own pieces: the hardest texts to cut.
TEST(AnswerReaderTest, RandomTextsGiveTheSameHoweverTheyAreCut) {
  std::mt19937 random(7);
  for (size_t which = 0; which < 2 * call_formats().size(); ++which) {
    const CallFormat* format = call_formats()[which / 2];
    std::vector<std::string> pieces = {
        "f",  "g", "unknown", "{", "}",    "\"",   "\"name\": \"f\"",
        ", ", ":", "\n",      " ", "[",    "]",    "\"arguments\": {",
        "(",  ")", "a=",      "1", "\\",   "é",    "<",
        ">",  "/", "word",    "'", "null", "True", "</answer>"};
    const char* const reasoning = which % 2 == 0 ? "hunyuan_a13b" : "solar_open";
    AnswerSettings settings = settings_of(find_reasoning_format(reasoning), format, some_tools());
    for (const std::string_view marker : settings.format.markers()) pieces.emplace_back(marker);
    for (int i = 0; i < 1500; ++i) {
      std::string text;
      for (auto n = random() % 24; n > 0; --n) text += pieces[random() % pieces.size()];
      settings.begins_in_reasoning = random() % 4 == 0;
      const bool is_cut = random() % 2 == 0;
      const ReadAnswer whole = read_answer(settings, text, {}, is_cut);
      ASSERT_EQ(described(read_answer(settings, text, random_pieces(text.size(), random), is_cut)),
                described(whole))
          << format->name << ": " << text;
      const bool makes_json = format->form != ArgumentsForm::kJson && !is_cut;
      ASSERT_TRUE(!makes_json || has_json_arguments(whole)) << format->name << ": " << text;
    }
  }
}

// A value of a type, of random size; of texts also what looks like the format's own marks.
nlohmann::ordered_json random_value(Types type, const std::vector<std::string_view>& marks,
                                    std::mt19937& random, int depth = 0) {
  using nlohmann::ordered_json;
  constexpr const char* kPieces[] = {"a", " ", "é", "\"", "\\", "\n",
                                     "'", "{", "]", ", ", "0",  "<"};
  constexpr Types kTypes[] = {kText, kNumber, kBoolean, kNull, kObject, kList};
  const auto any = [&] {
    return random_value(kTypes[random() % (depth > 2 ? 4 : 6)], marks, random, depth + 1);
  };
  switch (type) {
    case kText: {
      std::string text;
      for (auto n = random() % 8; n > 0; --n) {
        const bool is_mark = random() % 6 == 0 && !marks.empty();
        text += is_mark ? marks[random() % marks.size()] : kPieces[random() % 12];
      }
      return text;
    }
    case kNumber:
      if (random() % 2 == 0) return static_cast<int>(random() % 2000) - 1000;
      return static_cast<double>(random() % 1000) / 8 - 50;
    case kBoolean:
      return random() % 2 == 0;
    case kObject: {
      ordered_json object = ordered_json::object();
      for (auto n = random() % 4; n > 0; --n) object["k" + std::to_string(n)] = any();
      return object;
    }
    case kList: {
      ordered_json list = ordered_json::array();
      for (auto n = random() % 4; n > 0; --n) list.push_back(any());
      return list;
    }
    default:
      return nullptr;
  }
}

// What a model writes by the shape of its format is read as what it meant.
TEST(AnswerReaderTest, ReadsWhatIsWritten) {
  std::mt19937 random(3);
  for (const CallFormat* format : call_formats()) {
    const AnswerSettings settings = settings_of(nullptr, format, some_tools());
    // Between tags, marks in values may be those of other calls: value_end_test.cc.
    std::vector<std::string_view> marks;
    const bool has_quotes =
        format->form == ArgumentsForm::kJson || format->form == ArgumentsForm::kPython;
    if (has_quotes) marks = settings.format.markers();
    for (int i = 0; i < 300; ++i) {
      std::vector<CallToWrite> calls;
      std::vector<ReadCall> expected;
      for (auto n = 1 + random() % 3; n > 0; --n) {
        nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
        const std::pair<const char*, Types> all[] = {{"a", kNumber},  {"s", kText},
                                                     {"b", kBoolean}, {"l", kList},
                                                     {"o", kObject},  {"n", kNull}};
        for (const auto& [name, type] : all) {
          // Whether what is inside is a text, the schema does not say.
          const bool is_unknown =
              format->form == ArgumentsForm::kElements && (type == kList || type == kObject);
          if (random() % 2 == 0 && !is_unknown) arguments[name] = random_value(type, marks, random);
        }
        const bool has_index = format->shape.before_arguments.find("{index}") != std::string::npos;
        const bool has_id = format->shape.before_name.find("{id}") != std::string::npos;
        const std::string id = has_index ? "functions.f:" + std::to_string(calls.size())
                               : has_id  ? with_number("{id}", calls.size())
                                         : std::string();
        calls.push_back({"f", arguments});
        expected.push_back({"f", id, arguments.dump()});
      }
      const std::string text = calls_text(*format, calls);
      ReadAnswer answer = read_answer(settings, text, random_pieces(text.size(), random));
      for (ReadCall& call : answer.calls) {  // but for white space
        ASSERT_TRUE(nlohmann::json::accept(call.arguments)) << text << "\n" << described(answer);
        call.arguments = nlohmann::ordered_json::parse(call.arguments).dump();
      }
      const ReadAnswer meant{.reasoning = {}, .content = {}, .calls = std::move(expected)};
      ASSERT_EQ(described(answer), described(meant)) << format->name << ": " << text;
    }
  }
}

TEST(AnswerReaderTest, CallsWithoutArguments) {
  for (const CallFormat* format : call_formats()) {
    const nlohmann::ordered_json none = nlohmann::ordered_json::object();
    const std::string text = calls_text(*format, {{"g", none}, {"f", {{"a", 1}}}, {"g", none}});
    const AnswerSettings settings = settings_of(nullptr, format, some_tools());
    const ReadAnswer answer = read_answer(settings, text, std::vector<size_t>(text.size(), 1));
    ASSERT_EQ(answer.calls.size(), 3u) << text;
    EXPECT_EQ(answer.content, "") << text;
    for (const size_t i : {size_t{0}, size_t{2}}) {
      EXPECT_EQ(answer.calls[i].name, "g") << text;
      EXPECT_EQ(answer.calls[i].arguments, "{}") << text;
    }
  }
}

// A call in reasoning that has no end is one, in streams too; a limit in it is no end.
TEST(AnswerReaderTest, CallsEndReasoning) {
  for (const CallFormat* format : call_formats()) {
    const std::string call = calls_text(*format, {{"f", {{"s", "x"}}}});
    const auto begins = [&](std::string_view mark) { return call.starts_with(mark); };
    if (std::ranges::none_of(format->begins, begins)) continue;  // only as a whole answer
    for (const char* name : {"qwen3", "hy_v3", "solar_open", "cohere_command4"}) {
      AnswerSettings settings = settings_of(find_reasoning_format(name), format, some_tools());
      settings.begins_in_reasoning = true;
      const std::string text = "I need it.\n" + call;
      const ReadAnswer answer = read_answer(settings, text, std::vector<size_t>(text.size(), 1));
      EXPECT_EQ(described(answer), described(read_answer(settings, text)));
      EXPECT_EQ(answer.reasoning, "I need it.") << name << ": " << text;
      EXPECT_EQ(answer.content, "") << name << ": " << text;
      ASSERT_EQ(answer.calls.size(), 1u) << name << ": " << text;
      EXPECT_EQ(nlohmann::json::parse(answer.calls[0].arguments), (nlohmann::json{{"s", "x"}}));
    }
  }
}

// The name and the beginning of a text argument are there before its end.
TEST(AnswerReaderTest, StreamsArguments) {
  const AnswerSettings settings =
      settings_of(nullptr, find_call_format("qwen3_coder"), some_tools());
  AnswerParts parts(true);
  const auto reader = make_answer_reader(settings);
  reader->add_text("<tool_call>\n<function=f>\n<parameter=s>\nint main", parts);
  const std::vector<CallPart> calls = parts.take_calls();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_TRUE(calls[0].begins);
  EXPECT_EQ(calls[0].arguments, "{\"s\": \"int main");
  EXPECT_EQ(parts.num_ended_calls(), 0);
  // The call has ended when something else than more of its value follows.
  reader->add_text("()\n</parameter>\n</function>\n</tool_call>", parts);
  ASSERT_EQ(parts.take_calls().at(0).arguments, "()");
  EXPECT_EQ(parts.num_ended_calls(), 0);
  reader->add_text("\n<tool_call>\n<function=g>\n</function>", parts);
  ASSERT_EQ(parts.take_calls().at(0).arguments, "\"}");
  EXPECT_EQ(parts.num_ended_calls(), 2);
}

struct Thought {
  const char* format;
  bool begins_in_reasoning;
  const char* text;
  const char* reasoning;
  const char* content;
};

constexpr Thought kThoughts[] = {
    {"qwen3", false, "<think>\nI see.\n</think>\n\nYes.", "I see.", "Yes."},
    {"qwen3", true, "I see.\n</think>\n\nYes. <think>", "I see.", "Yes. <think>"},
    {"qwen3", true, "<think>I see.</think>Yes.", "I see.", "Yes."},
    {"qwen3", false, "\nYes. <think>no</think>", "", "\nYes. <think>no</think>"},
    {"qwen3", false, "<think>never ends ", "never ends", ""},
    {"qwen3", false, "<think>\n\n</think>\n\nYes.", "", "Yes."},
    {"qwen3", true, "a </thin </think> b", "a </thin", "b"},
    {"hunyuan_a13b", false, "<think>\nhm\n</think>\n<answer>\nYes.\n</answer>", "hm", "Yes."},
    {"hunyuan_a13b", false, "<think>hm</think>Yes </answer>", "hm", "Yes </answer>"},
    {"mistral", false, "[THINK]hm[/THINK]Yes.", "hm", "Yes."},
    {"qwen3", false, "</think>\n\nYes.", "", "Yes."},
    {"solar_open", false, "<|think|>hm<|end|><|begin|>assistant<|content|>Yes. <|end|>", "hm",
     "Yes."},
    {"solar_open", false, "<|content|>Yes.<|end|>", "", "Yes."},
    {"cohere_command4", true, "hm<|END_THINKING|><|START_TEXT|>Yes.<|END_TEXT|>", "hm", "Yes."},
    {"cohere_command4", false, "<|START_TEXT|>Yes.<|END_TEXT|>", "", "Yes."},
    {"gemma4", false, "<|channel>thought\nhm\n<channel|>Yes.", "hm", "Yes."},
    {"gemma4", false, "<|channel>thought\n<channel|>Yes.", "", "Yes."},
    {"gemma4", false, "Yes.<|channel>thought\n<channel|>", "", "Yes."},
    {"gemma4", false, "Yes. <channel|>", "", "Yes."},
    {"minimax_m3", false, "<mm:think>hm</mm:think>Yes.", "hm", "Yes."},
    {"minimax_m3", false, "</mm:think>Yes.", "", "Yes."},
    {"cohere_command3", true, "hm<|END_THINKING|><|START_RESPONSE|>Yes.", "hm", "Yes."},
    // Again behind the content.
    {"cohere_command4", true,
     "a <|END_THINKING|><|START_TEXT|>b<|END_TEXT|><|START_THINKING|>\nc<|END_THINKING|>", "a\nc",
     "b"},
    {"hy_v3", true, "hm</think:opensource>Yes.", "hm", "Yes."},
    {"granite", false, "<think>hm</think>\n\n<response>Yes.</response>", "hm", "Yes."},
};

TEST(AnswerReaderTest, TellsReasoningFromContent) {
  for (const Thought& each : kThoughts) {
    AnswerSettings settings =
        settings_of(find_reasoning_format(each.format), nullptr, nlohmann::ordered_json());
    settings.begins_in_reasoning = each.begins_in_reasoning;
    const ReadAnswer expected{.reasoning = each.reasoning, .content = each.content, .calls = {}};
    const std::string text = each.text;
    const std::vector<size_t> bytes(text.size(), 1);
    EXPECT_EQ(described(read_answer(settings, text)), described(expected));
    EXPECT_EQ(described(read_answer(settings, text, bytes)), described(expected));
  }
}

TEST(AnswerReaderTest, ReasoningThenCalls) {
  AnswerSettings settings =
      settings_of(find_reasoning_format("qwen3"), find_call_format("hermes"), some_tools());
  const std::string text =
      "<think>Maybe "
      "<tool_call>?</think>\n\n<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>";
  const ReadAnswer answer = read_answer(settings, text, std::vector<size_t>(text.size(), 1));
  EXPECT_EQ(answer.reasoning, "Maybe <tool_call>?");
  EXPECT_EQ(answer.content, "");
  ASSERT_EQ(answer.calls.size(), 1u);
}

// Kimi K2-Thinking does not end its reasoning before a call.
TEST(AnswerReaderTest, CallsMayEndReasoning) {
  AnswerSettings settings =
      settings_of(find_reasoning_format("kimi_k2"), find_call_format("kimi_k2"), some_tools());
  settings.begins_in_reasoning = true;
  const ReadAnswer answer =
      read_answer(settings,
                  "I need it. <|tool_calls_section_begin|><|tool_call_begin|>functions.g:3"
                  "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>");
  EXPECT_EQ(answer.reasoning, "I need it.");
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].id, "functions.g:3");
}

TEST(ReasoningFormatTest, PromptsOpenReasoning) {
  const ReasoningFormat& qwen = *find_reasoning_format("qwen3");
  EXPECT_TRUE(opens_reasoning(qwen, "hi<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(opens_reasoning(qwen, "write <think> now<|im_start|>assistant\n"));
  EXPECT_FALSE(opens_reasoning(qwen, "<think>\n\n</think>\n\n"));
  EXPECT_TRUE(closes_reasoning(qwen, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(closes_reasoning(qwen, "<|im_start|>assistant\n"));
  EXPECT_TRUE(closes_reasoning(*find_reasoning_format("hunyuan_a13b"), "</think>\n<answer>\n"));
  const ReasoningFormat& r1 = *find_reasoning_format("deepseek_r1");
  EXPECT_TRUE(opens_reasoning(r1, "<｜Assistant｜>"));
  EXPECT_FALSE(opens_reasoning(r1, "<｜Assistant｜></think>"));
  const ReasoningFormat& solar = *find_reasoning_format("solar_open");
  EXPECT_TRUE(closes_reasoning(solar, "assistant<|think|><|end|><|begin|>assistant"));
  EXPECT_FALSE(closes_reasoning(solar, "<|content|>hi<|end|><|begin|>assistant"));
  const ReasoningFormat& gemma = *find_reasoning_format("gemma4");
  EXPECT_TRUE(closes_reasoning(gemma, "<|turn>model\n<|channel>thought\n<channel|>"));
  EXPECT_FALSE(closes_reasoning(gemma, "<turn|>\n<|turn>model\n"));
  const ReasoningFormat& cohere = *find_reasoning_format("cohere_command4");
  EXPECT_TRUE(opens_reasoning(cohere, "<|CHATBOT_TOKEN|><|START_THINKING|>"));
  EXPECT_TRUE(closes_reasoning(cohere, "<|START_THINKING|><|END_THINKING|>"));
}

TEST(CallFormatsTest, AreChosenByTemplates) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ '<tool_call>\\n{\"name\": \"' }}", "hermes"},
      {"<tool_call>\n<function=example><parameter=a>", "qwen3_coder"},
      {"'\\n<tool_call>' + tc.name <arg_key>", "glm45"},
      {"<｜tool▁calls▁begin｜> ```json", "deepseek_v3"},
      {"<｜tool▁calls▁begin｜>", "deepseek_v31"},
      {"set dsml_token = '｜DSML｜'", "deepseek_v32"},
      {"dsml_token = '｜DSML｜' … '<' + dsml_token + 'tool_calls>\n'", "deepseek_v4"},
      {"set HYTK = ':opensource' … '<tool_sep{}>'.format(HYTK) <tool_call{}>", "hy_v3"},
      {"<tool_call>' + name + '<tool_sep>\n<arg_key>", "hy_v3_preview"},
      {"<|START_ACTION|>[", "cohere_command4"},
      {"<|tool_call:begin|><tool-call-id><|tool_call:name|>", "solar_open"},
      {"'<|tool_call>call:' + function['name'] + '{'", "gemma4"},
      {"<dots_function_call>\n<invoke name=\"", "dots"},
      {"<|tool_calls_section_begin|>", "kimi_k2"},
      {"<minimax:tool_call>", "minimax_m2"},
      {"set ns_token = ']<]minimax[>['", "minimax_m3"},
      {"[TOOL_CALLS]", "mistral"},
      {"[TOOL_CALLS]' + name + '[ARGS]'", "mistral_v11"},
      {"<|tool_call|>", "granite"},
      {"<|tool_list_start|>", "lfm2"},
      {"<tool_calls>[{\"name\"", "hunyuan_a13b"},
      {"Respond in the format {\"name\": function name, \"parameters\": dictionary of argument "
       "name "
       "and its value}.",
       "llama3_json"},
  };
  for (const auto& [text, name] : cases) {
    EXPECT_EQ(call_format_of_template(text), find_call_format(name)) << text;
  }
  EXPECT_EQ(call_format_of_template("{{ messages }}"), nullptr);
  EXPECT_EQ(find_call_format("nobody"), nullptr);
}

// The published templates that scripts/test_chat_templates.sh fetches: a part of the file's name,
// the formats of its calls and of its reasoning.
struct Published {
  const char* name;
  const char* calls;
  const char* reasoning;
};
constexpr Published kPublished[] = {
    {"Apriel-1.5", "hunyuan_a13b", ""},
    {"Cohere2MoE", "cohere_command4", "cohere_command4"},
    {"command-r7b", "cohere_command3", "cohere_command3"},
    {"DeepSeek-R1-Distill-Llama", "deepseek_v3", "think"},
    {"DeepSeek-V3.1", "deepseek_v31", "think"},
    {"DeepSeek-V3.2", "deepseek_v32", "think"},
    {"DeepSeek-V4", "deepseek_v4", "think"},
    {"Devstral-Small", "mistral_v11", ""},
    {"deepseek-r1", "deepseek_v3", "think"},
    {"GLM-4.6", "glm45", "think"},
    {"GLM-4.7", "glm47", "think"},
    {"Kimi-K2-Instruct", "kimi_k2", ""},
    {"Kimi-K2-Thinking", "kimi_k2", "think"},
    {"Hy3", "hy_v3", "hy_v3"},
    {"LFM2-8B-A1B", "lfm2", ""},
    {"LFM2.5-8B-A1B", "lfm2", "think"},
    {"Llama-3.3", "llama3_json", ""},
    {"Laguna", "glm45", "think"},
    {"MiniMax-M2", "minimax_m2", "think"},
    {"MiniMax-M3", "minimax_m3", "minimax_m3"},
    {"MiniCPM5", "", "think"},
    {"Ministral-3", "mistral_v11", "think"},
    {"Nemotron-3", "qwen3_coder", "think"},
    {"QwQ-32B", "hermes", "think"},
    {"Qwen2.5-7B", "hermes", ""},
    {"Qwen3-0.6B", "hermes", "think"},
    {"Qwen3-Coder", "qwen3_coder", ""},
    {"Qwen3.5-4B", "qwen3_coder", "think"},
    {"Solar-Open", "solar_open", "solar_open"},
    {"StepFun3.5", "qwen3_coder", "think"},
    {"gemma-4", "gemma4", "gemma4"},
    {"granite-4", "hermes", ""},
    {"ling-3", "glm45", "think"},
};

TEST(CallFormatsTest, AreThoseOfPublishedTemplates) {
  const char* folder = std::getenv("WIDEEP_PUBLISHED_TEMPLATES");
  if (folder == nullptr) GTEST_SKIP() << "WIDEEP_PUBLISHED_TEMPLATES is not set";
  int found = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(file.path());
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    for (const Published& each : kPublished) {
      if (file.path().filename().string().find(each.name) == std::string::npos) continue;
      ++found;
      EXPECT_EQ(call_format_of_template(text), find_call_format(each.calls)) << file.path();
      const ReasoningFormat* reasoning = reasoning_format_of_template(text);
      const std::string_view name = reasoning == nullptr ? "" : reasoning->name;
      const bool is_alike = name == each.reasoning || (each.reasoning == std::string("think") &&
                                                       !name.empty() && !reasoning->has_own_tokens);
      EXPECT_TRUE(is_alike) << file.path() << ": " << name;
    }
  }
  EXPECT_GE(found, 15);
}

// Work is proportional to the text, also where a call's arguments come before its name.
TEST(AnswerReaderTest, LongArgumentsBeforeTheName) {
  const std::string value(2'000'000, 'x');
  const std::string text =
      "<tool_call>{\"arguments\": {\"s\": \"" + value + "\"}, \"name\": \"f\"}</tool_call>";
  const AnswerSettings settings = settings_of(nullptr, find_call_format("hermes"), some_tools());
  // It takes a tenth of a second. To look through all that has come for each token takes a minute,
  // even at 10 GB/s.
  const base::WorkTimer work;
  const ReadAnswer answer =
      read_answer(settings, text, std::vector<size_t>(text.size() / 4 + 1, 4));
  EXPECT_LT(work.seconds(), 2);
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].arguments.size(), value.size() + 9);
}

// Likewise whatever a value is that does not end for long.
TEST(AnswerReaderTest, LongValues) {
  const std::pair<const CallFormat*, const char*> cases[] = {
      {&kGemma4, "<|tool_call>call:f{s:<|\"|>"},
      {&kGemma4, "<|tool_call>call:f{new:"},
      {&kGemma4, "<|tool_call>call:f{s:\""},
      {&kGemma4, "<|tool_call>call:f{l:["},
      {&kGemma4, "<|tool_call>call:f{"},
      {&kMiniMaxM3, "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<s>"},
      {&kMiniMaxM3, "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<l>]<]minimax[>[<item>"},
      {&kMiniMaxM3, "]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>1]<]minimax[>[</a>"},
      {&kCohere, "<|START_ACTION|>[{\"parameters\": {\"s\": \""},
      {&kCohere, "<|START_TEXT|>"},
  };
  for (const auto& [format, begin] : cases) {
    const AnswerSettings settings =
        settings_of(find_reasoning_format("cohere_command4"), format, some_tools());
    for (const std::string piece : {"xxxx", "    ", "1,\n ", "[{[{", "]<]m"}) {
      std::string text = begin;
      while (text.size() < 300'000) text += piece;
      const base::WorkTimer work;
      const ReadAnswer answer =
          read_answer(settings, text, std::vector<size_t>(text.size() / 4 + 1, 4));
      EXPECT_LT(work.seconds(), 1) << begin << piece;
      EXPECT_TRUE(format->form == ArgumentsForm::kJson || has_json_arguments(answer)) << begin;
    }
  }
}

}  // namespace
}  // namespace wideep::answer
