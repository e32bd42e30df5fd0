// SPDX-License-Identifier: Apache-2.0
// An agent that speaks Anthropic's Messages API to `wideep serve`: ten turns with tools, whole and
// streamed. The model knows nothing of tools, so that every call must come.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "command_server.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using server::Reply;

constexpr const char* kReference = WIDEEP_SOURCE_DIR "/models/reference";

json tools() {
  return json::parse(R"([
    {"name": "look_up", "input_schema": {"type": "object",
      "properties": {"city": {"type": "string", "enum": ["Bern", "Paris \"1\""]},
                     "days": {"type": "integer", "minimum": 1, "maximum": 14}},
      "required": ["city", "days"]}},
    {"name": "mark", "input_schema": {"type": "object",
      "properties": {"on": {"type": "boolean"}}, "required": ["on"]}},
    {"name": "stop", "input_schema": {"type": "object", "properties": {},
      "additionalProperties": false}}])");
}

std::vector<json> events_of(const std::string& body) {
  std::vector<json> events;
  constexpr std::string_view kData = "\ndata: ";
  for (size_t at = body.find(kData); at != body.npos; at = body.find(kData, at + 1)) {
    const size_t begin = at + kData.size();
    events.push_back(json::parse(body.substr(begin, body.find("\n\n", begin) - begin)));
  }
  return events;
}

// The blocks of a stream, put together.
json content_of(const std::vector<json>& events) {
  json content = json::array();
  std::string input;
  for (const json& event : events) {
    if (event["type"] == "content_block_start") {
      content.push_back(event["content_block"]);
      input.clear();
    }
    if (event["type"] == "content_block_delta") {
      const json& delta = event["delta"];
      if (delta["type"] == "input_json_delta") input += delta["partial_json"];
      if (delta["type"] == "text_delta") {
        json& text = content.back()["text"];
        text = text.get<std::string>() + delta["text"].get<std::string>();
      }
    }
    if (event["type"] == "content_block_stop" && !input.empty()) {
      content.back()["input"] = json::parse(input);
    }
  }
  return content;
}

void expect_good(const json& call) {
  const json& input = call["input"];
  if (call["name"] == "look_up") {
    EXPECT_TRUE(input["city"] == "Bern" || input["city"] == "Paris \"1\"") << call;
    EXPECT_TRUE(input["days"] >= 1 && input["days"] <= 14) << call;
  } else if (call["name"] == "mark") {
    EXPECT_TRUE(input["on"].is_boolean()) << call;
  } else {
    EXPECT_EQ(call["name"], "stop");
  }
}

TEST(CommandMessages, AnAgentCallsTools) {
  Server server(kReference, {"--ranks", "2", "--tool-call-parser", "hermes"});
  ASSERT_GT(server.port(), 0);
  const auto ask = [&](const std::string& path, const json& body) {
    return server::ask(server.port(), "POST", path, body.dump());
  };
  std::string question;  // of some pages of the cache
  for (int i = 0; i < 100; ++i) question += "What is " + std::to_string(i) + " + 4? ";
  json messages = {{{"role", "user"}, {"content", question}}};
  std::set<std::string> ids;
  int64_t cached = 0;
  for (int turn = 0; turn < 10; ++turn) {
    json choice = {{"type", "any"}, {"disable_parallel_tool_use", true}};
    if (turn % 3 == 2) choice.update({{"type", "tool"}, {"name", "mark"}});
    const bool streams = turn % 2 == 1;
    const json body = {{"model", "m"},          {"messages", messages}, {"tools", tools()},
                       {"tool_choice", choice}, {"max_tokens", 100},    {"stream", streams}};
    const Reply reply = ask("/v1/messages", body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    json content, end;
    if (streams) {
      const std::vector<json> events = events_of(reply.body);
      content = content_of(events);
      ASSERT_GT(events.size(), 2u) << reply.body;
      end = events[events.size() - 2];
      EXPECT_EQ(end["delta"]["stop_reason"], "tool_use");
    } else {
      end = reply.body_json();
      content = end["content"];
      EXPECT_EQ(end["stop_reason"], "tool_use");
    }
    cached += end["usage"]["cache_read_input_tokens"].get<int64_t>();
    ASSERT_EQ(content.size(), 1u) << reply.body;
    const json& call = content[0];
    EXPECT_EQ(call["type"], "tool_use");
    if (turn % 3 == 2) {
      EXPECT_EQ(call["name"], "mark");
    }
    expect_good(call);
    EXPECT_TRUE(ids.insert(call["id"]).second) << call;
    messages.push_back({{"role", "assistant"}, {"content", content}});
    messages.push_back(
        {{"role", "user"},
         {"content", {{{"type", "tool_result"}, {"tool_use_id", call["id"]}, {"content", "7"}}}}});
  }
  EXPECT_GT(cached, 0);  // each turn begins as the one before
  // And may answer without one; the prompt has as many tokens as are counted.
  json last = {{"model", "m"}, {"messages", messages}};
  const json counted = ask("/v1/messages/count_tokens", last).body_json();
  last["max_tokens"] = 8;
  last["temperature"] = 0;
  const json whole = ask("/v1/messages", last).body_json();
  EXPECT_EQ(whole["content"][0]["type"], "text");
  EXPECT_EQ(whole["usage"]["input_tokens"].get<int64_t>() +
                whole["usage"]["cache_creation_input_tokens"].get<int64_t>() +
                whole["usage"]["cache_read_input_tokens"].get<int64_t>(),
            counted["input_tokens"].get<int64_t>());
  last["stream"] = true;
  EXPECT_EQ(content_of(events_of(ask("/v1/messages", last).body)), whole["content"]);
}

}  // namespace
}  // namespace wideep::tests
