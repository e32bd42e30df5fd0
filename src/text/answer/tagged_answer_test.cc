// SPDX-License-Identifier: Apache-2.0
//
// What reasoning without an end becomes is held for all formats of calls: unless the format says
// that a call ends it, one does only where no end mark follows and no limit has cut the answer.
// Each text is read whole and in pieces of every size up to eleven bytes, which must agree. The
// rest is what models write beside their own format, as Kimi's spellings of an id and arguments of
// no text. A failure is a call that is lost in the reasoning, or one that the model only thought
// about and that is run.
#include "answer/tagged_answer.h"

#include <gtest/gtest.h>

#include "answer/answer_testing.h"
#include "answer/written_calls_testing.h"

namespace wideep::answer {
namespace {

std::string shown(const ReadAnswer& answer) {
  std::string text = "reasoning «" + answer.reasoning + "» content «" + answer.content + "»";
  for (const ReadCall& call : answer.calls) text += "\n  " + call.name + " " + call.arguments;
  return text;
}

ReadAnswer read_both(const AnswerSettings& settings, const std::string& text, bool is_cut = false) {
  const ReadAnswer whole = read_answer(settings, text, {}, is_cut);
  for (size_t bytes = 1; bytes < 12; ++bytes) {
    const std::vector<size_t> pieces(text.size() / bytes, bytes);
    EXPECT_EQ(shown(read_answer(settings, text, pieces, is_cut)), shown(whole)) << text;
  }
  return whole;
}

AnswerSettings in_reasoning(const CallFormat& format) {
  AnswerSettings settings = settings_of(find_reasoning_format("qwen3"), &format, some_tools());
  settings.begins_in_reasoning = true;
  return settings;
}

TEST(TaggedAnswerTest, ACallEndsReasoningThatHasNoEnd) {
  for (const CallFormat* format : call_formats()) {
    std::string call = calls_text(*format, {{"f", {{"a", 1}}}});
    if (format->bare_begin != '\0') call = std::string(format->begins.front()) + call;
    const ReadAnswer answer = read_both(in_reasoning(*format), "Need it.\n" + call);
    EXPECT_EQ(answer.reasoning, "Need it.") << format->name;
    EXPECT_EQ(answer.content, "") << format->name;
    ASSERT_EQ(answer.calls.size(), 1u) << format->name;
    EXPECT_EQ(nlohmann::json::parse(answer.calls[0].arguments), nlohmann::json({{"a", 1}}));
    // What comes between two of them is content, as it is after reasoning.
    const ReadAnswer two = read_both(in_reasoning(*format), "Hm. " + call + "\nAnd:\n" + call);
    EXPECT_EQ(two.reasoning, "Hm.") << format->name;
    EXPECT_EQ(two.content, "And:") << format->name;
    EXPECT_EQ(two.calls.size(), 2u) << format->name;
  }
}

TEST(TaggedAnswerTest, ACallBeforeTheEndOfReasoningIsReasoning) {
  for (const CallFormat* format : call_formats()) {
    if (format->ends_reasoning) continue;
    std::string call = calls_text(*format, {{"f", {{"a", 1}}}});
    if (format->bare_begin != '\0') call = std::string(format->begins.front()) + call;
    const ReadAnswer answer =
        read_both(in_reasoning(*format), "I may write " + call + " now.</think>\n\nYes.");
    EXPECT_EQ(answer.reasoning, "I may write " + call + " now.") << format->name;
    EXPECT_EQ(answer.content, "Yes.") << format->name;
    EXPECT_TRUE(answer.calls.empty()) << format->name;
    // Nothing is known where a limit cuts the reasoning.
    const ReadAnswer cut = read_both(in_reasoning(*format), "Need it. " + call, true);
    EXPECT_EQ(cut.reasoning, "Need it. " + call);
    EXPECT_TRUE(cut.calls.empty());
  }
}

TEST(TaggedAnswerTest, MarksInReasoningAreReasoning) {
  const AnswerSettings settings = in_reasoning(*find_call_format("qwen3_coder"));
  const ReadAnswer marks =
      read_both(settings, "One may write <function=run> or <tool_call>.\n</think>\n\nYes.");
  EXPECT_EQ(marks.reasoning, "One may write <function=run> or <tool_call>.");
  EXPECT_EQ(marks.content, "Yes.");
  const ReadAnswer unknown =
      read_both(settings, "See <function=nobody>\n</function> and <function=f>!");
  EXPECT_EQ(unknown.reasoning, "See <function=nobody>\n</function> and <function=f>!");
  EXPECT_TRUE(unknown.calls.empty());
}

// The mark around the content may be in an argument.
TEST(TaggedAnswerTest, ArgumentsMayHoldTheEndOfTheContent) {
  for (const char* name : {"hermes", "qwen3_coder", "hunyuan_a13b"}) {
    const CallFormat* format = find_call_format(name);
    const AnswerSettings settings =
        settings_of(find_reasoning_format("hunyuan_a13b"), format, some_tools());
    const std::string call = calls_text(*format, {{"f", {{"s", "</answer> is an end"}}}});
    const ReadAnswer answer =
        read_both(settings, "<think>hm</think>\n<answer>\n" + call + "\n</answer>");
    ASSERT_EQ(answer.calls.size(), 1u) << name;
    EXPECT_EQ(nlohmann::json::parse(answer.calls[0].arguments)["s"], "</answer> is an end") << name;
    EXPECT_EQ(answer.content, "") << name;
  }
}

TEST(TaggedAnswerTest, KimiWritesIdsInSeveralWays) {
  const AnswerSettings settings = settings_of(nullptr, find_call_format("kimi_k2"), some_tools());
  for (const std::string section : {"calls", "call"}) {
    for (const std::string id :
         {"functions.get_weather:0", "functions_get_weather_1", "functionsget_weather12",
          "functions.get_weather.3", "get_weather", "get_weather:7", "functions.get_weather"}) {
      const ReadAnswer answer = read_both(
          settings, "<|tool_" + section + "_section_begin|><|tool_call_begin|>" + id +
                        "<|tool_call_argument_begin|>{\"city\":\"x\"}<|tool_call_end|><|tool_" +
                        section + "_section_end|>");
      ASSERT_EQ(answer.calls.size(), 1u) << id;
      EXPECT_EQ(answer.calls[0].name, "get_weather");
      EXPECT_EQ(answer.calls[0].id, id);
      EXPECT_EQ(answer.calls[0].arguments, "{\"city\":\"x\"}");
      EXPECT_EQ(answer.content, "");
    }
  }
}

TEST(TaggedAnswerTest, EmptyArgumentsAreAnEmptyObject) {
  const std::pair<const char*, std::string> cases[] = {
      {"kimi_k2", "<|tool_call_begin|>functions.g:0<|tool_call_argument_begin|><|tool_call_end|>"},
      {"kimi_k2",
       "<|tool_call_begin|>functions.g:0<|tool_call_argument_begin|> \n<|tool_call_end|>"},
      {"deepseek_v31", "<｜tool▁call▁begin｜>g<｜tool▁sep｜><｜tool▁call▁end｜>"},
      {"deepseek_v3",
       "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n\n```<｜tool▁call▁end｜>"},
      {"deepseek_v3", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n<｜tool▁call▁end｜>"},
      {"hermes", "<tool_call>{\"name\": \"g\", \"arguments\": \"\"}</tool_call>"},
      {"hermes", "<tool_call>{\"name\": \"g\", \"arguments\": \" \"}</tool_call>"},
      {"granite", "<|tool_call|>[{\"arguments\": \"\", \"name\": \"g\"}]"},
      {"mistral", "[TOOL_CALLS]g[ARGS][TOOL_CALLS]g[ARGS]{}"},
      {"mistral", "[TOOL_CALLS]g[ARGS]"},
      {"kimi_k2", "<|tool_call_begin|>functions.g:0<|tool_call_argument_begin|>\n"},
      {"deepseek_v31", "<｜tool▁call▁begin｜>g<｜tool▁sep｜>"},
  };
  for (const auto& [format, text] : cases) {
    const ReadAnswer answer =
        read_both(settings_of(nullptr, find_call_format(format), some_tools()), text);
    ASSERT_FALSE(answer.calls.empty()) << text;
    for (const ReadCall& call : answer.calls) EXPECT_EQ(call.arguments, "{}") << text;
    EXPECT_EQ(answer.content, "") << text;
  }
  // A limit may have cut them.
  const ReadAnswer cut = read_both(settings_of(nullptr, find_call_format("mistral"), some_tools()),
                                   "[TOOL_CALLS]g[ARGS]", true);
  EXPECT_TRUE(cut.calls.empty());
  EXPECT_EQ(cut.content, "[TOOL_CALLS]g[ARGS]");
}

}  // namespace
}  // namespace wideep::answer
