// SPDX-License-Identifier: Apache-2.0
#include "server/harmony_channels.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace wideep::server {
namespace {

constexpr HarmonyTokens kTokens{
    .start = 1, .channel = 2, .message = 3, .end = 4, .constrain = 5, .call = 6};

// Splits an answer in which special tokens are written as text; all other characters come alone.
HarmonyText split(std::string_view answer) {
  const std::map<std::string, int32_t> names = {{"<|start|>", 1},     {"<|channel|>", 2},
                                                {"<|message|>", 3},   {"<|end|>", 4},
                                                {"<|constrain|>", 5}, {"<|call|>", 6}};
  HarmonyChannels channels(kTokens);
  HarmonyText all;
  const auto take = [&](const HarmonyText& each) {
    all.reasoning += each.reasoning;
    all.content += each.content;
  };
  while (!answer.empty()) {
    size_t length = 1;
    for (const auto& [name, id] : names) {
      if (!answer.starts_with(name)) continue;
      EXPECT_TRUE(channels.marks(id));
      take(channels.mark(id));
      length = name.size();
    }
    if (length == 1) take(channels.text(answer.substr(0, 1)));
    answer.remove_prefix(length);
  }
  take(channels.finish());
  return all;
}

struct Case {
  std::string answer, reasoning, content;
};

TEST(HarmonyChannelsTest, ChannelsBecomeFields) {
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
  };
  for (const Case& each : cases) {
    const HarmonyText found = split(each.answer);
    EXPECT_EQ(found.reasoning, each.reasoning) << each.answer;
    EXPECT_EQ(found.content, each.content) << each.answer;
  }
}

TEST(HarmonyChannelsTest, CallsAreContentAsTheyWereWritten) {
  const std::string hm = "<|channel|>analysis<|message|>Hm.<|end|>";
  for (const std::string channel : {"analysis", "commentary"}) {
    const std::string call = "<|start|>assistant<|channel|>" + channel +
                             " to=functions.f <|constrain|>json<|message|>{\"a\": 1}";
    EXPECT_EQ(split(hm + call).content, call);
    EXPECT_EQ(split(hm + call + "<|call|>").content, call);
    EXPECT_EQ(split(hm + call).reasoning, "Hm.");
  }
  const std::string in_role =
      "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}";
  EXPECT_EQ(split(hm + in_role).content, in_role);
  // The prompt contains the beginning.
  EXPECT_EQ(split(" to=functions.f<|channel|>commentary json<|message|>{}").content, in_role);
}

TEST(HarmonyChannelsTest, OtherAnswersAreContent) {
  EXPECT_EQ(split("plain").content, "plain");
  EXPECT_EQ(split(" t").content, " t");
  EXPECT_EQ(split(" tomorrow").content, " tomorrow");
  EXPECT_EQ(split(" to=x").content, " to=x");
  EXPECT_EQ(split("plain<|end|>more").content, "plain\nmore");
  EXPECT_EQ(split("").content, "");
}

// Nothing waits for text that may still come.
TEST(HarmonyChannelsTest, TextComesAtOnce) {
  HarmonyChannels channels(kTokens);
  EXPECT_EQ(channels.mark(kTokens.channel).reasoning, "");
  EXPECT_EQ(channels.text("analysis").reasoning, "");
  channels.mark(kTokens.message);
  EXPECT_EQ(channels.text("a").reasoning, "a");
  EXPECT_EQ(channels.text("b").reasoning, "b");
  channels.mark(kTokens.end);
  channels.mark(kTokens.start);
  channels.text("assistant");
  channels.mark(kTokens.channel);
  channels.text("final");
  channels.mark(kTokens.message);
  EXPECT_EQ(channels.text("c").content, "c");
  EXPECT_FALSE(channels.marks(0));
}

}  // namespace
}  // namespace wideep::server
