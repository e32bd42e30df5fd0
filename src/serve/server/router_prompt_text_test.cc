// SPDX-License-Identifier: Apache-2.0
#include "server/router_prompt_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace wideep::server {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

std::string message(const std::string& role, const std::string& text) {
  return R"({"role": ")" + role + R"(", "content": ")" + text + "\"}";
}
std::string chat(const std::string& messages, const std::string& more = "") {
  return "{" + more + R"("stream": true, "messages": [)" + messages + "]}";
}
size_t num_common(const PromptText& a, const PromptText& b) {
  return static_cast<size_t>(std::ranges::mismatch(a.chain, b.chain).in1 - a.chain.begin());
}

TEST(RouterPromptText, TheBeginningOfAConversationHasTheSameNames) {
  const std::string system = message("system", std::string(3000, 's'));
  const auto first = read_prompt_text(kChat, chat(system + "," + message("user", "Hello.")));
  const auto next = read_prompt_text(
      kChat, chat(system + "," + message("user", "Hello.") + "," + message("assistant", "Yes?") +
                      "," + message("user", std::string(600, 'u')),
                  R"("temperature": 0.5, )"));
  ASSERT_TRUE(first && next);
  EXPECT_EQ(first->chain.size(), first->bytes / PromptText::kChunkBytes);
  EXPECT_EQ(num_common(*first, *next), first->chain.size());
  EXPECT_GT(next->chain.size(), first->chain.size());
}

TEST(RouterPromptText, WhatDecidesThePromptKeepsItApart) {
  const std::string messages = message("user", std::string(1000, 'u'));
  const auto plain = read_prompt_text(kChat, chat(messages));
  ASSERT_TRUE(plain);
  for (const char* more : {R"("model": "other", )", R"("cache_salt": "a", )", R"("tools": [{}], )",
                           R"("system": "S", )", R"("instructions": "I", )"}) {
    const auto other = read_prompt_text(kChat, chat(messages, more));
    ASSERT_TRUE(other) << more;
    EXPECT_EQ(num_common(*plain, *other), 0u) << more;
  }
  const auto elsewhere = read_prompt_text("/v1/responses", chat(messages));
  EXPECT_EQ(num_common(*plain, *elsewhere), 0u);
  EXPECT_EQ(read_prompt_text("/v1/chat/completions/", chat(messages))->chain, plain->chain);
  // The same wherever members are, and whatever else there is.
  EXPECT_EQ(
      read_prompt_text(kChat, R"({"messages": [)" + messages + R"(], "n": 1, "x": {"a": [1]}})")
          ->chain,
      plain->chain);
}

TEST(RouterPromptText, AllBodiesWithAPromptAreRead) {
  EXPECT_EQ(read_prompt_text("/v1/completions", R"({"prompt":"a"})")->chain.size(), 0u);
  EXPECT_TRUE(read_prompt_text("/v1/completions", R"({"prompt":[1,2,[3]]})"));
  EXPECT_TRUE(read_prompt_text("/v1/responses", R"( {"input" : "a\"}]" , "x":"\\"} )"));
  EXPECT_TRUE(read_prompt_text("/v1/messages", R"({"messages":[],"system":null})"));
  for (const char* none : {R"({"prompt":"a"})", R"({"prompt":"a","cache_salt":null})",
                           R"({"prompt":"a","cache_salt":""})"}) {
    EXPECT_FALSE(read_prompt_text("/v1/completions", none)->has_salt) << none;
  }
  EXPECT_TRUE(read_prompt_text("/v1/completions", R"({"prompt":"a","cache_salt":"b"})")->has_salt);
}

TEST(RouterPromptText, OthersAreNotAndNothingIsReadBeyondTheEnd) {
  for (const char* bad :
       {"", " ", "{", "[]", "x", "{}", "null", R"({"model":"m"})", R"({"prompt")", R"({"prompt":)",
        R"({"prompt":"a)", R"({"prompt":"a\)", R"({"prompt":[1)", R"({"prompt":})",
        R"({,"prompt":"a"})", R"({"prompt":"a" "b":1})", R"({prompt:"a"})"}) {
    const std::string exact(bad);
    EXPECT_FALSE(read_prompt_text("/v1/completions", exact)) << bad;
  }
  // Any bytes, and any part of a good body.
  std::mt19937 random(1);
  const std::string good = chat(message("user", "a\\\"b"), R"("tools": [{"a": "}"}], )");
  for (int i = 0; i < 20'000; ++i) {
    std::string body = good.substr(0, random() % (good.size() + 1));
    for (int j = 0; j < 3 && !body.empty(); ++j) {
      body[random() % body.size()] = static_cast<char>(random());
    }
    read_prompt_text(kChat, body);
  }
}

TEST(RouterPromptText, KnowsWhichPathsAskForText) {
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses",
                           "/v1/messages", "/v1/messages/"}) {
    EXPECT_TRUE(is_for_text(path)) << path;
  }
  for (const char* path : {"/v1/models", "/v1/embeddings", "/v1/messages/count_tokens", "/", ""}) {
    EXPECT_FALSE(is_for_text(path)) << path;
  }
}

}  // namespace
}  // namespace wideep::server
