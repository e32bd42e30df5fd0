// SPDX-License-Identifier: Apache-2.0
//
// Anthropic's turns are held against the messages that OpenAI's clients would have sent for them,
// and refusals against the place that they name. The table of fields is held against docs/serve.md
// and against the reader: what it calls without effect is taken whatever its value, what it refuses
// is refused. A failure is a field that is ignored, or whose guide is wrong.
#include "api/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "api/messages_fields.h"
#include "api/request_fields.h"
#include "api/turn_messages.h"
#include "formats/files.h"
#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

// The body with a model and a limit, and these members, as JSON.
std::string body_with(const std::string& members) {
  return R"({"model": "m", "max_tokens": 9, )" + members + "}";
}

constexpr const char* kHello = R"("messages": [{"role": "user", "content": "Hello"}])";

ChatRequest read(const std::string& members) {
  auto parsed = parse_messages_request(body_with(members));
  if (const auto* error = std::get_if<HttpError>(&parsed)) {
    ADD_FAILURE() << error->message << "\n" << members;
    return {};
  }
  return std::get<ChatRequest>(std::move(parsed));
}

ChatRequest read_hello(const std::string& members) { return read(members + ", " + kHello); }

Parsed<ChatRequest> parse_messages(std::string_view body) { return parse_messages_request(body); }

template <typename Parse>
std::string refusal_of(const std::string& body, const Parse& parse) {
  const auto parsed = parse(body);
  const auto* error = std::get_if<HttpError>(&parsed);
  if (error == nullptr) return "";
  EXPECT_EQ(error->status, 400);
  return error->message;
}

std::string refusal(const std::string& members) {
  return refusal_of(body_with(members), parse_messages);
}

std::string refusal_of_hello(const std::string& members) {
  return refusal(members + ", " + kHello);
}

struct TurnsCase {
  const char* what;
  const char* turns;     // Anthropic's
  const char* messages;  // OpenAI's
};

constexpr TurnsCase kTurns[] = {
    {"text", R"([{"role": "user", "content": "a"}])", R"([{"role":"user","content":"a"}])"},
    {"blocks of text",
     R"([{"role": "user", "content": [{"type": "text", "text": "a",
          "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": ""},
          {"type": "text", "text": "b"}]}])",
     R"([{"role":"user","content":"a\n\nb"}])"},
    {"turns of one role are one",
     R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"},
         {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}])",
     R"([{"role":"user","content":"a\n\nb"},{"role":"assistant","content":"c"},)"
     R"({"role":"user","content":"d"}])"},
    {"calls and their results",
     R"([{"role": "user", "content": "a"},
         {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "xyz"},
            {"type": "text", "text": "b"},
            {"type": "tool_use", "id": "t1", "name": "f",
             "input": {"x": 123456789012345678901234567890}},
            {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]},
         {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
             "content": [{"type": "text", "text": "two"}, {"type": "text", "text": "three"}]},
            {"type": "text", "text": "go on"}]}])",
     R"([{"role":"user","content":"a"},)"
     R"({"role":"assistant","content":"b","reasoning_content":"hm","tool_calls":[)"
     R"({"id":"t1","type":"function","function":{"name":"f",)"
     R"("arguments":"{\"x\":123456789012345678901234567890}"}},)"
     R"({"id":"t2","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
     R"({"role":"tool","tool_call_id":"t1","content":"one"},)"
     R"({"role":"tool","tool_call_id":"t2","content":"Error: two\n\nthree"},)"
     R"({"role":"user","content":"go on"}])"},
    {"only calls; a result without content",
     R"([{"role": "user", "content": "a"},
         {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": null}}]},
         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}])",
     R"([{"role":"user","content":"a"},)"
     R"({"role":"assistant","content":null,"tool_calls":[)"
     R"({"id":"t1","type":"function","function":{"name":"f","arguments":"{\"x\":null}"}}]},)"
     R"({"role":"tool","tool_call_id":"t1","content":""}])"},
    {"system messages in between",
     R"([{"role": "user", "content": "a"}, {"role": "system", "content": "b"},
         {"role": "user", "content": []}])",
     R"([{"role":"user","content":"a"},{"role":"system","content":"b"},)"
     R"({"role":"user","content":""}])"},
};

TEST(MessagesRequestTest, TurnsBecomeMessages) {
  for (const TurnsCase& each : kTurns) {
    const ChatRequest request = read(std::string("\"messages\": ") + each.turns);
    EXPECT_EQ(formats::json_text(request.messages), each.messages) << each.what;
    EXPECT_EQ(request.prefill, "") << each.what;
  }
}

TEST(MessagesRequestTest, TheSystemPromptComesFirst) {
  EXPECT_EQ(formats::json_text(read_hello(R"("system": "s")").messages),
            R"([{"role":"system","content":"s"},{"role":"user","content":"Hello"}])");
  EXPECT_EQ(formats::json_text(read_hello(R"("system": [{"type": "text", "text": "s"},
                                         {"type": "text", "text": "t", "cache_control": null}])")
                                   .messages),
            R"([{"role":"system","content":"s\n\nt"},{"role":"user","content":"Hello"}])");
  EXPECT_EQ(formats::json_text(read_hello(R"("system": [{"type": "text",
                                          "text": "x-anthropic-billing-header: cch=1;"},
                                         {"type": "text", "text": "t"}])")
                                   .messages[0]),
            R"({"role":"system","content":"t"})");
  for (const char* none : {R"("system": "x-anthropic-billing-header: cch=1;")", R"("system": "")",
                           R"("system": [])", R"("system": null)"}) {
    EXPECT_EQ(read_hello(none).messages.size(), 1u) << none;
  }
}

TEST(MessagesRequestTest, LaterSystemMessagesMayBeTheUsers) {
  const auto folded = [](const std::string& turns) {
    return formats::json_text(with_systems_folded(read("\"messages\": " + turns).messages));
  };
  EXPECT_EQ(folded(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
                      {"role": "system", "content": "b"}, {"role": "user", "content": "c"},
                      {"role": "assistant", "content": "d"}, {"role": "system", "content": "e"}])"),
            R"([{"role":"system","content":"s"},{"role":"user","content":"a\n\nb\n\nc"},)"
            R"({"role":"assistant","content":"d"},{"role":"user","content":"e"}])");
  EXPECT_EQ(folded(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "a"}])"),
            "null");
}

TEST(MessagesRequestTest, ALastMessageOfTheAssistantIsContinued) {
  const std::string question = R"("messages": [{"role": "user", "content": "a"}, )";
  ChatRequest request = read(question + R"({"role": "assistant", "content": "{\"x\": "}])");
  EXPECT_EQ(request.prefill, "{\"x\": ");
  EXPECT_EQ(request.messages.size(), 1u);
  request = read(question + R"({"role": "assistant", "content": []}])");
  EXPECT_EQ(request.prefill, "");
  EXPECT_EQ(request.messages.size(), 1u);
  EXPECT_THAT(refusal(question + R"({"role": "assistant", "content": [{"type": "tool_use",
                                     "id": "i", "name": "f", "input": {}}]}])"),
              HasSubstr("calls tools: expected a tool_result"));
  EXPECT_THAT(refusal(question + R"({"role": "assistant", "content": [{"type": "thinking",
                                     "thinking": "t", "signature": ""}]}])"),
              HasSubstr("found thinking"));
  EXPECT_THAT(refusal(R"("messages": [{"role": "assistant", "content": "a"}])"),
              HasSubstr("expected one of role user"));
  EXPECT_THAT(refusal(question + R"({"role": "assistant", "content": "a"}],
                "output_config": {"format": {"type": "json_schema", "schema": {}}})"),
              HasSubstr("expected none beside output_config.format.schema"));
}

TEST(MessagesRequestTest, OptionsOfDrawing) {
  const ChatRequest request = read_hello(
      R"("temperature": 0.5, "top_p": 0.25, "top_k": 7, "stop_sequences": ["x", "yz"],
         "stream": true)");
  EXPECT_EQ(request.options.model, "m");
  EXPECT_EQ(request.options.max_tokens, 9);
  EXPECT_TRUE(request.options.stream);
  EXPECT_FLOAT_EQ(request.options.engine_request.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(request.options.engine_request.sampling.top_p, 0.25f);
  EXPECT_EQ(request.options.engine_request.sampling.top_k, 7);
  EXPECT_THAT(request.options.stop, ElementsAre("x", "yz"));
}

TEST(MessagesRequestTest, ThinkingIsTheTemplates) {
  struct Case {
    const char* thinking;
    bool thinks, is_shown;
  };
  for (const Case& each : std::initializer_list<Case>{
           {"null", false, false},
           {R"({"type": "disabled"})", false, false},
           {R"({"type": "enabled", "budget_tokens": 2048})", true, true},
           {R"({"type": "adaptive", "display": "summarized"})", true, true},
           {R"({"type": "between_tools"})", true, true},
           {R"({"type": "adaptive", "display": "omitted"})", true, false}}) {
    const ChatRequest request = read_hello(std::string("\"thinking\": ") + each.thinking);
    EXPECT_EQ(request.variables["enable_thinking"], each.thinks) << each.thinking;
    EXPECT_EQ(request.variables["thinking"], each.thinks) << each.thinking;
    EXPECT_EQ(request.include_reasoning, each.is_shown) << each.thinking;
  }
  const ChatRequest own = read_hello(
      R"("chat_template_kwargs": {"enable_thinking": true}, "thinking": {"type": "disabled"})");
  EXPECT_EQ(own.variables["enable_thinking"], true);
  EXPECT_EQ(read_hello(R"("output_config": {"effort": "high"})").reasoning_effort, "high");
}

TEST(MessagesRequestTest, ToolsBecomeFunctions) {
  const std::string tools = R"("tools": [
      {"name": "f", "description": "d", "input_schema": {"type": "object"},
       "cache_control": {"type": "ephemeral"}, "strict": true},
      {"type": "custom", "name": "g", "input_schema": {}}])";
  const ChatRequest request = read_hello(tools);
  EXPECT_EQ(formats::json_text(request.tools),
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"}}},)"
            R"({"type":"function","function":{"name":"g","parameters":{}}}])");
  EXPECT_EQ(request.tool_choice, ToolChoice::kAuto);
  EXPECT_TRUE(request.parallel_tool_calls);

  const auto chosen = [&](const std::string& choice) {
    return read_hello(tools + R"(, "tool_choice": )" + choice);
  };
  EXPECT_EQ(chosen(R"({"type": "any"})").tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(chosen(R"({"type": "tool", "name": "g"})").tool_choice, ToolChoice::kNamed);
  EXPECT_EQ(chosen(R"({"type": "tool", "name": "g"})").named_tool, "g");
  EXPECT_TRUE(chosen(R"({"type": "none"})").tools.is_null());
  EXPECT_FALSE(
      chosen(R"({"type": "auto", "disable_parallel_tool_use": true})").parallel_tool_calls);
  EXPECT_TRUE(read_hello("\"tools\": []").tools.is_null());
}

TEST(MessagesRequestTest, FormatsOfTheAnswer) {
  for (const char* members :
       {R"("output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}})",
        R"("output_format": {"type": "json_schema", "schema": {"type": "object"}})"}) {
    const ChatRequest request = read_hello(members);
    ASSERT_TRUE(request.options.format) << members;
    EXPECT_EQ(request.options.format->schema["type"], "object");
  }
}

struct RefusalCase {
  const char* members;  // beside a message
  const char* message;
};

constexpr RefusalCase kRefusals[] = {
    {R"("n": 2)", "n: this field is not known"},
    {R"("container": "c")", "container: is not supported"},
    {R"("mcp_servers": [{"url": "http://a"}])", "mcp_servers: a server of tools is not supported"},
    {R"("temperature": -1)", "temperature: expected a number from 0"},
    {R"("top_p": 0)", "top_p: expected a number above 0"},
    {R"("top_k": 1.5)", "top_k: expected an integer"},
    {R"("stream": 1)", "stream: expected true or false"},
    {R"("stop_sequences": [""])", "stop_sequences: expected a list of at most 16 texts"},
    {R"("stop_sequences": "x")", "stop_sequences: expected a list"},
    {R"("system": 1)", "system: expected a string, or a list of blocks of type text, found 1"},
    {R"("system": [{"type": "image"}])", R"(system[0].type: expected "text", found "image")"},
    {R"("thinking": {"type": "much"})", R"(thinking.type: expected "enabled", "adaptive")"},
    {R"("thinking": true)", "thinking.type: expected"},
    {R"("thinking": {"type": "enabled", "budget_tokens": "x"})", "thinking.budget_tokens: "},
    {R"("thinking": {"type": "enabled", "depth": 1})", "thinking.depth: this field is not known"},
    {R"("tools": {})", "tools: expected a list"},
    {R"("tools": [{"type": "web_search_20250305", "name": "web_search"}])",
     R"(tools[0].type: expected "custom" or nothing, found "web_search_20250305")"},
    {R"("tools": [{"name": "f"}])", "tools[0].input_schema: expected a JSON schema"},
    {R"("tools": [{"name": "", "input_schema": {}}])", "tools[0].name: expected a name"},
    {R"("tool_choice": {"type": "any"})", "tool_choice.type: expected tools beside it"},
    {R"("tool_choice": "any")", "tool_choice.type: expected \"auto\""},
    {R"("tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "g"})",
     R"(tool_choice.name: expected the name of one of the tools, found "g")"},
    {R"("output_config": {"effort": "huge"})", "output_config.effort: expected"},
    {R"("output_config": {"format": {"type": "xml"}})", "output_config.format.type: expected"},
    {R"("output_config": {"verbosity": 1})", "output_config.verbosity: this field is not known"},
};

TEST(MessagesRequestTest, RefusalsNameThePlace) {
  for (const RefusalCase& each : kRefusals) {
    EXPECT_THAT(refusal_of_hello(each.members), HasSubstr(each.message)) << each.members;
  }
}

constexpr RefusalCase kRefusedTurns[] = {
    {"[]", "messages: expected a list of messages that is not empty"},
    {R"("x")", "messages: expected a list"},
    {R"([1])", "messages[0].role: expected"},
    {R"([{"role": "tool", "content": "x"}])", R"(messages[0].role: expected "user")"},
    {R"([{"role": "user"}])", "messages[0].content: expected a string, or a list of blocks"},
    {R"([{"role": "user", "content": [{"type": "image", "source": {}}]}])",
     R"(messages[0].content[0].type: expected text or tool_result, found "image")"},
    {R"([{"role": "user", "content": [{"type": "document", "source": {}}]}])", "\"document\""},
    {R"([{"role": "user", "content": [{"type": "text"}]}])",
     "messages[0].content[0].text: expected a string, found null"},
    {R"([{"role": "user", "content": [{"type": "tool_use", "id": "i"}]}])", "\"tool_use\""},
    {R"([{"role": "assistant", "content": [{"type": "server_tool_use"}]}])", "\"server_tool_use\""},
    {R"([{"role": "assistant", "content": [{"type": "tool_use", "id": "i", "name": "f",
          "input": "{}"}]}])",
     "messages[0].content[0].input: expected an object"},
    {R"([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i",
          "content": [{"type": "audio"}]}]}])",
     R"(messages[0].content[0].content[0].type: expected "text", found "audio")"},
    {R"([{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}])",
     "messages[0].content[0].tool_use_id: expected a string"},
    {R"([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i",
          "is_error": 1}]}])",
     "messages[0].content[0].is_error: expected true or false"},
};

TEST(MessagesRequestTest, RefusedTurnsToo) {
  for (const RefusalCase& each : kRefusedTurns) {
    EXPECT_THAT(refusal(std::string("\"messages\": ") + each.members), HasSubstr(each.message))
        << each.members;
  }
}

// An agent would be stuck: the result stays in the conversation.
TEST(MessagesRequestTest, ImagesThatToolsShowAreATextThatSaysSo) {
  const ChatRequest request = read(R"("messages": [{"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "Read:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
        {"type": "document", "source": {"type": "text", "data": "x"}}]},
      {"type": "tool_result", "tool_use_id": "j", "is_error": true,
       "content": [{"type": "image", "source": {}}]}]}])");
  EXPECT_EQ(request.messages[0]["content"],
            "Read:\n\n[An image was here. This model reads text only.]\n\n"
            "[A document was here. This model reads text only.]");
  EXPECT_EQ(request.messages[1]["content"],
            "Error: [An image was here. This model reads text only.]");
  EXPECT_THAT(request.options.without_effect, ElementsAre("content of tool_result of type document",
                                                          "content of tool_result of type image"));
}

TEST(MessagesRequestTest, MaxTokensIsNeeded) {
  const std::string body = std::string(R"({"model": "m", )") + kHello + "}";
  EXPECT_THAT(refusal_of(body, parse_messages), HasSubstr("found nothing"));
  const std::string none = std::string(R"({"model": "m", "max_tokens": 0, )") + kHello + "}";
  EXPECT_THAT(refusal_of(none, parse_messages),
              HasSubstr("max_tokens: expected an integer from 1"));
  EXPECT_EQ(refusal_of(body, parse_count_tokens_request), "");
  EXPECT_THAT(refusal_of(body_with(kHello), parse_count_tokens_request),
              HasSubstr("max_tokens: this field is not known"));
}

TEST(MessagesFieldsTest, TheGuideHasTheTable) {
  const std::string guide = formats::read_file(WIDEEP_SOURCE_DIR "/docs/serve.md").value();
  const std::string table = messages_fields_markdown();
  EXPECT_NE(guide.find(table), guide.npos) << "docs/serve.md should contain\n" << table;
}

// What has no effect has none whatever its value; what is honoured is read (BodyReader::finish).
TEST(MessagesFieldsTest, EachFieldIsThereOnceAndUsedAsItSays) {
  std::set<std::string_view> names;
  for (const RequestField& each : messages_fields()) {
    EXPECT_TRUE(names.insert(each.name).second) << each.name;
    const std::string member = "\"" + std::string(each.name) + "\": ";
    if ((each.bodies & kMessagesBody) == 0) continue;
    if (each.use == FieldUse::kWithoutEffect) {
      EXPECT_EQ(refusal_of_hello(member + R"([{"any": "thing"}])"), "") << each.name;
    }
    if (each.use == FieldUse::kRefused) {
      EXPECT_THAT(refusal_of_hello(member + "1"), HasSubstr("is not supported")) << each.name;
      EXPECT_EQ(refusal_of_hello(member + "null"), "") << each.name;
    }
  }
  EXPECT_NE(find_request_field("system", kCountTokensBody), nullptr);
  EXPECT_EQ(find_request_field("system", kChatBody), nullptr);
  EXPECT_EQ(find_request_field("seed", kMessagesBody), nullptr);
}

}  // namespace
}  // namespace wideep::server
