// SPDX-License-Identifier: Apache-2.0
#include "client/conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::client {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json request_of(const Conversation& chat) { return json::parse(chat.request("m")); }

TEST(Conversation, AsksForAStreamedAnswer) {
  Conversation chat;
  chat.set_system("Be short.");
  chat.add_user("one");
  chat.add_answer("1");
  chat.add_user("two");
  EXPECT_EQ(request_of(chat), json::parse(R"({"model": "m", "stream": true,
      "stream_options": {"include_usage": true},
      "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "one"},
                   {"role": "assistant", "content": "1"}, {"role": "user", "content": "two"}]})"));
}

TEST(Conversation, RegenerateAndUndoForget) {
  Conversation chat;
  EXPECT_FALSE(chat.regenerate());
  EXPECT_FALSE(chat.undo());
  chat.add_user("one");
  chat.add_answer("1");
  chat.add_user("two");
  chat.add_answer("2");
  EXPECT_TRUE(chat.regenerate());
  EXPECT_EQ(chat.messages().size(), 3u);
  EXPECT_TRUE(chat.regenerate());  // the answer may have failed
  EXPECT_EQ(chat.messages().back().text, "two");
  EXPECT_TRUE(chat.undo());
  EXPECT_EQ(chat.messages().back().text, "1");
  EXPECT_TRUE(chat.undo());
  EXPECT_TRUE(chat.messages().empty());
}

TEST(Conversation, FieldsAreJsonOrText) {
  Conversation chat;
  for (const char* field : {"temperature 0.5", "top_k  3", "stop [\"a\", \"b\"]", "seed 7",
                            "reasoning_effort low", "logit_bias {\"5\": -1}", "min_p null"}) {
    EXPECT_TRUE(chat.set(field).ok()) << field;
  }
  chat.add_user("x");
  const json body = request_of(chat);
  EXPECT_EQ(body["temperature"], 0.5);
  EXPECT_EQ(body["top_k"], 3);
  EXPECT_EQ(body["stop"], json({"a", "b"}));
  EXPECT_EQ(body["reasoning_effort"], "low");
  EXPECT_EQ(body["logit_bias"]["5"], -1);
  EXPECT_TRUE(body["min_p"].is_null());
  EXPECT_TRUE(chat.set("top_p\t= 0.9").ok());
  EXPECT_TRUE(chat.set("stop==").ok());
  EXPECT_EQ(request_of(chat)["top_p"], 0.9);
  EXPECT_EQ(request_of(chat)["stop"], "=");
  EXPECT_EQ(chat.set("temperature=").message(), "temperature: expected a value behind =");
  EXPECT_EQ(chat.set("").message(), "expected the name of a field, found none");
  EXPECT_TRUE(chat.set("temperature").ok());
  EXPECT_FALSE(request_of(chat).contains("temperature"));
  EXPECT_THAT(chat.set("temperature").message(), HasSubstr("is not set"));
  for (const char* own : {"model x", "messages []", "stream false", "stream_options {}", "n 2"}) {
    EXPECT_THAT(chat.set(own).message(), HasSubstr("the chat itself sets")) << own;
  }
}

TEST(Conversation, FilesGoWithTheNextMessage) {
  Conversation chat;
  chat.attach("a.txt", "text");
  chat.attach("b.txt", "more\n");
  chat.add_user("What is it?");
  chat.add_user("And now?");
  EXPECT_EQ(chat.messages()[0].text, "File a.txt:\ntext\n\nFile b.txt:\nmore\n\nWhat is it?");
  EXPECT_EQ(chat.messages()[1].text, "And now?");
}

TEST(Conversation, IsLoadedAsItWasSaved) {
  Conversation chat;
  chat.set_system("Be \"short\".\n");
  EXPECT_TRUE(chat.set("temperature 0.5").ok());
  chat.add_user("one\x1b[0m");
  chat.add_answer("1");
  const auto loaded = Conversation::loaded(chat.saved("m"), "f");
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(loaded->request("m"), chat.request("m"));
}

TEST(Conversation, LoadRefusesWhatIsNoChat) {
  const auto error = [](const char* text) {
    return Conversation::loaded(text, "f").status().message();
  };
  EXPECT_THAT(error("hello"), HasSubstr("f:1:1: "));
  EXPECT_THAT(error("[]"), HasSubstr("expected a chat that /save has written"));
  EXPECT_THAT(error(R"({"messages": {}})"), HasSubstr("expected a chat"));
  EXPECT_THAT(error(R"({"messages": [3]})"), HasSubstr("f: messages[0]: expected an object"));
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": [1]}]})"),
              HasSubstr("messages[0]: content: expected a text, found a list of 1"));
  EXPECT_THAT(error(R"({"messages": [{"role": "tool", "content": ""}]})"),
              HasSubstr("expected user or assistant, found 'tool'"));
  EXPECT_THAT(error(R"({"messages": [], "system": 3})"), HasSubstr("system: expected a text"));
  EXPECT_THAT(error(R"({"messages": [], "settings": 3})"),
              HasSubstr("settings: expected an object"));
  EXPECT_THAT(error(R"({"messages": [], "settings": {"stream": false}})"), HasSubstr("stream"));
}

}  // namespace
}  // namespace wideep::client
