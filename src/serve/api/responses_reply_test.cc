// SPDX-License-Identifier: Apache-2.0
//
// One stream is held byte for byte against OpenAI's events; of others the names and numbers of
// events, and that their items are those of the reply without a stream. Cases are where an item
// begins or ends unexpectedly: text after a call, a limit in the middle, custom calls, a failure.
// What is stored must be what the client got.
#include "api/responses_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "formats/json_parse.h"

namespace wideep::server {
namespace {

using answer::CallPart;
using engine::FinishReason;
using nlohmann::ordered_json;

// A part of an answer that owns what it has.
struct Part {
  std::string text = {}, reasoning = {};
  std::vector<CallPart> calls = {};
  std::vector<TokenLogprob> logprobs = {};
  FinishReason finish_reason = FinishReason::kNotFinished;
};

Part text(std::string text) { return {.text = std::move(text)}; }
Part reasoning(std::string text) { return {.reasoning = std::move(text)}; }
Part ends(FinishReason reason = FinishReason::kStop) { return {.finish_reason = reason}; }
Part begins_call(int index, std::string name, std::string arguments = "") {
  return {.calls = {{.index = index,
                     .begins = true,
                     .id = "call_" + std::to_string(index),
                     .name = std::move(name),
                     .arguments = std::move(arguments)}}};
}
Part arguments(int index, std::string text) {
  return {.calls = {{.index = index, .begins = false, .id = {}, .name = {}, .arguments = text}}};
}

class ResponsesWriterTest : public testing::Test {
 protected:
  std::unique_ptr<ResponsesWriter> writer() const {
    const ReplyHead head{.api = Api::kResponses, .id = "resp_7", .created = 5, .model = "m"};
    return std::make_unique<ResponsesWriter>(head, plan_);
  }
  static void add(ResponsesWriter& writer, const std::vector<Part>& parts, std::string* events) {
    for (const Part& part : parts) {
      writer.add({.text = part.text,
                  .reasoning = part.reasoning,
                  .calls = &part.calls,
                  .logprobs = part.logprobs.empty() ? nullptr : &part.logprobs,
                  .finish_reason = part.finish_reason},
                 events);
    }
  }
  std::string stream(const std::vector<Part>& parts) const {
    std::string events;
    const auto writes = writer();
    writes->begin(1, kUsage, &events);
    add(*writes, parts, &events);
    writes->end(kUsage, &events);
    return events;
  }
  ordered_json whole(const std::vector<Part>& parts) const {
    const auto writes = writer();
    writes->begin(1, kUsage, nullptr);
    add(*writes, parts, nullptr);
    return ordered_json::parse(writes->whole({}, kUsage));
  }
  // The data of the events, each checked for its name and number.
  static std::vector<ordered_json> data(const std::string& events) {
    std::vector<ordered_json> all;
    for (size_t at = 0; at < events.size();) {
      const size_t line = events.find('\n', at), end = events.find("\n\n", at);
      const std::string name = events.substr(at + 7, line - at - 7);
      EXPECT_EQ(events.substr(at, 7), "event: ");
      EXPECT_EQ(events.substr(line + 1, 6), "data: ");
      all.push_back(ordered_json::parse(events.substr(line + 7, end - line - 7)));
      EXPECT_EQ(all.back()["type"], name);
      EXPECT_EQ(all.back()["sequence_number"], all.size() - 1);
      at = end + 2;
    }
    return all;
  }
  static std::vector<std::string> names(const std::string& events) {
    std::vector<std::string> all;
    for (const ordered_json& each : data(events)) {
      all.push_back(each["type"].get<std::string>().substr(9));  // without "response."
    }
    return all;
  }

  static inline const Usage kUsage = {.prompt_tokens = 3,
                                      .completion_tokens = 4,
                                      .cached_tokens = 2,
                                      .written_tokens = 1,
                                      .reasoning_tokens = 1};
  ResponseStore store_{ResponseStoreLimits()};
  std::shared_ptr<ResponsePlan> plan_ =
      std::make_shared<ResponsePlan>(ResponsePlan{.repeated = {{"store", false}}});
};

TEST_F(ResponsesWriterTest, EventsAreOpenAisByteForByte) {
  std::string events = stream({text("Hi "), text("\"you\"\n"), ends()});
  // The only thing that depends on the time.
  const size_t at = events.find(",\"completed_at\":");
  ASSERT_NE(at, events.npos);
  events.erase(at, events.find_first_of(",}", at + 1) - at);
  const std::string begun =
      R"("response":{"id":"resp_7","object":"response","created_at":5,"status":"in_progress",)"
      R"("error":null,"incomplete_details":null,"model":"m","output":[],"usage":null,)"
      R"("store":false}})";
  const std::string place = R"("item_id":"msg_7-0","output_index":0,"content_index":0,)";
  const std::string part =
      R"({"type":"output_text","annotations":[],"logprobs":[],"text":"Hi \"you\"\n"})";
  const std::string item =
      R"({"id":"msg_7-0","type":"message","status":"completed","role":"assistant","content":[)" +
      part + "]}";
  const std::pair<std::string, std::string> kExpected[] = {
      {"response.created", begun},
      {"response.in_progress", begun},
      {"response.output_item.added",
       R"("output_index":0,"item":{"id":"msg_7-0","type":"message","status":"in_progress",)"
       R"("role":"assistant","content":[]}})"},
      {"response.content_part.added",
       place + R"("part":{"type":"output_text","annotations":[],"logprobs":[],"text":""}})"},
      {"response.output_text.delta", place + R"("delta":"Hi ","logprobs":[]})"},
      {"response.output_text.delta", place + R"("delta":"\"you\"\n","logprobs":[]})"},
      {"response.output_text.done", place + R"("text":"Hi \"you\"\n","logprobs":[]})"},
      {"response.content_part.done", place + R"("part":)" + part + "}"},
      {"response.output_item.done", R"("output_index":0,"item":)" + item + "}"},
      {"response.completed",
       R"("response":{"id":"resp_7","object":"response","created_at":5,"status":"completed",)"
       R"("error":null,"incomplete_details":null,"model":"m","output":[)" +
           item +
           R"(],"usage":{"input_tokens":3,"input_tokens_details":{"cache_write_tokens":1,)"
           R"("cached_tokens":2},"output_tokens":4,"output_tokens_details":{"reasoning_tokens":1},)"
           R"("total_tokens":7},"store":false}})"},
  };
  std::string expected;
  int number = 0;
  for (const auto& [name, rest] : kExpected) {
    expected += "event: " + name + "\ndata: {\"type\":\"" + name +
                "\",\"sequence_number\":" + std::to_string(number++) + "," + rest + "\n\n";
  }
  EXPECT_EQ(events, expected);
}

TEST_F(ResponsesWriterTest, ItemsComeOneAfterTheOther) {
  const std::vector<Part> parts = {
      reasoning("Hm"),         reasoning(", so"),  text("I look."),           begins_call(0, "f"),
      arguments(0, "{\"a\":"), arguments(0, "1}"), begins_call(1, "g", "{}"), ends()};
  const std::string events = stream(parts);
  EXPECT_THAT(
      names(events),
      testing::ElementsAre("created", "in_progress",                                            //
                           "output_item.added", "content_part.added", "reasoning_text.delta",   //
                           "reasoning_text.delta", "reasoning_text.done", "content_part.done",  //
                           "output_item.done",                                                  //
                           "output_item.added", "content_part.added", "output_text.delta",      //
                           "output_text.done", "content_part.done", "output_item.done",         //
                           "output_item.added", "function_call_arguments.delta",                //
                           "function_call_arguments.delta", "function_call_arguments.done",     //
                           "output_item.done",                                                  //
                           "output_item.added", "function_call_arguments.delta",                //
                           "function_call_arguments.done", "output_item.done",                  //
                           "completed"));
  const std::vector<ordered_json> all = data(events);
  EXPECT_EQ(all[2].dump(), R"({"type":"response.output_item.added","sequence_number":2,)"
                           R"("output_index":0,"item":{"id":"rs_7-0","type":"reasoning",)"
                           R"("status":"in_progress","summary":[],"content":[]}})");
  EXPECT_EQ(all[3]["part"].dump(), R"({"type":"reasoning_text","text":""})");
  EXPECT_EQ(all[15].dump(), R"({"type":"response.output_item.added","sequence_number":15,)"
                            R"("output_index":2,"item":{"id":"fc_7-2","type":"function_call",)"
                            R"("status":"in_progress","call_id":"call_0","name":"f",)"
                            R"("arguments":""}})");
  EXPECT_EQ(all[16].dump(), R"({"type":"response.function_call_arguments.delta",)"
                            R"("sequence_number":16,"item_id":"fc_7-2","output_index":2,)"
                            R"("delta":"{\"a\":"})");
  EXPECT_EQ(all[18].dump(), R"({"type":"response.function_call_arguments.done",)"
                            R"("sequence_number":18,"item_id":"fc_7-2","output_index":2,)"
                            R"("arguments":"{\"a\":1}"})");
  // Each item that is done is in the response, and the response is what it is without a stream.
  ordered_json streamed = all.back()["response"];
  ordered_json items = ordered_json::array();
  for (const ordered_json& each : all) {
    if (each["type"] == "response.output_item.done") items.push_back(each["item"]);
  }
  EXPECT_EQ(streamed["output"], items);
  ordered_json at_once = whole(parts);
  for (ordered_json* each : {&streamed, &at_once}) each->erase("completed_at");
  EXPECT_EQ(streamed.dump(), at_once.dump());
}

TEST_F(ResponsesWriterTest, CallsOfCustomToolsHaveTheirInputAsText) {
  auto plan = std::make_shared<ResponsePlan>(*plan_);
  plan->tools.by_function = {{"patch", {.name = "patch", .space = "", .is_custom = true}},
                             {"agents__say", {.name = "say", .space = "agents", .is_custom = true}},
                             {"agents__close", {.name = "close", .space = "agents"}}};
  plan_ = plan;
  const std::vector<Part> parts = {begins_call(0, "patch", "{\"in"),
                                   arguments(0, "put\": \"a\\"),
                                   arguments(0, "nb\"}"),
                                   begins_call(1, "agents__say", "{\"text\": 1}"),
                                   begins_call(2, "agents__close", "{}"),
                                   ends()};
  const std::string events = stream(parts);
  EXPECT_THAT(
      names(events),
      testing::ElementsAre("created", "in_progress", "output_item.added",
                           "custom_tool_call_input.delta", "custom_tool_call_input.delta",
                           "custom_tool_call_input.done", "output_item.done", "output_item.added",
                           "custom_tool_call_input.delta", "custom_tool_call_input.done",
                           "output_item.done", "output_item.added", "function_call_arguments.delta",
                           "function_call_arguments.done", "output_item.done", "completed"));
  const std::vector<ordered_json> all = data(events);
  EXPECT_EQ(all[2]["item"].dump(), R"({"id":"ctc_7-0","type":"custom_tool_call",)"
                                   R"("status":"in_progress","call_id":"call_0","name":"patch",)"
                                   R"("input":""})");
  EXPECT_EQ(all[3].dump(), R"({"type":"response.custom_tool_call_input.delta",)"
                           R"("sequence_number":3,"item_id":"ctc_7-0","output_index":0,)"
                           R"("delta":"a"})");
  EXPECT_EQ(all[5].dump(), R"({"type":"response.custom_tool_call_input.done",)"
                           R"("sequence_number":5,"item_id":"ctc_7-0","output_index":0,)"
                           R"("input":"a\nb"})");
  const ordered_json output = whole(parts)["output"];
  EXPECT_EQ(output, all.back()["response"]["output"]);
  EXPECT_EQ(output[0]["input"], "a\nb");
  EXPECT_EQ(output[1].dump(), R"({"id":"ctc_7-1","type":"custom_tool_call","status":"completed",)"
                              R"("call_id":"call_1","name":"say","input":"{\"text\": 1}",)"
                              R"("namespace":"agents"})");
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["name"], "close");
  EXPECT_EQ(output[2]["namespace"], "agents");
}

TEST_F(ResponsesWriterTest, TextAfterACallIsAnotherMessage) {
  const std::vector<Part> parts = {text("a"), begins_call(0, "f", "{"),
                                   Part{.text = "b", .calls = arguments(0, "}").calls}, ends()};
  const ordered_json output = whole(parts)["output"];
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[1]["arguments"], "{}");
  EXPECT_EQ(output[2]["content"][0]["text"], "b");
}

TEST_F(ResponsesWriterTest, LimitsMakeThemIncomplete) {
  const auto of = [&](const std::vector<Part>& parts) {
    std::vector<Part> cut = parts;
    cut.push_back(ends(FinishReason::kLength));
    const ordered_json last = data(stream(cut)).back();
    EXPECT_EQ(last["type"], "response.incomplete");
    EXPECT_EQ(last["response"]["status"], "incomplete");
    EXPECT_EQ(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
    EXPECT_FALSE(last["response"].contains("completed_at"));
    std::string statuses;
    for (const ordered_json& each : last["response"]["output"]) {
      statuses += each["status"].get<std::string>() + " ";
    }
    return statuses;
  };
  EXPECT_EQ(of({}), "");
  EXPECT_EQ(of({reasoning("a")}), "incomplete ");
  EXPECT_EQ(of({reasoning("a"), text("b")}), "completed incomplete ");
  EXPECT_EQ(of({text("b"), begins_call(0, "f", "{\"a")}), "completed incomplete ");
  EXPECT_EQ(of({text("b"), begins_call(0, "f", "{\"a\": 1}")}), "completed completed ");
}

TEST_F(ResponsesWriterTest, ProbabilitiesAreOfTheMessage) {
  const TokenLogprob a{.token = "a",
                       .bytes = "a",
                       .logprob = -0.5f,
                       .top = {{.token = "b", .bytes = "b", .logprob = -1.0f, .top = {}}}};
  const TokenLogprob half{.token = "\xef\xbf\xbd", .bytes = "\xc3", .logprob = -0.25f, .top = {}};
  Part thought = reasoning("x"), first = text("a"), none = text(""), rest = text("\xc3\xa9"),
       last = ends();
  thought.logprobs = {half};
  first.logprobs = {a};
  none.logprobs = {half};
  rest.logprobs = {half};
  last.logprobs = {a};  // the end token
  const std::vector<ordered_json> all = data(stream({thought, first, none, rest, last}));
  std::vector<std::string> deltas;
  for (const ordered_json& each : all) {
    if (each["type"] == "response.output_text.delta") deltas.push_back(each["logprobs"].dump());
  }
  EXPECT_THAT(deltas,
              testing::ElementsAre(
                  R"([{"token":"a","logprob":-0.5,"top_logprobs":[{"token":"b","logprob":-1.0}]}])",
                  "[{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.25,\"top_logprobs\":[]},"
                  "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.25,\"top_logprobs\":[]}]"));
  const ordered_json& content = all.back()["response"]["output"][1]["content"][0];
  EXPECT_EQ(content["logprobs"].size(), 3u);
  EXPECT_EQ(content["logprobs"][0].dump(),
            R"({"token":"a","bytes":[97],"logprob":-0.5,"top_logprobs":[{"token":"b",)"
            R"("bytes":[98],"logprob":-1.0}]})");
}

TEST_F(ResponsesWriterTest, WhatIsRepeatedKeepsAllDigits) {
  const std::string repeated = R"("metadata":{"n":123456789012345678901234567890})";
  plan_->repeated = formats::parse_exact_json("{" + repeated + "}", "body").value();
  const std::string events = stream({ends()});
  int found = 0;
  for (size_t at = events.find(repeated); at != events.npos; at = events.find(repeated, at + 1)) {
    ++found;
  }
  EXPECT_EQ(found, 3) << events;  // created, in progress, completed
}

TEST_F(ResponsesWriterTest, FailuresAreEvents) {
  std::string events;
  const auto writes = writer();
  writes->begin(1, kUsage, &events);
  add(*writes, {text("a")}, &events);
  writes->fail({.status = 500, .message = "why", .code = "ranks_died"}, &events);
  const std::vector<ordered_json> all = data(events);
  EXPECT_EQ(all[all.size() - 2].dump(),
            R"({"type":"error","sequence_number":5,"code":"ranks_died","message":"why",)"
            R"("param":null})");
  const ordered_json& failed = all.back()["response"];
  EXPECT_EQ(all.back()["type"], "response.failed");
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_EQ(failed["error"].dump(), R"({"code":"server_error","message":"why"})");
  EXPECT_EQ(failed["output"][0]["status"], "incomplete");
}

TEST_F(ResponsesWriterTest, AConversationBeginsWithThePreviousOne) {
  const auto joined = [](const char* before, const char* items) {
    const auto previous = std::make_shared<StoredResponse>(StoredResponse{"", before});
    return ResponsePlan{.repeated = {}, .previous = previous, .items = items}.conversation();
  };
  EXPECT_EQ(joined("[1,2]", "[3,4]"), "[1,2,3,4]");
  EXPECT_EQ(joined("[1,2]", "[]"), "[1,2]");
  EXPECT_EQ(joined("[]", "[3]"), "[3]");
  EXPECT_EQ(joined("[]", "[]"), "[]");
}

TEST_F(ResponsesWriterTest, WhatIsToBeStoredIsStoredWhenItHasEnded) {
  plan_->store = &store_;
  plan_->items = "[1]";
  const auto writes = writer();
  writes->begin(1, kUsage, nullptr);
  add(*writes, {text("a")}, nullptr);
  EXPECT_EQ(store_.find("resp_7"), nullptr);
  add(*writes, {ends()}, nullptr);
  const std::string reply = writes->whole({}, kUsage);
  ASSERT_NE(store_.find("resp_7"), nullptr);
  EXPECT_EQ(store_.find("resp_7")->response + "\n", reply);
  EXPECT_EQ(store_.find("resp_7")->conversation, "[1]");
  // A failed one is not.
  std::string events;
  EXPECT_TRUE(store_.erase("resp_7"));
  writer()->fail({.message = "why"}, &events);
  EXPECT_EQ(store_.size(), 0u);
}

}  // namespace
}  // namespace wideep::server
