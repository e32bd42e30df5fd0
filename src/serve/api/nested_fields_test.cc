// SPDX-License-Identifier: Apache-2.0
//
// A member that no API has, put into every object of bodies that have all kinds of objects.
#include "api/nested_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>

#include "api/messages_request.h"
#include "api/openai_request.h"
#include "api/responses_request.h"
#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

// The names in these are the client's, or the schema's.
const std::set<std::string> kFree = {"parameters", "input_schema",         "schema",  "metadata",
                                     "logit_bias", "chat_template_kwargs", "json",    "guided_json",
                                     "input_data", "cache_control",        "citation"};

// Calls each(path, object) for the objects in a value.
void for_objects(ordered_json& value, const std::string& path,
                 const std::function<void(const std::string&, ordered_json&)>& each) {
  if (value.is_object()) {
    each(path, value);
    for (auto& [name, member] : value.items()) {
      // Arguments of a call of Anthropic's.
      const bool is_input = name == "input" && member.is_object();
      if (kFree.contains(name) || is_input) continue;
      for_objects(member, path.empty() ? name : path + "." + name, each);
    }
  }
  for (size_t i = 0; value.is_array() && i < value.size(); ++i) {
    for_objects(value[i], path + "[" + std::to_string(i) + "]", each);
  }
}

using Refusal = std::function<HttpError(const std::string& body)>;  // param "": none

template <typename Request>
HttpError error_of(const Parsed<Request>& parsed) {
  const auto* error = std::get_if<HttpError>(&parsed);
  return error == nullptr ? HttpError{.status = 200, .message = ""} : *error;
}

void check_every_object(const char* text, const Refusal& refusal) {
  const ordered_json body = ordered_json::parse(text);
  const HttpError none = refusal(formats::json_text(body));
  ASSERT_EQ(none.status, 200) << none.message << "\n" << text;
  std::set<std::string> paths;
  ordered_json all = body;
  for_objects(all, "", [&](const std::string& path, ordered_json&) { paths.insert(path); });
  ASSERT_GT(paths.size(), 1u);
  for (const std::string& wanted : paths) {
    for (const ordered_json& value : {ordered_json(1), ordered_json()}) {
      ordered_json changed = body;
      for_objects(changed, "", [&](const std::string& path, ordered_json& object) {
        if (path == wanted) object["qqq"] = value;
      });
      const HttpError error = refusal(formats::json_text(changed));
      if (value.is_null()) {
        EXPECT_EQ(error.status, 200) << wanted << ": " << error.message;
        continue;
      }
      EXPECT_EQ(error.status, 400) << wanted;
      EXPECT_EQ(error.param, wanted.empty() ? "qqq" : wanted + ".qqq") << error.message;
      EXPECT_THAT(error.message, HasSubstr(error.param + ": this field is not known"));
    }
  }
}

TEST(NestedFieldsTest, UnknownOnesAreRefusedInCompletions) {
  check_every_object(
      R"({"model": "m", "prompt": "x", "stream": true,
      "stream_options": {"include_usage": true},
      "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}})",
      [](const std::string& body) { return error_of(parse_completion_request(body)); });
  for (const char* format : {R"({"type": "text"})", R"({"type": "json_object"})"}) {
    check_every_object(
        (R"({"model": "m", "prompt": "x", "response_format": )" + std::string(format) + "}")
            .c_str(),
        [](const std::string& body) { return error_of(parse_completion_request(body)); });
  }
  check_every_object(
      R"({"model": "m", "prompt": "x", "structured_outputs": {"regex": "a"}})",
      [](const std::string& body) { return error_of(parse_completion_request(body)); });
}

TEST(NestedFieldsTest, UnknownOnesAreRefusedInWhatIsSaidOfOtherServers) {
  for (
      const std::string body :
      {R"({"model": "m", "prompt": "x", "kv_transfer_params": {"do_remote_decode": true}})",
       R"({"model": "m", "prompt": "x", "disaggregated_params": {"request_type": "context_only"}})"}) {
    check_every_object(body.c_str(), [](const std::string& each) {
      return error_of(parse_completion_request(each));
    });
  }
}

constexpr const char* kConversation = R"({"model": "m", "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}]},
      {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "b"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}}})";

// Members of messages are for templates, too: those that only a template may know are refused when
// it is known (ServiceTest.MembersOfMessagesAreTheTemplates).
template <typename Request>
HttpError chat_error(const Parsed<Request>& parsed, const ChatRequest& (*chat)(const Request&)) {
  if (const auto* error = std::get_if<HttpError>(&parsed)) return *error;
  const auto& members = chat(std::get<Request>(parsed)).template_members;
  if (members.empty()) return {.status = 200, .message = ""};
  return {.status = 400,
          .message = members[0].path + ": this field is not known",
          .param = members[0].path};
}

TEST(NestedFieldsTest, UnknownOnesAreRefusedInChats) {
  const Refusal chat = [](const std::string& body) {
    return chat_error<ChatRequest>(
        parse_chat_request(body),
        [](const ChatRequest& each) -> const ChatRequest& { return each; });
  };
  check_every_object(kConversation, chat);
  const Refusal tokenize = [](const std::string& body) {
    return chat_error<TokenizeRequest>(
        parse_tokenize_request(body),
        [](const TokenizeRequest& each) -> const ChatRequest& { return each.chat; });
  };
  check_every_object(kConversation, tokenize);
}

TEST(NestedFieldsTest, UnknownOnesAreRefusedInResponses) {
  const ResponseStore stored{ResponseStoreLimits()};
  const Refusal refusal = [&](const std::string& body) {
    return error_of(parse_responses_request(body, stored));
  };
  check_every_object(R"({"model": "m", "stream": true, "stream_options": {}, "input": [
      {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
      {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
      {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}],
       "content": [{"type": "reasoning_text", "text": "t"}]},
      {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "1",
       "output": [{"type": "input_text", "text": "6"}]},
      {"type": "custom_tool_call", "call_id": "2", "name": "g", "input": "x"},
      {"type": "custom_tool_call_output", "call_id": "2", "output": "y"}],
    "tools": [{"type": "function", "name": "f", "parameters": {}},
      {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "regex",
        "definition": "x"}},
      {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}],
    "tool_choice": {"type": "allowed_tools", "mode": "auto",
                    "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}})",
                     refusal);
  check_every_object(R"({"model": "m", "input": "a", "text": {"format": {"type": "text"}},
    "tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "function", "name": "f"}})",
                     refusal);
}

TEST(NestedFieldsTest, UnknownOnesAreRefusedInMessages) {
  constexpr const char* kTurns = R"({"model": "m", "max_tokens": 9,
    "system": [{"type": "text", "text": "s"}], "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"any": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
        "content": [{"type": "text", "text": "6"}]}]}],
    "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "f"},
    "thinking": {"type": "enabled"},
    "output_config": {"format": {"type": "json_schema", "schema": {}}}})";
  check_every_object(
      kTurns, [](const std::string& body) { return error_of(parse_messages_request(body)); });
  ordered_json count = ordered_json::parse(kTurns);
  count.erase("max_tokens");
  check_every_object(count.dump().c_str(), [](const std::string& body) {
    return error_of(parse_count_tokens_request(body));
  });
}

// What clients make of replies, or send beside what counts.
TEST(NestedFieldsTest, WhatChangesNothingIsTakenAndNamed) {
  const auto parsed = parse_chat_request(R"({"model": "m", "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a",
        "cache_control": {"type": "ephemeral"}}]},
      {"role": "assistant", "content": null, "refusal": null, "annotations": [], "audio": null,
       "function_call": null, "id": "x", "tool_calls": [{"id": "1", "type": "function", "index": 0,
        "function": {"name": "f", "arguments": "{}", "parsed_arguments": {}}}]},
      {"role": "assistant", "content": "", "refusal": "No."}]})");
  ASSERT_TRUE(std::holds_alternative<ChatRequest>(parsed)) << std::get<HttpError>(parsed).message;
  const auto& request = std::get<ChatRequest>(parsed);
  EXPECT_THAT(
      request.options.without_effect,
      testing::ElementsAre("messages[].annotations", "messages[].content[].cache_control",
                           "messages[].id", "messages[].tool_calls[].function.parsed_arguments",
                           "messages[].tool_calls[].index"));
  EXPECT_EQ(request.messages[2]["content"], "No.");
  EXPECT_THAT(error_of(parse_chat_request(R"({"model": "m", "messages": [
      {"role": "assistant", "content": "a", "refusal": "b"}]})"))
                  .message,
              HasSubstr("messages[0].refusal: expected a text in the place of"));
}

}  // namespace
}  // namespace wideep::server
