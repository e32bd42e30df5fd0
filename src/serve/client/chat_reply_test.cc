// SPDX-License-Identifier: Apache-2.0
#include "client/chat_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::client {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(ChatReply, ReadsTextThinkingAndUsage) {
  ReplyReader reader;
  EXPECT_EQ(
      reader.take(R"({"choices": [{"delta": {"role": "assistant", "content": null}}]})")->content,
      "");
  EXPECT_EQ(reader.take(R"({"choices": [{"delta": {"reasoning_content": "hm"}}]})")->reasoning,
            "hm");
  EXPECT_EQ(reader.take(R"({"choices": [{"delta": {"reasoning": "so"}}]})")->reasoning, "so");
  EXPECT_EQ(
      reader.take(R"({"choices": [{"delta": {"content": "Hi"}, "finish_reason": null}]})")->content,
      "Hi");
  EXPECT_FALSE(reader.is_whole());
  EXPECT_TRUE(reader.take(R"({"choices": [{"delta": {}, "finish_reason": "length"}]})").ok());
  EXPECT_TRUE(reader.is_whole());
  EXPECT_EQ(reader.finish_reason(), "length");
  EXPECT_FALSE(reader.usage());
  EXPECT_TRUE(reader
                  .take(R"({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4,
      "prompt_tokens_details": {"cached_tokens": 8},
      "completion_tokens_details": {"reasoning_tokens": 2}}})")
                  .ok());
  ASSERT_TRUE(reader.usage());
  EXPECT_EQ(reader.usage()->prompt_tokens, 9);
  EXPECT_EQ(reader.usage()->completion_tokens, 4);
  EXPECT_EQ(reader.usage()->cached_tokens, 8);
  EXPECT_EQ(reader.usage()->reasoning_tokens, 2);
  EXPECT_FALSE(reader.is_done());
  EXPECT_TRUE(reader.take("[DONE]").ok());
  EXPECT_TRUE(reader.is_done());
}

TEST(ChatReply, OtherFormsOfUsage) {
  ReplyReader reader;
  EXPECT_TRUE(reader.take(R"({"usage": null, "choices": []})").ok());
  EXPECT_TRUE(reader.take(R"({"usage": {"completion_tokens": -1}})").ok());
  EXPECT_TRUE(reader.take(R"({"usage": "x"})").ok());
  EXPECT_FALSE(reader.usage());
  EXPECT_TRUE(
      reader.take(R"({"usage": {"completion_tokens": 4}, "timings": {"cache_n": 3}})").ok());
  EXPECT_EQ(reader.usage()->cached_tokens, 3);
  EXPECT_FALSE(reader.usage()->reasoning_tokens);
}

TEST(ChatReply, NothingOfTheWrongTypeIsTaken) {
  for (const char* data : {"3", "[]", "{}", R"({"choices": 3})", R"({"choices": [3]})",
                           R"({"choices": [{"delta": {"content": 3, "reasoning": []}}]})"}) {
    ReplyReader reader;
    const auto piece = reader.take(data);
    ASSERT_TRUE(piece.ok()) << data;
    EXPECT_EQ(piece->content + piece->reasoning, "");
    EXPECT_FALSE(reader.is_whole());
  }
}

TEST(ChatReply, ErrorsAreEvents) {
  ReplyReader reader;
  EXPECT_EQ(reader.take(R"({"error": {"message": "out of \u001b[31mmemory"}})").status().message(),
            "the server has given up: out of [31mmemory");
  EXPECT_THAT(reader.take(R"({"error": 3})").status().message(), HasSubstr("{\"error\": 3}"));
  EXPECT_THAT(reader.take("{\"choices\": \x1b").status().message(),
              HasSubstr("an event that is no JSON: {\"choices\": "));
  EXPECT_THAT(reader.take(std::string(100'000, '[')).status().message(), HasSubstr("no JSON: [["));
}

TEST(ChatReply, RefusalsSayWhatToDo) {
  EXPECT_THAT(refusal_message({401, R"({"error": {"message": "no key"}})", ""}),
              HasSubstr("(401): no key; give the server's key with --api-key"));
  EXPECT_THAT(refusal_message({429, R"({"detail": "busy"})", "7"}),
              EndsWith("(429): busy; try again in 7 s"));
  EXPECT_THAT(refusal_message({503, "down", ""}), EndsWith("down; try again later"));
  EXPECT_EQ(refusal_message({400, R"({"message": "top_p: expected 0 to 1"})", ""}),
            "the server refuses (400): top_p: expected 0 to 1");
  EXPECT_THAT(refusal_message({500, "<html>\x1b[2J" + std::string(4000, 'x'), ""}),
              Not(HasSubstr("\x1b")));
  EXPECT_LT(refusal_message({500, std::string(4000, 'x'), ""}).size(), 500u);
  EXPECT_THAT(refusal_message({429, "", std::string(3000, '9')}), EndsWith("... s"));
}

TEST(ChatReply, TheFirstModel) {
  EXPECT_EQ(*first_model(R"({"data": [{"id": "a"}, {"id": "b"}]})"), "a");
  for (const char* none : {"", "{}", R"({"data": []})", R"({"data": [{"id": 3}]})", "<html>"}) {
    EXPECT_THAT(first_model(none).status().message(), HasSubstr("names no model")) << none;
  }
}

}  // namespace
}  // namespace wideep::client
