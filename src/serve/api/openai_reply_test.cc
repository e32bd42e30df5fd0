// SPDX-License-Identifier: Apache-2.0
//
// Chunks are put together by hand: they are held byte for byte against what a JSON library writes,
// with every character that needs an escape, and their parts against those of whole replies. A
// failure is a stream that a client cannot parse, or that says something else than the same reply
// without a stream.
#include "api/openai_reply.h"

#include <gtest/gtest.h>

#include "api/context_reply.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// The data of the one event.
std::string data_of(const std::string& event) {
  EXPECT_TRUE(event.starts_with("data: ") && event.ends_with("\n\n")) << event;
  return event.substr(6, event.size() - 8);
}

std::string chunk(const ReplyHead& head, const ReplyPart& part, bool usage_follows = false) {
  std::string event;
  EventWriter(head, usage_follows).add_chunk(part, &event);
  return data_of(event);
}

const ReplyHead kCompletion{.id = "cmpl-1", .created = 7, .model = "a \"model\""};
const ReplyHead kChat{.api = Api::kChat, .id = "chatcmpl-1", .created = 7, .model = "m"};

// Byte for byte what a JSON library writes.
TEST(EventWriterTest, TextsAreEscaped) {
  std::string every;
  for (int i = 0; i < 0x80; ++i) every += static_cast<char>(i);
  for (const std::string& text : {std::string(), std::string("plain"), std::string("\""),
                                  std::string("\\\n"), std::string("tab\tand\x01more"),
                                  std::string("Gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80"), every}) {
    const ordered_json expected = {
        {"id", "cmpl-1"},
        {"object", "text_completion"},
        {"created", 7},
        {"model", "a \"model\""},
        {"choices",
         {{{"index", 12}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}}}}};
    EXPECT_EQ(chunk(kCompletion, {.index = 12, .text = text}), expected.dump());
  }
}

TEST(EventWriterTest, ChatsContainTheRoleOnce) {
  const auto choice = [](const ReplyPart& part) {
    const ordered_json event = ordered_json::parse(chunk(kChat, part, true));
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_TRUE(event.at("usage").is_null());
    return event["choices"][0].dump();
  };
  EXPECT_EQ(choice({.index = 0, .text = {}, .first = true}),
            R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
            R"("finish_reason":null})");
  EXPECT_EQ(choice({.index = 1, .text = "x"}),
            R"({"index":1,"delta":{"content":"x"},"logprobs":null,"finish_reason":null})");
  EXPECT_EQ(
      choice({.index = 1, .text = "x", .reasoning = "r"}),
      R"({"index":1,"delta":{"reasoning_content":"r","reasoning":"r","content":"x"},"logprobs":null,)"
      R"("finish_reason":null})");
  EXPECT_EQ(choice({.index = 0, .text = {}, .finish_reason = engine::FinishReason::kLength}),
            R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length"})");
}

TEST(EventWriterTest, CallsComeInParts) {
  const std::vector<answer::CallPart> calls = {
      {.index = 0, .begins = false, .id = {}, .name = {}, .arguments = "1}"},
      {.index = 1, .begins = true, .id = "c1", .name = "f", .arguments = "{\"a\": "}};
  const ReplyPart part{.text = {},
                       .calls = &calls,
                       .has_called = true,
                       .finish_reason = engine::FinishReason::kStop};
  EXPECT_EQ(ordered_json::parse(chunk(kChat, part))["choices"][0].dump(),
            R"({"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}},)"
            R"({"index":1,"id":"c1","type":"function","function":{"name":"f","arguments":)"
            R"("{\"a\": "}}]},"logprobs":null,"finish_reason":"tool_calls"})");
  const std::vector<answer::CallPart> whole = {
      {.index = 0, .begins = true, .id = "c", .name = "f", .arguments = "{}"}};
  const ordered_json reply = whole_reply(kChat,
                                         {{.text = {},
                                           .calls = &whole,
                                           .has_called = true,
                                           .finish_reason = engine::FinishReason::kStop}},
                                         {});
  EXPECT_EQ(reply["choices"][0]["message"].dump(),
            R"({"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c",)"
            R"("type":"function","function":{"name":"f","arguments":"{}"}}]})");
  EXPECT_EQ(reply["choices"][0]["finish_reason"], "tool_calls");
}

TEST(EventWriterTest, LogprobsAreThoseOfWholeReplies) {
  const std::vector<TokenLogprob> logprobs = {
      {.token = "a", .bytes = "a", .logprob = -0.5f, .top = {}}};
  for (const ReplyHead& head : {kCompletion, kChat}) {
    const ReplyPart part{
        .text = "a", .logprobs = &logprobs, .finish_reason = engine::FinishReason::kStop};
    const ordered_json event = ordered_json::parse(chunk(head, part));
    const ordered_json whole = whole_reply(head, {part}, {});
    EXPECT_EQ(event["choices"][0]["logprobs"], whole["choices"][0]["logprobs"]);
    EXPECT_FALSE(event["choices"][0]["logprobs"].is_null());
    EXPECT_EQ(event["choices"][0]["finish_reason"], "stop");
    EXPECT_FALSE(event.contains("usage"));
  }
}

// As it is sent to the server that answers, which reads it (shared_prompt_fields_test.cc).
TEST(WholeReplyTest, ContextOnlySaysWhereThePagesAre) {
  SharedPrompt request{.is_context_only = true,
                       .name = "12",
                       .disagg_request_id = 12,
                       .schedule_style = 1,
                       .conversation_id = "c"};
  const std::vector<int32_t> first = {5}, prompt = {1, 2};
  const ContextReply context{.request = request,
                             .opaque_state = "1;[::1]:9;t;ab;;9a",
                             .first_tokens = first,
                             .prompt_ids = prompt};
  const ReplyPart part{
      .text = "a", .finish_reason = engine::FinishReason::kLength, .context = &context};
  for (const ReplyHead& head : {kCompletion, kChat}) {
    request.form = SharedPrompt::Form::kTrt;
    const ordered_json trt = whole_reply(head, {part}, {});
    EXPECT_EQ(
        trt["choices"][0]["disaggregated_params"].dump(),
        R"({"request_type":"context_only","first_gen_tokens":[5],"first_gen_log_probs":null,)"
        R"("first_gen_logits":null,"ctx_request_id":12,"encoded_opaque_state":"1;[::1]:9;t;ab;;9a",)"
        R"("draft_tokens":null,"disagg_request_id":12,"ctx_dp_rank":null,"ctx_info_endpoint":null,)"
        R"("schedule_style":1,"conversation_id":"c"})");
    EXPECT_EQ(trt["prompt_token_ids"], prompt);
    EXPECT_FALSE(trt.contains("kv_transfer_params"));
    request.form = SharedPrompt::Form::kVllm;
    const ordered_json vllm = whole_reply(head, {part}, {});
    EXPECT_EQ(vllm["kv_transfer_params"].dump(),
              R"({"do_remote_prefill":true,"do_remote_decode":false,"remote_engine_id":"t;ab;9a",)"
              R"("remote_request_id":"12","remote_block_ids":[],"remote_host":"::1",)"
              R"("remote_port":9,"tp_size":1})");
    EXPECT_FALSE(vllm["choices"][0].contains("disaggregated_params"));
    EXPECT_FALSE(vllm.contains("prompt_token_ids"));
  }
}

// Null is "absent" for who reads it: that server computes the prompt itself.
TEST(WholeReplyTest, ContextOnlyOfAServerThatSharesNoPagesHasNoPlace) {
  SharedPrompt request{.is_context_only = true, .name = "9007199254740991"};
  const std::vector<int32_t> none;
  const ContextReply context{
      .request = request, .opaque_state = "", .first_tokens = none, .prompt_ids = none};
  const ordered_json trt = context_json(context);
  EXPECT_EQ(trt["ctx_request_id"], 9007199254740991);
  for (const char* name :
       {"encoded_opaque_state", "disagg_request_id", "schedule_style", "conversation_id"}) {
    EXPECT_TRUE(trt.at(name).is_null()) << name;
  }
  request.form = SharedPrompt::Form::kVllm;
  const ordered_json vllm = context_json(context);
  for (const char* name : {"remote_engine_id", "remote_request_id", "remote_host", "remote_port"}) {
    EXPECT_TRUE(vllm.at(name).is_null()) << name;
  }
}

TEST(EventWriterTest, UsageComesLast) {
  std::string events;
  const EventWriter writer(kChat, true);
  writer.add_usage(
      {.prompt_tokens = 3, .completion_tokens = 4, .cached_tokens = 1, .written_tokens = 2},
      &events);
  const ordered_json event = ordered_json::parse(data_of(events));
  EXPECT_EQ(event["choices"], ordered_json::array());
  EXPECT_EQ(event["usage"]["total_tokens"], 7);
  EXPECT_EQ(event["usage"]["prompt_tokens_details"],
            (ordered_json{{"cached_tokens", 1}, {"cache_write_tokens", 2}}));
  events.clear();
  EventWriter::add_last(&events);
  EXPECT_EQ(data_of(events), "[DONE]");
}

}  // namespace
}  // namespace wideep::server
