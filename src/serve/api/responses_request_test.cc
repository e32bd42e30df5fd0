// SPDX-License-Identifier: Apache-2.0
//
// Inputs are held against the messages that they must become, and mistakes against the field that
// the error names. Two bodies are made to be slow, with thousands of items or names of tools: the
// work must stay in proportion. One is what Codex sends in an agent's loop; a failure there keeps
// agents from using the server at all.
#include "api/responses_request.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/responses_items.h"
#include "base/work_timer.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

class ResponsesRequestTest : public testing::Test {
 protected:
  ResponsesRequestTest() {
    stored_.add("resp_1",
                {.response = R"({"output": [{"id": "fc_1", "type": "function_call", "status":)"
                             R"( "completed", "call_id": "c", "name": "f", "arguments": "{}"}]})",
                 .conversation = R"([{"id": "msg_in0", "type": "message", "status": "completed",)"
                                 R"( "role": "user", "content": [{"type": "input_text",)"
                                 R"( "text": "Earlier"}]}])"});
  }

  Parsed<ResponsesRequest> parse(const std::string& members) const {
    return parse_responses_request("{\"model\": \"m\", " + members + "}", stored_);
  }
  ResponsesRequest request(const std::string& members) const {
    auto parsed = parse(members);
    const auto* error = std::get_if<HttpError>(&parsed);
    EXPECT_EQ(error, nullptr) << members << "\n" << (error != nullptr ? error->message : "");
    return error != nullptr ? ResponsesRequest() : std::get<ResponsesRequest>(std::move(parsed));
  }
  HttpError error(const std::string& members) const {
    auto parsed = parse(members);
    const auto* error = std::get_if<HttpError>(&parsed);
    EXPECT_NE(error, nullptr) << members;
    return error == nullptr ? HttpError{} : *error;
  }
  ordered_json messages(const std::string& members) const { return request(members).chat.messages; }

  ResponseStore stored_{ResponseStoreLimits()};
};

TEST_F(ResponsesRequestTest, InputsBecomeMessages) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("input": "Hi")", R"([{"role":"user","content":"Hi"}])"},
      {R"("input": "Hi", "instructions": "Be kind")",
       R"([{"role":"system","content":"Be kind"},{"role":"user","content":"Hi"}])"},
      {R"("input": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                    {"type": "message", "role": "user", "content":
                     [{"type": "input_text", "text": "c"}, {"type": "input_text", "text": "d"}]}])",
       R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
       R"({"role":"user","content":"cd"}])"},
      // Many templates know one system message, the first.
      {R"("instructions": "x", "input": [{"role": "developer", "content": "y"},
           {"role": "user", "content": "a"}, {"role": "system", "content": "z"}])",
       R"([{"role":"system","content":"x\n\ny"},{"role":"user","content":"a"},)"
       R"({"role":"system","content":"z"}])"},
      {R"("input": [{"role": "developer", "content": "y"}, {"role": "user", "content": "a"}])",
       R"([{"role":"developer","content":"y"},{"role":"user","content":"a"}])"},
      // What an answer had, sent back.
      {R"("input": [{"role": "user", "content": "a"},
           {"type": "reasoning", "id": "rs_1", "summary": [], "content":
            [{"type": "reasoning_text", "text": "t"}], "encrypted_content": null},
           {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content":
            [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}]},
           {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "f", "arguments": "{}"},
           {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{\"a\": 1}"},
           {"type": "function_call_output", "call_id": "2", "output": "5"},
           {"type": "function_call_output", "call_id": "1", "output":
            [{"type": "input_text", "text": "6"}]}])",
       R"([{"role":"user","content":"a"},)"
       R"({"role":"assistant","reasoning_content":"t","content":"b","tool_calls":[)"
       R"({"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},)"
       R"({"id":"2","type":"function","function":{"name":"g","arguments":"{\"a\": 1}"}}]},)"
       R"({"role":"tool","content":"5","tool_call_id":"2","name":"g"},)"
       R"({"role":"tool","content":"6","tool_call_id":"1","name":"f"}])"},
      // A summary stands for reasoning that is not there; calls without text have none.
      {R"("input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
           {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}])",
       R"([{"role":"assistant","reasoning_content":"s","tool_calls":[{"id":"1","type":"function",)"
       R"("function":{"name":"f","arguments":"{}"}}],"content":null}])"},
      {R"("input": [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]},
           {"role": "user", "content": "a"}])",
       R"([{"role":"assistant","reasoning_content":"t","content":""},)"
       R"({"role":"user","content":"a"}])"},
      {R"("previous_response_id": "resp_1",
          "input": [{"type": "function_call_output", "call_id": "c", "output": "5"}])",
       R"([{"role":"user","content":"Earlier"},{"role":"assistant","tool_calls":[{"id":"c",)"
       R"("type":"function","function":{"name":"f","arguments":"{}"}}],"content":null},)"
       R"({"role":"tool","content":"5","tool_call_id":"c","name":"f"}])"},
  };
  for (const auto& [body, expected] : kCases) EXPECT_EQ(messages(body).dump(), expected) << body;
}

// They are stored, and held while an answer runs, but not in the prompt, which has its limit.
TEST_F(ResponsesRequestTest, IdsOfItemsAreBounded) {
  const auto call = [](size_t id, size_t call_id) {
    return R"("input": [{"type": "function_call", "name": "f", "arguments": "{}", "id": ")" +
           std::string(id, 'i') + R"(", "call_id": ")" + std::string(call_id, 'c') + R"("}])";
  };
  EXPECT_EQ(request(call(64, 256)).conversation[0]["id"], std::string(64, 'i'));
  EXPECT_EQ(error(call(65, 1)).message, "input[0].id: expected at most 64 bytes, found 65");
  EXPECT_EQ(error(call(1, 257)).param, "input[0].call_id");
}

TEST_F(ResponsesRequestTest, ItemsAreStoredInOneForm) {
  const ordered_json items = request(R"("input": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "id": "msg_7"}])")
                                 .conversation;
  EXPECT_EQ(items.dump(),
            R"([{"id":"msg_in0","type":"message","status":"completed","role":"user","content":)"
            R"([{"type":"input_text","text":"a"}]},)"
            R"({"id":"msg_7","type":"message","status":"completed","role":"assistant","content":)"
            R"([{"type":"output_text","text":"b","annotations":[]}]}])");
  const ResponsesRequest later = request(R"("previous_response_id": "resp_1", "input": "b")");
  EXPECT_EQ(later.conversation.size(), 3u);
  EXPECT_EQ(later.conversation[2]["id"], "msg_in2");
}

TEST_F(ResponsesRequestTest, OptionsAreHonoured) {
  const ResponsesRequest asked = request(
      R"("input": "a", "max_output_tokens": 7, "temperature": 0.5, "top_p": 0.25, "top_k": 3,
         "seed": 5, "stream": true, "stream_options": {"include_obfuscation": true},
         "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
         "top_logprobs": 2, "reasoning": {"effort": "low", "summary": "auto"}, "store": true,
         "metadata": {"a": "b"}, "user": "u", "truncation": "disabled", "background": false,
         "service_tier": "flex", "text": {"verbosity": "medium"}, "max_tool_calls": 3)");
  const GenerationOptions& options = asked.chat.options;
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(options.max_tokens, 7);
  EXPECT_EQ(options.engine_request.sampling.temperature, 0.5f);
  EXPECT_EQ(options.engine_request.sampling.top_p, 0.25f);
  EXPECT_EQ(options.engine_request.sampling.top_k, 3);
  EXPECT_EQ(options.engine_request.sampling.seed, 5u);
  EXPECT_EQ(options.engine_request.sampling.top_log_probabilities, 2);
  EXPECT_TRUE(options.stream && options.logprobs && asked.store);
  EXPECT_EQ(asked.chat.reasoning_effort, "low");
  EXPECT_EQ(
      asked.repeated.dump(),
      R"({"background":false,"max_output_tokens":7,"top_logprobs":2,"tools":[],)"
      R"("tool_choice":"auto","parallel_tool_calls":true,"text":{"format":{"type":"text"},)"
      R"("verbosity":"medium"},"reasoning":{"effort":"low","summary":null},"metadata":{"a":"b"},)"
      R"("store":true,"temperature":0.5,"top_p":0.25,"truncation":"disabled",)"
      R"("service_tier":"default","user":"u","instructions":null,"previous_response_id":null})");
}

TEST_F(ResponsesRequestTest, NothingIsStoredUnlessTheBodySaysSo) {
  EXPECT_FALSE(request(R"("input": "a")").store);
  EXPECT_FALSE(request(R"("input": "a", "store": null)").store);
}

TEST_F(ResponsesRequestTest, FormatsAreThoseOfChats) {
  using Kind = grammar::OutputFormat::Kind;
  EXPECT_FALSE(
      request(R"("input": "a", "text": {"format": {"type": "text"}})").chat.options.format);
  EXPECT_EQ(request(R"("input": "a", "text": {"format": {"type": "json_object"}})")
                .chat.options.format->kind,
            Kind::kJsonObject);
  const ResponsesRequest of_schema = request(
      R"("input": "a", "text": {"format": {"type": "json_schema", "name": "n", "strict": true,
         "schema": {"type": "object"}}})");
  EXPECT_EQ(of_schema.chat.options.format->kind, Kind::kJsonSchema);
  EXPECT_EQ(of_schema.chat.options.format->schema.dump(), R"({"type":"object"})");
  EXPECT_EQ(of_schema.chat.options.format->place, "text.format.schema");
  EXPECT_EQ(of_schema.repeated["text"]["format"]["name"], "n");
}

TEST_F(ResponsesRequestTest, ToolsAreThoseOfChats) {
  const std::string tools =
      R"("input": "a", "tools": [{"type": "function", "name": "f", "description": "d",
         "parameters": {"type": "object"}, "strict": false}, {"type": "function", "name": "g"}])";
  const ResponsesRequest asked = request(tools);
  EXPECT_EQ(asked.chat.tools.dump(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
            R"({"type":"object"},"strict":false}},{"type":"function","function":{"name":"g"}}])");
  EXPECT_EQ(asked.repeated["tools"][1].dump(),
            R"({"type":"function","name":"g","description":null,"parameters":null,"strict":null})");
  EXPECT_EQ(asked.chat.tool_choice, ToolChoice::kAuto);
  EXPECT_EQ(request(tools + R"(, "tool_choice": "required")").chat.tool_choice,
            ToolChoice::kRequired);
  EXPECT_TRUE(request(tools + R"(, "tool_choice": "none")").chat.tools.is_null());
  const ResponsesRequest named =
      request(tools + R"(, "tool_choice": {"type": "function", "name": "g"})");
  EXPECT_EQ(named.chat.tool_choice, ToolChoice::kNamed);
  EXPECT_EQ(named.chat.named_tool, "g");
  const ResponsesRequest some =
      request(tools + R"(, "parallel_tool_calls": false, "tool_choice": {"type": "allowed_tools",
                  "mode": "required", "tools": [{"type": "function", "name": "g"}]})");
  EXPECT_EQ(some.chat.tool_choice, ToolChoice::kRequired);
  EXPECT_FALSE(some.chat.parallel_tool_calls);
  ASSERT_EQ(some.chat.tools.size(), 1u);
  EXPECT_EQ(some.chat.tools[0]["function"]["name"], "g");
  EXPECT_EQ(some.repeated["tools"].size(), 2u);
}

// A body names a few long tools a million times.
TEST_F(ResponsesRequestTest, AllowedToolsAreOfferedOnceInTheirOrder) {
  const std::string description(1 << 14, 'd');
  std::string body =
      R"("input": "a", "tools": [{"type": "function", "name": "f", "description": ")" +
      description + R"("}, {"type": "custom", "name": "h"}, {"type": "namespace",
                     "name": "n", "tools": [{"type": "function", "name": "g"}]}, {"type":
                     "function", "name": "other"}], "tool_choice": {"type": "allowed_tools",
                     "mode": "auto", "tools": [{"type": "function", "name": "g"})";
  for (int i = 0; i < 20'000; ++i) body += R"(, {"type": "function", "name": "f"})";
  const ResponsesRequest asked = request(body + R"(, {"type": "custom", "name": "h"}]})");
  ASSERT_EQ(asked.chat.tools.size(), 3u);
  EXPECT_EQ(asked.chat.tools[0]["function"]["name"], "f");
  EXPECT_EQ(asked.chat.tools[1]["function"]["name"], "h");
  EXPECT_EQ(asked.chat.tools[2]["function"]["name"], "n__g");
}

// What is added to one text for each item.
TEST_F(ResponsesRequestTest, WorkIsProportionalToTheBody) {
  const std::string text(200, 't');
  std::string systems, thoughts = R"({"role": "user", "content": "a"})";
  constexpr int kNumItems = 20'000;
  for (int i = 0; i < kNumItems; ++i) {
    systems += R"({"role": "system", "content": ")" + text + "\"}, ";
    thoughts += R"(, {"type": "reasoning", "summary": [{"type": "summary_text", "text": ")" + text +
                "\"}]}";
  }
  const base::WorkTimer work;
  const ordered_json one =
      messages("\"input\": [" + systems + R"({"role": "user", "content": "a"}])");
  const ordered_json thought = messages("\"input\": [" + thoughts + "]");
  EXPECT_LT(work.seconds(), 4);
  const size_t bytes = kNumItems * (text.size() + 2) - 2;
  EXPECT_EQ(one.at(0).at("content").get<std::string>().size(), bytes);
  EXPECT_EQ(thought.at(1).at("reasoning_content").get<std::string>().size(), bytes);
}

// What a client calls a tool of OpenAI's is in no line of the log, nor kept.
TEST_F(ResponsesRequestTest, ToolsThatAreLeftOutHaveNamesOfTheTable) {
  const ResponsesRequest asked = request(R"("input": "a", "tools": [
      {"type": "web_search_2025_08_26"}, {"type": "web_search_preview_2025_03_11"},
      {"type": "mcp"}, {"type": "code_interpreter_2030_01_01"}])");
  EXPECT_THAT(
      asked.chat.options.without_effect,
      testing::ElementsAre("tools[] of type code_interpreter", "tools[] of type mcp",
                           "tools[] of type web_search", "tools[] of type web_search_preview"));
  for (const char* type : {"web_search\\n[error] forged", "web_search_1", "web_search_2025_08_2x",
                           "_2025_08_26", "web_searches"}) {
    EXPECT_EQ(error(fmt::format(R"("input": "a", "tools": [{{"type": "{}"}}])", type)).param,
              "tools[0].type")
        << type;
  }
}

// What Codex sends by default, and in an agent's loop.
TEST_F(ResponsesRequestTest, ToolsOfAgents) {
  const ResponsesRequest asked = request(R"("client_metadata": {"installation": "0"},
      "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "custom_tool_call", "id": "ctc_1", "status": "completed", "call_id": "1",
         "name": "apply_patch", "input": "*** Begin\n\"x\""},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "Done"},
        {"type": "function_call", "call_id": "2", "name": "close_agent", "namespace": "agents",
         "arguments": "{}"},
        {"type": "function_call_output", "call_id": "2", "output": [
          {"type": "input_text", "text": "6"}, {"type": "input_image", "image_url": "x"}]}],
      "tools": [
        {"type": "function", "name": "exec", "parameters": {"type": "object"}, "strict": false},
        {"type": "custom", "name": "apply_patch", "description": "Patches.",
         "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
        {"type": "namespace", "name": "agents", "description": "Of agents.", "tools": [
          {"type": "function", "name": "close_agent", "description": "Closes.", "parameters": {},
           "defer_loading": true},
          {"type": "custom", "name": "say"}]},
        {"type": "web_search", "external_web_access": false}, {"type": "tool_search"},
        {"type": "image_generation", "output_format": "png"}],
      "tool_choice": {"type": "custom", "name": "apply_patch"})");
  EXPECT_EQ(asked.chat.tools.dump(),
            R"([{"type":"function","function":{"name":"exec","parameters":{"type":"object"},)"
            R"("strict":false}},)"
            R"({"type":"function","function":{"name":"apply_patch","description":"Patches.\n\n)"
            R"(The input must match this Lark grammar:\nstart: x","parameters":{"type":"object",)"
            R"("properties":{"input":{"type":"string"}},"required":["input"],)"
            R"("additionalProperties":false}}},)"
            R"({"type":"function","function":{"name":"agents__close_agent","description":)"
            R"("Of agents.\n\nCloses.","parameters":{}}},)"
            R"({"type":"function","function":{"name":"agents__say","parameters":{"type":"object",)"
            R"("properties":{"input":{"type":"string"}},"required":["input"],)"
            R"("additionalProperties":false}}}])");
  // The reply names those that the model was offered.
  ASSERT_EQ(asked.repeated["tools"].size(), 3u);
  EXPECT_EQ(asked.repeated["tools"][1]["type"], "custom");
  EXPECT_EQ(asked.repeated["tools"][2]["tools"][1]["name"], "say");
  EXPECT_EQ(asked.chat.tool_choice, ToolChoice::kNamed);
  EXPECT_EQ(asked.chat.named_tool, "apply_patch");
  const ordered_json& messages = asked.chat.messages;
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"].dump(),
            R"({"name":"apply_patch","arguments":"{\"input\":\"*** Begin\\n\\\"x\\\"\"}"})");
  EXPECT_EQ(messages[2].dump(),
            R"({"role":"tool","content":"Done","tool_call_id":"1","name":"apply_patch"})");
  EXPECT_EQ(messages[3]["tool_calls"][0]["function"]["name"], "agents__close_agent");
  EXPECT_EQ(messages[4]["content"], "6[An image was here. This model reads text only.]");
  EXPECT_THAT(asked.chat.options.without_effect,
              testing::IsSupersetOf(
                  {"client_metadata", "tools[] of type web_search", "tools[] of type tool_search",
                   "tools[] of type image_generation", "input[].output[] of type input_image"}));
}

TEST_F(ResponsesRequestTest, InstructionsAloneAreAnswered) {
  EXPECT_EQ(messages(R"("instructions": "Be kind", "input": [])").dump(),
            R"([{"role":"system","content":"Be kind"}])");
  EXPECT_EQ(messages(R"("previous_response_id": "resp_1", "input": [])").size(), 2u);
}

TEST_F(ResponsesRequestTest, MistakesAreNamed) {
  struct Case {
    const char* body;
    const char* param;
    const char* message;
  };
  const Case kCases[] = {
      {R"("n": 2, "input": "a")", "n", "this field is not known"},
      {R"("messages": [], "input": "a")", "messages", "this field is not known"},
      {R"("store": false)", "input", "expected a text, or a list of items"},
      {R"("input": [])", "input", "expected a text, or a list of items that is not empty"},
      {R"("input": ["a"])", "input[0]", "expected an object, found \"a\""},
      {R"("input": [{"content": "a"}])", "input[0].type", "found null"},
      {R"("input": [{"role": "user", "content": "a"}, {"type": "web_search_call"}])",
       "input[1].type", "expected \"message\", \"function_call\""},
      {R"("input": [{"type": "item_reference", "id": "x"}])", "input[0].type", "item_reference"},
      {R"("input": [{"role": "tool", "content": "a"}])", "input[0].role", "found \"tool\""},
      {R"("input": [{"role": "user", "content": null}])", "input[0].content", "found null"},
      {R"("input": [{"role": "user", "content": [{"type": "input_image"}]}])",
       "input[0].content[0].type", "expected \"input_text\", found \"input_image\""},
      {R"("input": [{"role": "user", "content": [{"type": "output_text", "text": "a"}]}])",
       "input[0].content[0].type", "expected \"input_text\", found"},
      {R"("input": [{"role": "user", "content": [{"type": "input_text"}]}])",
       "input[0].content[0].text", "expected a string"},
      {R"("input": [{"role": "user", "content": "a", "x": 1}])", "input[0].x", "not known"},
      {R"("input": [{"type": "function_call", "name": "f", "arguments": "{}"}])",
       "input[0].call_id", "expected a string, found null"},
      {R"("input": [{"type": "function_call_output", "call_id": "x", "output": "a"}])", "input",
       "no function_call of call_id \"x\""},
      {R"("input": [{"type": "reasoning", "content": [{"type": "x"}]}])", "input[0].content[0]",
       "reasoning_text"},
      {R"("previous_response_id": "resp_2", "input": "a")", "previous_response_id",
       "there is no stored response \"resp_2\""},
      {R"("input": "a", "tools": [{"type": "plugin"}])", "tools[0].type",
       "found \"plugin\"; this server runs no tools of its own"},
      {R"("input": "a", "tools": [{"type": "custom", "name": "f", "format": {"type": "xml"}}])",
       "tools[0].format.type", "expected \"text\" or \"grammar\", found \"xml\""},
      {R"("input": "a", "tools": [{"type": "custom", "name": "f", "format":
          {"type": "grammar", "syntax": "ebnf", "definition": "x"}}])",
       "tools[0].format.syntax", "expected \"lark\" or \"regex\""},
      {R"("input": "a", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "x"}]}])",
       "tools[0].tools[0].type", "expected \"function\" or \"custom\""},
      {R"("input": "a", "tools": [{"type": "function", "name": "f"}, {"type": "custom",
          "name": "f"}])",
       "tools[1].name", "another tool is called 'f'"},
      {R"("input": "a", "tools": [{"type": "web_search"}], "tool_choice": "required")",
       "tool_choice", "expected tools beside it"},
      {R"("input": "a", "tools": [{"type": "function", "name": "f"}],
          "tool_choice": {"type": "custom", "name": "f"})",
       "tool_choice.name", "expected the name of one of the tools"},
      {R"("input": "a", "tools": [{"type": "function", "function": {"name": "f"}}])",
       "tools[0].function", "not known"},
      {R"("input": "a", "tools": [{"type": "function", "name": ""}])", "tools[0].name",
       "expected a name"},
      {R"("input": "a", "tools": [{"type": "function", "name": "f", "parameters": []}])",
       "tools[0].parameters", "expected a JSON schema"},
      {R"("input": "a", "tool_choice": "required")", "tool_choice", "expected tools beside it"},
      {R"("tools": [{"type": "function", "name": "f"}], "input": "a",
          "tool_choice": {"type": "function", "name": "g"})",
       "tool_choice.name", "expected the name of one of the tools"},
      {R"("tools": [{"type": "function", "name": "f"}], "input": "a",
          "tool_choice": {"type": "file_search"})",
       "tool_choice", "allowed_tools"},
      {R"("tools": [{"type": "function", "name": "f"}], "input": "a", "tool_choice":
          {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]})",
       "tool_choice.tools[0]", "with the name of one of the tools"},
      {R"("input": "a", "text": {"format": {"type": "json_schema", "schema": {}}})",
       "text.format.name", "expected a name"},
      {R"("input": "a", "text": {"format": {"type": "json_schema", "name": "n"}})",
       "text.format.schema", "expected a JSON schema"},
      {R"("input": "a", "text": {"format": {"type": "grammar"}})", "text.format.type",
       "found \"grammar\""},
      {R"("input": "a", "text": {"verbosity": "low"})", "text.verbosity", "is not supported"},
      {R"("input": "a", "reasoning": {"effort": "huge"})", "reasoning.effort", "found \"huge\""},
      {R"("input": "a", "reasoning": {"mode": "pro"})", "reasoning.mode", "is not supported"},
      {R"("input": "a", "include": ["x"])", "include[0]", "expected one of OpenAI's names"},
      {R"("input": "a", "top_logprobs": 2)", "top_logprobs",
       "expected include: [\"message.output_text.logprobs\"]"},
      {R"("input": "a", "max_output_tokens": 0)", "max_output_tokens",
       "expected an integer from 1"},
      {R"("input": "a", "metadata": {"a": 1})", "metadata", "found \"a\": 1"},
      {R"("input": "a", "stream_options": {})", "stream_options", "only with stream: true"},
      {R"("input": "a", "background": true)", "background", "is not supported"},
      {R"("input": "a", "truncation": "auto")", "truncation", "is not supported"},
      {R"("input": "a", "conversation": "c")", "conversation", "is not supported"},
      {R"("input": "a", "prompt": {"id": "p"})", "prompt", "is not supported"},
      {R"("input": "a", "instructions": 1)", "instructions", "expected a string, found 1"},
  };
  for (const Case& each : kCases) {
    const HttpError found = error(each.body);
    EXPECT_EQ(found.param, each.param) << each.body << "\n" << found.message;
    EXPECT_THAT(found.message, HasSubstr(each.message)) << each.body;
    EXPECT_EQ(found.status, found.param == "previous_response_id" ? 404 : 400);
  }
}

TEST_F(ResponsesRequestTest, ItemsAreListedInPages) {
  const std::string items = R"([{"id": "a"}, {"id": "b"}, {"id": "c"}])";
  const auto page = [&](const ItemPage& wanted) {
    const auto made = item_page(items, wanted);
    const auto* error = std::get_if<HttpError>(&made);
    return error != nullptr ? error->param : std::get<ordered_json>(made).dump();
  };
  EXPECT_EQ(page({}),
            R"({"object":"list","data":[{"id":"c"},{"id":"b"},{"id":"a"}],"first_id":"c",)"
            R"("last_id":"a","has_more":false})");
  EXPECT_EQ(page({.after = "a", .order = "asc", .limit = 1}),
            R"({"object":"list","data":[{"id":"b"}],"first_id":"b","last_id":"b",)"
            R"("has_more":true})");
  EXPECT_EQ(page({.after = "a"}),
            R"({"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false})");
  EXPECT_EQ(page({.after = "x"}), "after");
  EXPECT_EQ(page({.order = "up"}), "order");
  EXPECT_EQ(page({.limit = 0}), "limit");
}

}  // namespace
}  // namespace wideep::server
