// SPDX-License-Identifier: Apache-2.0
//
// Special tokens come as such and all other characters one by one, which is the finest cut there
// is. Expected fields are worked out by hand from OpenAI's description, and from what models leave
// out: <|start|>, the role, <|end|>, <|call|>. A message to a tool that there is not must come back
// as it was written, since a client cannot see otherwise which name was wrong. No character may
// wait for the next.
#include "answer/harmony_answer.h"

#include <gtest/gtest.h>

#include "answer/answer_testing.h"

namespace wideep::answer {
namespace {

const AnswerSettings& settings() {
  static const AnswerSettings all{.format = {.is_harmony = true},
                                  .tools = std::make_shared<const ToolList>(some_tools())};
  return all;
}

// Reads an answer in which special tokens are written as text; all other characters come alone.
ReadAnswer read(std::string_view answer, bool is_cut = false) {
  HarmonyAnswer reader(settings());
  AnswerParts parts(false);
  ReadAnswer all;
  while (!answer.empty()) {
    size_t length = 1;
    for (const std::string_view token : harmony_tokens()) {
      if (!answer.starts_with(token)) continue;
      reader.add_special(token, parts);
      length = token.size();
    }
    if (length == 1) reader.add_text(answer.substr(0, 1), parts);
    answer.remove_prefix(length);
    collect(parts, &all);
  }
  reader.finish(is_cut, parts);
  collect(parts, &all);
  return all;
}

struct Case {
  std::string answer, reasoning, content;
};

TEST(HarmonyAnswerTest, ChannelsBecomeFields) {
  const std::vector<Case> cases = {
      {"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
       "Hm.", "Yes."},
      {"<|channel|>final<|message|>Yes.", "", "Yes."},
      {"<|channel|>analysis<|message|>Hm", "Hm", ""},
      {"<|channel|>analysis", "", ""},
      {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b"
       "<|end|><|start|>assistant<|channel|>commentary<|message|>c<|end|>"
       "<|start|>assistant<|channel|>final<|message|>d<|end|>",
       "a\nb", "c\nd"},
      {"<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>analysis<|message|>b",
       "b", ""},
      // To itself: no tool; of two channels the last one counts.
      {"<|channel|>commentary to=assistant<|channel|>analysis<|message|>Hm<|end|><|start|>assistant"
       "<|channel|>final<|message|>ok",
       "Hm", "ok"},
      {" to=assistant<|channel|>final<|message|>ok", "", "ok"},
      // Without <|start|>, with the role or not, and without <|end|>.
      {"<|channel|>analysis<|message|>Hm<|end|>assistant<|channel|>final<|message|>ok", "Hm", "ok"},
      {"<|channel|>analysis<|message|>Hm<|end|><|channel|>final<|message|>ok", "Hm", "ok"},
      {"<|channel|>analysis<|message|>Hm<|channel|>final<|message|>ok", "Hm", "ok"},
      {"<|channel|>final<|message|>a<|end|>assistants help", "", "a\nassistants help"},
      {"<|channel|>final<|message|>a<|end|>assistant", "", "a"},
  };
  for (const Case& each : cases) {
    const ReadAnswer found = read(each.answer);
    EXPECT_EQ(found.reasoning, each.reasoning) << each.answer;
    EXPECT_EQ(found.content, each.content) << each.answer;
  }
}

TEST(HarmonyAnswerTest, Calls) {
  const std::string hm = "<|channel|>analysis<|message|>Hm.<|end|>";
  for (const std::string channel : {"analysis", "commentary"}) {
    const std::string call = "<|start|>assistant<|channel|>" + channel +
                             " to=functions.f <|constrain|>json<|message|>{\"a\": 1}";
    for (const std::string& end : {std::string(), std::string("<|call|>")}) {
      const ReadAnswer found = read(hm + call + end);
      EXPECT_EQ(found.reasoning, "Hm.");
      EXPECT_EQ(found.content, "");
      EXPECT_EQ(found.calls, (std::vector<ReadCall>{{"f", "", "{\"a\": 1}"}}));
    }
  }
  // The prompt contains the beginning of the message.
  EXPECT_EQ(read(" to=functions.g<|channel|>commentary json<|message|>").calls,
            (std::vector<ReadCall>{{"g", "", "{}"}}));
  EXPECT_EQ(read(" to=functions.g<|channel|>commentary json<|message|>", true).calls,
            (std::vector<ReadCall>{{"g", "", ""}}));
  EXPECT_EQ(read(" to=functions.g<|message|>\n{no JSON<|call|>").calls,
            (std::vector<ReadCall>{{"g", "", "{no JSON"}}));
  // Neither <|call|> nor <|start|>; and the first call's header is not the next message's.
  const ReadAnswer other = read(
      "<|channel|>commentary to=functions.f<|message|>{\"a\": 1}<|channel|>final<|message|>ok");
  EXPECT_EQ(other.calls, (std::vector<ReadCall>{{"f", "", "{\"a\": 1}"}}));
  EXPECT_EQ(other.content, "ok");
  const ReadAnswer next = read(
      "<|channel|>commentary to=functions.f<|message|>{}<|call|>assistant "
      "to=functions.g<|message|>");
  EXPECT_EQ(next.calls, (std::vector<ReadCall>{{"f", "", "{}"}, {"g", "", "{}"}}));
  const ReadAnswer two = read(
      "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.f"
      "<|channel|>commentary<|message|>{}<|call|><|start|>assistant to=functions.g<|message|>{}");
  EXPECT_EQ(two.content, "I look.");
  EXPECT_EQ(two.calls, (std::vector<ReadCall>{{"f", "", "{}"}, {"g", "", "{}"}}));
}

TEST(HarmonyAnswerTest, MessagesToOthersAreContentAsTheyWereWritten) {
  const std::string in_role =
      "<|start|>assistant to=functions.unknown<|channel|>commentary json<|message|>{}";
  EXPECT_EQ(read(in_role).content, in_role);
  EXPECT_EQ(read(" to=functions.unknown<|channel|>commentary json<|message|>{}").content, in_role);
  const std::string python = "<|start|>assistant<|channel|>analysis to=python<|message|>1+1";
  EXPECT_EQ(read(python + "<|call|>").content, python);
}

TEST(HarmonyAnswerTest, OtherAnswersAreContent) {
  EXPECT_EQ(read("plain").content, "plain");
  EXPECT_EQ(read(" t").content, " t");
  EXPECT_EQ(read(" tomorrow").content, " tomorrow");
  EXPECT_EQ(read(" to=x").content, " to=x");
  EXPECT_EQ(read("plain<|end|>more").content, "plain\nmore");
  EXPECT_EQ(read("").content, "");
}

// Nothing waits for text that may still come.
TEST(HarmonyAnswerTest, TextComesAtOnce) {
  HarmonyAnswer reader(settings());
  AnswerParts parts(false);
  reader.add_special("<|channel|>", parts);
  reader.add_text("analysis", parts);
  EXPECT_FALSE(parts.has_news());
  reader.add_special("<|message|>", parts);
  reader.add_text("a", parts);
  EXPECT_EQ(parts.take_reasoning(), "a");
  reader.add_text("b", parts);
  EXPECT_EQ(parts.take_reasoning(), "b");
  reader.add_special("<|end|>", parts);
  reader.add_special("<|start|>", parts);
  reader.add_text("assistant", parts);
  reader.add_special("<|channel|>", parts);
  reader.add_text("final", parts);
  reader.add_special("<|message|>", parts);
  reader.add_text("c", parts);
  EXPECT_EQ(parts.take_content(), "c");
}

}  // namespace
}  // namespace wideep::answer
