// SPDX-License-Identifier: Apache-2.0
// An agent that calls tools of `wideep serve`: ten turns with three tools, whole and streamed, in
// formats of every kind. The model knows nothing of tools, so that every call must come.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "command.h"
#include "command_server.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using server::Reply;

constexpr const char* kReference = WIDEEP_SOURCE_DIR "/models/reference";

json tools() {
  return json::parse(R"([
    {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object",
      "properties": {"city": {"type": "string", "enum": ["Bern", "Paris \"1\""]},
                     "days": {"type": "integer", "minimum": 1, "maximum": 14}},
      "required": ["city", "days"]}}},
    {"type": "function", "function": {"name": "mark", "parameters": {"type": "object",
      "properties": {"on": {"type": "boolean"}, "at": {"type": "array", "maxItems": 2,
        "items": {"type": "integer", "minimum": 0, "maximum": 9}}}, "required": ["on", "at"]}}},
    {"type": "function", "function": {"name": "stop"}}])");
}

// The first call of a stream, put together of its parts.
json streamed_call(const Reply& reply) {
  json call;
  for (const json& event : reply.events()) {
    for (const json& part : event["choices"][0]["delta"].value("tool_calls", json::array())) {
      EXPECT_EQ(part["index"], 0);
      if (part.contains("id")) call = part;
      if (part.contains("id")) call.erase("index");
      if (part.contains("id")) continue;
      json& arguments = call["function"]["arguments"];
      arguments = arguments.get<std::string>() + part["function"]["arguments"].get<std::string>();
    }
  }
  return call;
}

void expect_good(const json& call) {
  const std::string name = call["function"]["name"];
  const json arguments =
      json::parse(call["function"]["arguments"].get<std::string>(), nullptr, false);
  ASSERT_TRUE(arguments.is_object()) << call;
  if (name == "look_up") {
    EXPECT_TRUE(arguments["city"] == "Bern" || arguments["city"] == "Paris \"1\"") << call;
    EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 14) << call;
  } else if (name == "mark") {
    EXPECT_TRUE(arguments["on"].is_boolean() && arguments["at"].is_array()) << call;
  } else {
    EXPECT_EQ(name, "stop");
  }
}

class CommandTools : public ::testing::TestWithParam<const char*> {};

TEST_P(CommandTools, AnAgentCallsThem) {
  Server server(kReference, {"--ranks", "2", "--tool-call-parser", GetParam()});
  ASSERT_GT(server.port(), 0);
  json messages = {{{"role", "user"}, {"content", "What is 3 + 4?"}}};
  std::set<std::string> ids;
  for (int turn = 0; turn < 10; ++turn) {
    json body = {{"model", "m"},
                 {"messages", messages},
                 {"tools", tools()},
                 {"tool_choice", "required"},
                 {"max_tokens", 100},
                 {"parallel_tool_calls", false},
                 {"stream", turn % 2 == 1},
                 {"seed", turn}};
    if (turn % 3 == 2) body["tool_choice"] = tools()[1];
    const Reply reply = server::ask(server.port(), "POST", "/v1/chat/completions", body.dump());
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json call = turn % 2 == 1 ? streamed_call(reply)
                                    : reply.body_json()["choices"][0]["message"]["tool_calls"][0];
    ASSERT_TRUE(call.is_object()) << reply.body;
    if (turn % 3 == 2) EXPECT_EQ(call["function"]["name"], "mark");
    expect_good(call);
    EXPECT_TRUE(ids.insert(call["id"]).second) << call;
    messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}});
    messages.push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "7"}});
  }
  // And may answer without one.
  const json last = {{"model", "m"}, {"messages", messages}, {"max_tokens", 8}};
  const Reply reply = server::ask(server.port(), "POST", "/v1/chat/completions", last.dump());
  EXPECT_FALSE(reply.body_json()["choices"][0]["message"].contains("tool_calls"));
}

INSTANTIATE_TEST_SUITE_P(Formats, CommandTools,
                         ::testing::Values("hermes", "qwen3_coder", "deepseek_v31", "pythonic"),
                         [](const auto& each) { return std::string(each.param); });

TEST(CommandToolsOptions, UnknownParsersAreRefused) {
  const CommandEnd end =
      run_command({.arguments = {"serve", "--model", kReference, "--tool-call-parser", "nobody"}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_NE(end.err.find("--tool-call-parser: expected auto, none, deepseek_v3,"),
            std::string::npos)
      << end.err;
  const CommandEnd harmony = run_command(
      {.arguments = {"serve", "--model", kReference, "--reasoning-parser", "openai_gptoss"}});
  EXPECT_EQ(harmony.exit_code, 2);
  EXPECT_NE(harmony.err.find("<|channel|>"), std::string::npos) << harmony.err;
}

}  // namespace
}  // namespace wideep::tests
