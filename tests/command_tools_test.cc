// SPDX-License-Identifier: Apache-2.0
// An agent that calls tools of `wideep serve`: ten turns with three tools, whole and streamed, in
// every format. The models know nothing of tools, so that every call must come.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_server.h"
#include "formats/files.h"
#include "random_model.h"

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

// Ten turns, each asked for whole and streamed: the same call, in which everything is as its schema
// has it.
void expect_an_agent(const Server& server, int max_tokens, const json& bias = json::object()) {
  json messages = {{{"role", "user"}, {"content", "What is 3 + 4?"}}};
  std::set<std::string> ids;
  for (int turn = 0; turn < 10; ++turn) {
    json body = {{"model", "m"},
                 {"messages", messages},
                 {"tools", tools()},
                 {"tool_choice", "required"},
                 {"max_tokens", max_tokens},
                 {"logit_bias", bias},
                 {"parallel_tool_calls", false},
                 {"seed", turn}};
    if (turn % 3 == 2) body["tool_choice"] = tools()[1];
    const auto ask = [&](bool stream) {
      body["stream"] = stream;
      return server::ask(server.port(), "POST", "/v1/chat/completions", body.dump());
    };
    const Reply whole = ask(false), stream = ask(true);
    ASSERT_EQ(whole.status, 200) << whole.body;
    ASSERT_EQ(stream.status, 200) << stream.body;
    const json choice = whole.body_json()["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
    const json call = choice["message"]["tool_calls"][0];
    const json streamed = streamed_call(stream);
    ASSERT_TRUE(call.is_object() && streamed.is_object()) << whole.body << stream.body;
    EXPECT_EQ(call["function"], streamed["function"]);
    EXPECT_TRUE(turn % 3 != 2 || call["function"]["name"] == "mark") << call;
    expect_good(call);
    // Ids are the server's, but for Kimi's and Solar's, which the model writes.
    const std::string id = call["id"];
    const bool is_its_own = id.starts_with("functions.") || id.size() == 10;
    for (const json& each : {call, streamed}) {
      EXPECT_TRUE(is_its_own || ids.insert(each["id"]).second) << each;
    }
    messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}});
    messages.push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "7"}});
  }
  // And may answer without one.
  const json last = {{"model", "m"}, {"messages", messages}, {"max_tokens", 8}};
  const Reply reply = server::ask(server.port(), "POST", "/v1/chat/completions", last.dump());
  EXPECT_FALSE(reply.body_json()["choices"][0]["message"].contains("tool_calls"));
}

// The id of harmony's <|end|>.
constexpr const char* kHarmonyEnd = "260";

// Makes special tokens of GPT-OSS' format of the model's spare ones. Its end token is <|return|>.
void use_harmony(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  json file = json::parse(formats::read_file(path).value());
  json& added = file["added_tokens"];
  const json like = added[0];
  added = json::array();
  for (const char* name : {"<|return|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>",
                           "<|constrain|>", "<|call|>"}) {
    json token = like;
    token["id"] = like["id"].get<int>() + static_cast<int>(added.size());
    token["content"] = name;
    added.push_back(token);
  }
  ASSERT_TRUE(formats::write_file(path, file.dump()).ok());
}

class CommandTools : public ::testing::TestWithParam<const char*> {};

TEST_P(CommandTools, AnAgentCallsThem) {
  const Server server(kReference, {"--ranks", "2", "--tool-call-parser", GetParam()});
  ASSERT_GT(server.port(), 0);
  expect_an_agent(server, 100);
}

INSTANTIATE_TEST_SUITE_P(Formats, CommandTools,
                         ::testing::Values("hermes", "qwen3_coder", "deepseek_v31", "pythonic"),
                         [](const auto& each) { return std::string(each.param); });

// A family with random weights, whose template shows its format by a text that is in it.
struct Family {
  const char* format;  // vLLM's name
  const char* golden;  // of tests/golden/family_models
  const char* sign;
};

class CommandToolsOfFamilies : public ::testing::TestWithParam<Family> {};

TEST_P(CommandToolsOfFamilies, AnAgentCallsThem) {
  const base::ScratchDirectory directory;
  write_random_model_like(directory.path(), GetParam().golden);
  const std::string chat_template =
      "{% if tools %}{% for tool in tools %}{{ tool.function.name }} {% endfor %}" +
      std::string(GetParam().sign) +
      "{% endif %}{% for message in messages %}{{ message.role }}: {{ message.content }}"
      "{% for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}"
      "\n{% endfor %}assistant: ";
  ASSERT_TRUE(formats::write_file(directory.path() + "/chat_template.jinja", chat_template).ok());
  const bool is_harmony = std::string_view(GetParam().format) == "openai";
  if (is_harmony) use_harmony(directory.path());
  Server server(directory.path(), {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  EXPECT_NE(server.command().err().find(fmt::format("tool calls: {}, ", GetParam().format)),
            std::string::npos)
      << server.command().err();
  // Harmony's answers may begin with reasoning, which ends with a token that is not likely.
  expect_an_agent(server, 800, is_harmony ? json{{kHarmonyEnd, 5}} : json::object());
}

INSTANTIATE_TEST_SUITE_P(
    Families, CommandToolsOfFamilies,
    ::testing::Values(Family{"openai", "gpt_oss_plain", "functions"},
                      Family{"hermes", "qwen2_moe_dense", "<tool_call>\n{}"},
                      Family{"qwen3_coder", "qwen3_next_plain", "<tool_call><function="},
                      Family{"deepseek_v3", "deepseek_v2_groups", "<｜tool▁calls▁begin｜>```json"},
                      Family{"deepseek_v31", "deepseek_v2_lite", "<｜tool▁calls▁begin｜>"},
                      Family{"deepseek_v32", "deepseek_v32_plain", "<｜DSML｜"},
                      Family{"deepseek_v4", "deepseek_v32_plain", "<｜DSML｜tool_calls>"},
                      Family{"gemma4", "gemma4_plain", "<|tool_call>call:"},
                      Family{"hy_v3", "hy_v3_published", "<tool_sep:opensource>"},
                      Family{"minimax_m3", "minimax_m2_plain", "]<]minimax[>["},
                      Family{"cohere_command4", "qwen2_moe_dense", "<|START_ACTION|>"},
                      Family{"solar_open", "qwen2_moe_dense", "<|tool_call:begin|>"},
                      Family{"mistral_v11", "mixtral_window", "[TOOL_CALLS][ARGS]"},
                      Family{"kimi_k2", "kimi_k2_plain", "<|tool_calls_section_begin|>"},
                      Family{"glm45", "glm4_moe_norm_bias", "<tool_call><arg_key>"},
                      Family{"minimax_m2", "minimax_m2_plain", "<minimax:tool_call>"},
                      Family{"llama3_json", "llama4_maverick",
                             "\"parameters\": dictionary of argument name"},
                      Family{"pythonic", "llama4_scout", "[func_name1("},
                      Family{"granite", "granitemoe_plain", "<|tool_call|>"},
                      Family{"hunyuan_a13b", "hunyuan_v1_moe_lists", "<tool_calls>"},
                      Family{"mistral", "mixtral_window", "[TOOL_CALLS]"}),
    [](const auto& each) { return std::string(each.param.format); });

TEST(CommandToolsOptions, UnknownParsersAreRefused) {
  const CommandEnd end =
      run_command({.arguments = {"serve", "--model", kReference, "--tool-call-parser", "nobody"}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_NE(end.err.find("--tool-call-parser: expected auto, none, cohere_command3,"),
            std::string::npos)
      << end.err;
  const CommandEnd harmony = run_command(
      {.arguments = {"serve", "--model", kReference, "--reasoning-parser", "openai_gptoss"}});
  EXPECT_EQ(harmony.exit_code, 2);
  EXPECT_NE(harmony.err.find("<|channel|>"), std::string::npos) << harmony.err;
}

}  // namespace
}  // namespace wideep::tests
