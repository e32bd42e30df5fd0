// SPDX-License-Identifier: Apache-2.0
//
// Streams are held byte for byte against events in Anthropic's form, and whole messages against
// what the streams add up to. Why a message ends, arguments that are no object, and the types of
// errors are tables of cases. A failure is a reply that a client of that API would misread.
#include "api/messages_reply.h"

#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using answer::CallPart;
using engine::FinishReason;
using nlohmann::ordered_json;

const ReplyHead kHead{.api = Api::kMessages, .id = "msg_1", .created = 7, .model = "m"};
const Usage kPrompt{.prompt_tokens = 10};
const Usage kAll{
    .prompt_tokens = 10, .completion_tokens = 5, .cached_tokens = 7, .written_tokens = 1};

// An answer, part by part.
struct Part {
  std::string text = {};
  std::string reasoning = {};
  std::vector<CallPart> calls = {};
  FinishReason finish_reason = FinishReason::kNotFinished;
  std::string stop_string = {};
  bool fills_context = false;
  bool has_called = false;
};

ReplyPart reply_part(const Part& part) {
  return {.text = part.text,
          .reasoning = part.reasoning,
          .calls = &part.calls,
          .has_called = part.has_called,
          .finish_reason = part.finish_reason,
          .stop_string = part.stop_string,
          .fills_context = part.fills_context};
}

std::string stream_of(const std::vector<Part>& parts) {
  MessagesWriter writer(kHead);
  std::string events;
  writer.begin(1, kPrompt, &events);
  for (const Part& part : parts) writer.add(reply_part(part), &events);
  writer.end(kAll, &events);
  return events;
}

ordered_json whole_of(const std::vector<Part>& parts) {
  MessagesWriter writer(kHead);
  writer.begin(1, kPrompt, nullptr);
  for (const Part& part : parts) writer.add(reply_part(part), nullptr);
  return ordered_json::parse(writer.whole({}, kAll));
}

CallPart call(int index, std::string id, std::string name, std::string arguments) {
  return {.index = index,
          .begins = true,
          .id = std::move(id),
          .name = std::move(name),
          .arguments = std::move(arguments)};
}

CallPart more(int index, std::string arguments) {
  return {.index = index, .begins = false, .id = {}, .name = {}, .arguments = std::move(arguments)};
}

constexpr const char* kStart =
    "event: message_start\n"
    "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\","
    "\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,"
    "\"stop_sequence\":null,\"usage\":{\"input_tokens\":10,\"cache_creation_input_tokens\":0,"
    "\"cache_read_input_tokens\":0,\"output_tokens\":0}}}\n\n";

std::string end_with(const std::string& reason, const std::string& sequence = "null") {
  return "event: message_delta\n"
         "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"" +
         reason + "\",\"stop_sequence\":" + sequence +
         "},\"usage\":{\"input_tokens\":2,\"cache_creation_input_tokens\":1,"
         "\"cache_read_input_tokens\":7,\"output_tokens\":5}}\n\n"
         "event: message_stop\n"
         "data: {\"type\":\"message_stop\"}\n\n";
}

TEST(MessagesWriterTest, TextAsAnthropicStreamsIt) {
  EXPECT_EQ(
      stream_of({{.text = "Hi"}, {.text = " \"you\"\n", .finish_reason = FinishReason::kStop}}),
      kStart +
          std::string("event: content_block_start\n"
                      "data: {\"type\":\"content_block_start\",\"index\":0,"
                      "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
                      "event: ping\n"
                      "data: {\"type\":\"ping\"}\n\n"
                      "event: content_block_delta\n"
                      "data: {\"type\":\"content_block_delta\",\"index\":0,"
                      "\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n"
                      "event: content_block_delta\n"
                      "data: {\"type\":\"content_block_delta\",\"index\":0,"
                      "\"delta\":{\"type\":\"text_delta\",\"text\":\" \\\"you\\\"\\n\"}}\n\n"
                      "event: content_block_stop\n"
                      "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n") +
          end_with("end_turn"));
}

TEST(MessagesWriterTest, ThinkingTextAndCallsAreBlocksOfTheirOwn) {
  const std::vector<Part> parts = {
      {.reasoning = "hm"},
      {.text = "Let me see.", .reasoning = "!"},
      {.calls = {call(0, "t1", "f", "{\"x\":")}, .has_called = true},
      {.calls = {more(0, "1}"), call(1, "t2", "g", ""), call(2, "t3", "h", "{}")},
       .has_called = true},
      {.text = "Done.", .finish_reason = FinishReason::kStop, .has_called = true}};
  EXPECT_EQ(
      stream_of(parts),
      kStart +
          std::string(
              "event: content_block_start\n"
              "data: {\"type\":\"content_block_start\",\"index\":0,"
              "\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n"
              "event: ping\n"
              "data: {\"type\":\"ping\"}\n\n"
              "event: content_block_delta\n"
              "data: {\"type\":\"content_block_delta\",\"index\":0,"
              "\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n"
              "event: content_block_delta\n"
              "data: {\"type\":\"content_block_delta\",\"index\":0,"
              "\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"!\"}}\n\n"
              "event: content_block_delta\n"
              "data: {\"type\":\"content_block_delta\",\"index\":0,"
              "\"delta\":{\"type\":\"signature_delta\",\"signature\":\"msg_1\"}}\n\n"
              "event: content_block_stop\n"
              "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
              "event: content_block_start\n"
              "data: {\"type\":\"content_block_start\",\"index\":1,"
              "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
              "event: content_block_delta\n"
              "data: {\"type\":\"content_block_delta\",\"index\":1,"
              "\"delta\":{\"type\":\"text_delta\",\"text\":\"Let me see.\"}}\n\n"
              "event: content_block_stop\n"
              "data: {\"type\":\"content_block_stop\",\"index\":1}\n\n"
              "event: content_block_start\n"
              "data: {\"type\":\"content_block_start\",\"index\":2,"
              "\"content_block\":{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\","
              "\"input\":{}}}\n\n"
              "event: content_block_delta\n"
              "data: {\"type\":\"content_block_delta\",\"index\":2,"
              "\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"x\\\":\"}}\n\n"
              "event: content_block_delta\n"
              "data: {\"type\":\"content_block_delta\",\"index\":2,"
              "\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"1}\"}}\n\n"
              "event: content_block_stop\n"
              "data: {\"type\":\"content_block_stop\",\"index\":2}\n\n"
              "event: content_block_start\n"
              "data: {\"type\":\"content_block_start\",\"index\":3,"
              "\"content_block\":{\"type\":\"tool_use\",\"id\":\"t2\",\"name\":\"g\","
              "\"input\":{}}}\n\n"
              "event: content_block_stop\n"
              "data: {\"type\":\"content_block_stop\",\"index\":3}\n\n"
              "event: content_block_start\n"
              "data: {\"type\":\"content_block_start\",\"index\":4,"
              "\"content_block\":{\"type\":\"tool_use\",\"id\":\"t3\",\"name\":\"h\","
              "\"input\":{}}}\n\n"
              "event: content_block_delta\n"
              "data: {\"type\":\"content_block_delta\",\"index\":4,"
              "\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n"
              "event: content_block_stop\n"
              "data: {\"type\":\"content_block_stop\",\"index\":4}\n\n"
              "event: content_block_start\n"
              "data: {\"type\":\"content_block_start\",\"index\":5,"
              "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
              "event: content_block_delta\n"
              "data: {\"type\":\"content_block_delta\",\"index\":5,"
              "\"delta\":{\"type\":\"text_delta\",\"text\":\"Done.\"}}\n\n"
              "event: content_block_stop\n"
              "data: {\"type\":\"content_block_stop\",\"index\":5}\n\n") +
          end_with("tool_use"));
  EXPECT_EQ(whole_of(parts).dump(),
            R"({"id":"msg_1","type":"message","role":"assistant","model":"m","content":[)"
            R"({"type":"thinking","thinking":"hm!","signature":"msg_1"},)"
            R"({"type":"text","text":"Let me see."},)"
            R"({"type":"tool_use","id":"t1","name":"f","input":{"x":1}},)"
            R"({"type":"tool_use","id":"t2","name":"g","input":{}},)"
            R"({"type":"tool_use","id":"t3","name":"h","input":{}},)"
            R"({"type":"text","text":"Done."}],)"
            R"("stop_reason":"tool_use","stop_sequence":null,)"
            R"("usage":{"input_tokens":2,"cache_creation_input_tokens":1,)"
            R"("cache_read_input_tokens":7,"output_tokens":5}})");
}

TEST(MessagesWriterTest, WhyAMessageEnds) {
  struct Case {
    Part last;
    const char* reason;
    const char* sequence;  // as JSON
  };
  const Case kCases[] = {
      {{.finish_reason = FinishReason::kStop}, "end_turn", "null"},
      {{.finish_reason = FinishReason::kStop, .stop_string = "\n"}, "stop_sequence", "\"\\n\""},
      {{.finish_reason = FinishReason::kStop, .has_called = true}, "tool_use", "null"},
      {{.finish_reason = FinishReason::kLength}, "max_tokens", "null"},
      {{.finish_reason = FinishReason::kLength, .has_called = true}, "max_tokens", "null"},
      {{.finish_reason = FinishReason::kLength, .fills_context = true},
       "model_context_window_exceeded",
       "null"}};
  for (const Case& each : kCases) {
    EXPECT_EQ(stream_of({each.last}), kStart + end_with(each.reason, each.sequence));
    const ordered_json whole = whole_of({each.last});
    EXPECT_EQ(whole["stop_reason"], each.reason);
    EXPECT_EQ(whole["stop_sequence"].dump(), each.sequence);
    EXPECT_EQ(whole["content"].dump(), "[]");
  }
}

TEST(MessagesWriterTest, ArgumentsThatAreNoObject) {
  for (const char* text : {"{\"x\": 1", "[1]", "{\"x\":1,\"x\":2}", "nonsense"}) {
    const ordered_json whole = whole_of({{.calls = {call(0, "t", "f", text)},
                                          .finish_reason = FinishReason::kLength,
                                          .has_called = true}});
    EXPECT_EQ(whole["content"][0]["input"]["INVALID_JSON"], text);
  }
  // Every digit of large integers.
  MessagesWriter writer(kHead);
  const std::string large = "{\"x\":123456789012345678901234567890}";
  const Part part{.calls = {call(0, "t", "f", large)}, .finish_reason = FinishReason::kStop};
  writer.add(reply_part(part), nullptr);
  EXPECT_NE(writer.whole({}, kAll).find("\"input\":" + large), std::string::npos);
}

TEST(MessagesWriterTest, Errors) {
  MessagesWriter writer(kHead);
  std::string events;
  writer.fail({.status = 500, .message = "why"}, &events);
  EXPECT_EQ(events,
            "event: error\n"
            "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"why\"},"
            "\"request_id\":\"req_1\"}\n\n");
  const auto type = [](int status) {
    return ordered_json::parse(messages_error({.status = status, .message = "x"}, ""));
  };
  EXPECT_EQ(type(400)["error"]["type"], "invalid_request_error");
  EXPECT_EQ(type(401)["error"]["type"], "authentication_error");
  EXPECT_EQ(type(404)["error"]["type"], "not_found_error");
  EXPECT_EQ(type(429)["error"]["type"], "overloaded_error");
  EXPECT_EQ(type(503)["error"]["type"], "api_error");
  EXPECT_TRUE(type(400)["request_id"].is_null());
  EXPECT_EQ(messages_status({.status = 429, .message = {}}), 529);
  EXPECT_EQ(messages_status({.status = 404, .message = {}}), 404);
  const ordered_json too_long = ordered_json::parse(
      messages_error({.message = "shorten it", .code = "context_length_exceeded"}, "r"));
  EXPECT_EQ(too_long["error"]["message"], "prompt is too long: shorten it");
}

TEST(MessagesWriterTest, SpeculationIsToldWhereItIsMeasured) {
  MessagesWriter writer(kHead);
  Usage usage = kAll;
  usage.speculation = {{"steps", 3}};
  std::string events;
  writer.end(usage, &events);
  EXPECT_NE(events.find("\"metrics\":{\"speculative_decoding\":{\"steps\":3}}}"), events.npos);
}

TEST(AnthropicModelsTest, TimesAreDates) {
  EXPECT_EQ(anthropic_models("m", 86400, 64).dump(),
            R"({"data":[{"type":"model","id":"m","display_name":"m",)"
            R"("created_at":"1970-01-02T00:00:00Z","lifecycle":"active","max_input_tokens":64,)"
            R"("max_tokens":64}],"has_more":false,"first_id":"m","last_id":"m"})");
}

}  // namespace
}  // namespace wideep::server
