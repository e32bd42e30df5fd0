// SPDX-License-Identifier: Apache-2.0
//
// What bodies of both forms say of a prompt that one server computes for another one: read from each
// API's body, and refused with the place. A failure is a router of another system that cannot drive
// these servers, or a body whose mistake takes pages under another name.
#include "api/shared_prompt_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "api/messages_request.h"
#include "api/openai_request.h"
#include "api/responses_request.h"
#include "api/shared_prompt.h"

namespace wideep::server {
namespace {

// The options of a completion with these members; its refusal: a complaint of the test.
GenerationOptions options_with(const std::string& members) {
  auto parsed = parse_completion_request(R"({"model": "m", "prompt": "x", )" + members + "}");
  if (const auto* error = std::get_if<HttpError>(&parsed)) {
    ADD_FAILURE() << error->message << "\n" << members;
    return {};
  }
  return std::get<CompletionRequest>(std::move(parsed)).options;
}

std::string refusal(const std::string& members) {
  const auto parsed = parse_completion_request(R"({"model": "m", "prompt": "x", )" + members + "}");
  const auto* error = std::get_if<HttpError>(&parsed);
  if (error == nullptr) return "";
  EXPECT_EQ(error->status, 400);
  EXPECT_TRUE(error->message.starts_with(error->param)) << error->message;
  return error->message;
}

TEST(SharedPromptFieldsTest, ContextOnlyHasANameOrNone) {
  const GenerationOptions options = options_with(
      R"("disaggregated_params": {"request_type": "context_only", "disagg_request_id": -7,
          "schedule_style": 1, "conversation_id": "c", "first_gen_tokens": null,
          "encoded_opaque_state": null, "draft_tokens": []})");
  ASSERT_NE(options.shared_prompt, nullptr);
  const SharedPrompt& shared = *options.shared_prompt;
  EXPECT_TRUE(shared.is_context_only);
  EXPECT_EQ(shared.form, SharedPrompt::Form::kTrt);
  EXPECT_EQ(shared.name, "-7");
  EXPECT_EQ(shared.disagg_request_id, -7);
  EXPECT_EQ(shared.schedule_style, 1);
  EXPECT_EQ(shared.conversation_id, "c");
  EXPECT_FALSE(shared.peer);
  EXPECT_THAT(options.without_effect, testing::ElementsAre("disaggregated_params.draft_tokens"));
  const GenerationOptions unnamed =
      options_with(R"("disaggregated_params": {"request_type": "context_only"})");
  EXPECT_EQ(unnamed.shared_prompt->name, "");
  const GenerationOptions vllm = options_with(
      R"("kv_transfer_params": {"do_remote_decode": true, "do_remote_prefill": false,
          "remote_engine_id": null, "remote_block_ids": null, "remote_host": null})");
  ASSERT_NE(vllm.shared_prompt, nullptr);
  EXPECT_TRUE(vllm.shared_prompt->is_context_only);
  EXPECT_EQ(vllm.shared_prompt->form, SharedPrompt::Form::kVllm);
}

TEST(SharedPromptFieldsTest, ContextOnlyMaySayWhereEarlierPagesAre) {
  const std::string params =
      R"("disaggregated_params": {"request_type": "context_only", "disagg_request_id": 7,
          "encoded_opaque_state": "1;h:9;t;ab;;9a")";
  for (const char* end : {"}", R"(, "ctx_request_id": null})"}) {
    const GenerationOptions options = options_with(params + end);
    ASSERT_NE(options.shared_prompt, nullptr);
    ASSERT_TRUE(options.shared_prompt->peer);
    EXPECT_EQ(
        *options.shared_prompt->peer,
        (store::PagePeer{
            .host = {.name = "h", .port = 9}, .token = "t", .record_class = "ab", .mac = "9a"}));
    EXPECT_FALSE(options.shared_prompt->peer->computes());
    EXPECT_EQ(options.shared_prompt->name, "7");
  }
  // What another server has replied.
  EXPECT_FALSE(options_with(params + R"(, "ctx_request_id": 7})").shared_prompt->peer);
}

TEST(SharedPromptFieldsTest, GenerationOnlySaysWhoComputesThePrompt) {
  const store::PagePeer expected{.host = {.name = "h", .port = 9},
                                 .token = "t",
                                 .record_class = "ab",
                                 .request = "12",
                                 .mac = "9a"};
  const std::pair<const char*, const char*> kForms[] = {
      {"disaggregated_params",
       R"({"request_type": "generation_only", "encoded_opaque_state": "1;h:9;t;ab;;9a",
           "ctx_request_id": 12, "disagg_request_id": 3, "first_gen_tokens": [5]})"},
      {"disaggregated_params",
       R"({"request_type": "generation_only", "encoded_opaque_state": "1;h:9;t;ab;;9a",
           "disagg_request_id": 12, "schedule_style": "generation_first"})"},
      {"kv_transfer_params",
       R"({"do_remote_prefill": true, "do_remote_decode": false, "remote_engine_id": "t;ab;9a",
           "remote_request_id": "12", "remote_host": "h", "remote_port": 9, "tp_size": 8,
           "remote_block_ids": [1, 2]})"}};
  for (const auto& [name, value] : kForms) {
    const GenerationOptions options = options_with(std::string("\"") + name + "\": " + value);
    ASSERT_NE(options.shared_prompt, nullptr) << value;
    EXPECT_FALSE(options.shared_prompt->is_context_only);
    EXPECT_STREQ(options.shared_prompt->peer_param, name);
    ASSERT_TRUE(options.shared_prompt->peer) << value;
    EXPECT_EQ(*options.shared_prompt->peer, expected) << value;
  }
  const GenerationOptions alone = options_with(
      R"("disaggregated_params": {"request_type": "generation_only", "ctx_request_id": 1,
          "first_gen_tokens": [5, 6]})");
  EXPECT_FALSE(alone.shared_prompt->peer);
  EXPECT_EQ(alone.shared_prompt->first_tokens, (std::vector<int32_t>{5, 6}));
  const GenerationOptions bare =
      options_with(R"("kv_transfer_params": {"do_remote_prefill": true})");
  EXPECT_FALSE(bare.shared_prompt->peer);
}

TEST(SharedPromptFieldsTest, OrdinaryRequestsHaveNone) {
  for (const char* members :
       {R"("disaggregated_params": null, "kv_transfer_params": null)",
        R"("disaggregated_params": {"request_type": "context_and_generation"})",
        R"("kv_transfer_params": {})",
        R"("kv_transfer_params": {"do_remote_prefill": false, "do_remote_decode": null})"}) {
    EXPECT_EQ(options_with(members).shared_prompt, nullptr) << members;
  }
}

TEST(SharedPromptFieldsTest, EveryApiReadsThem) {
  constexpr const char* kMembers =
      R"("model": "m", "disaggregated_params": {"request_type": "context_only",
         "disagg_request_id": 5}})";
  const std::string chat = R"({"messages": [{"role": "user", "content": "x"}], )";
  const auto name_in = [](const GenerationOptions& options) {
    return options.shared_prompt == nullptr ? "" : options.shared_prompt->name;
  };
  EXPECT_EQ(name_in(std::get<ChatRequest>(parse_chat_request(chat + kMembers)).options), "5");
  EXPECT_EQ(name_in(std::get<ChatRequest>(
                        parse_messages_request(chat + R"("max_tokens": 9, )" + kMembers))
                        .options),
            "5");
  const ResponseStore store({});
  EXPECT_EQ(
      name_in(std::get<ResponsesRequest>(
                  parse_responses_request(R"({"input": "x", )" + std::string(kMembers), store))
                  .chat.options),
      "5");
}

TEST(SharedPromptFieldsTest, MistakesAreNamedWithTheirPlace) {
  const std::string of_generation =
      R"("disaggregated_params": {"request_type": "generation_only", )";
  const std::string of_vllm = R"("kv_transfer_params": {"do_remote_prefill": true, )";
  std::string many = "[0";
  for (int i = 0; i < 64; ++i) many += ",0";
  const std::pair<std::string, std::string> kCases[] = {
      {R"("disaggregated_params": 7)", "disaggregated_params: expected an object, found 7"},
      {R"("disaggregated_params": {})",
       "disaggregated_params.request_type: expected \"context_only\", \"generation_only\" or "
       "\"context_and_generation\", found null"},
      {R"("disaggregated_params": {"request_type": "prefill"})",
       "disaggregated_params.request_type: expected \"context_only\", \"generation_only\" or "
       "\"context_and_generation\", found \"prefill\""},
      {R"("disaggregated_params": {"request_type": "context_only"}, "kv_transfer_params": {})",
       "kv_transfer_params: beside disaggregated_params: expected one of them"},
      {of_generation + R"("request_typ": 1})",
       "disaggregated_params.request_typ: this field is not known"},
      {of_generation + R"("ctx_request_id": "12"})",
       "disaggregated_params.ctx_request_id: expected an integer from -9223372036854775808 to "
       "9223372036854775807, found \"12\""},
      {of_generation + R"("ctx_request_id": 9223372036854775808})",
       "disaggregated_params.ctx_request_id: expected an integer from -9223372036854775808 to "
       "9223372036854775807, found 9223372036854775808"},
      {of_generation + R"("first_gen_tokens": )" + many + "]}",
       "disaggregated_params.first_gen_tokens: expected a list of at most 64 token ids, found a "
       "list of 65"},
      {of_generation + R"("first_gen_tokens": [-1]})",
       "disaggregated_params.first_gen_tokens: expected a list of at most 64 token ids, found "
       "[-1]"},
      {of_generation + R"("schedule_style": 2})",
       "disaggregated_params.schedule_style: expected 0 or \"context_first\", 1 or "
       "\"generation_first\", found 2"},
      {of_generation + R"("conversation_id": 1})",
       "disaggregated_params.conversation_id: expected a text of at most 256 bytes, found 1"},
      {of_generation + R"("ctx_request_id": 1, "encoded_opaque_state": "AAAA"})",
       "disaggregated_params.encoded_opaque_state: expected "
       "version;host:port;token;class;request;mac"},
      {of_generation + R"("ctx_request_id": 1, "encoded_opaque_state": ")" +
           std::string(1025, 'a') + "\"}",
       "disaggregated_params.encoded_opaque_state: expected a text of at most 1024 bytes, found a "
       "value of type string"},
      {of_generation + R"("ctx_request_id": 1, "encoded_opaque_state": "1;h:9;t;ab;x;"})",
       "disaggregated_params.encoded_opaque_state: expected no name of a request at its end"},
      {of_generation + R"("encoded_opaque_state": "1;h:9;t;ab;;9a"})",
       "disaggregated_params.ctx_request_id: expected the id under which the other server computes "
       "the prompt, or disagg_request_id, beside encoded_opaque_state, found neither"},
      {R"("disaggregated_params": {"request_type": "context_only",
           "encoded_opaque_state": "1;h:9;t;ab;x;"})",
       "disaggregated_params.encoded_opaque_state: expected no name of a request at its end"},
      {R"("kv_transfer_params": [])", "kv_transfer_params: expected an object, found []"},
      {of_vllm + R"("do_remote_decode": true})",
       "kv_transfer_params: do_remote_decode and do_remote_prefill are true: expected one of them"},
      {of_vllm + R"("do_remote_decode": 1})",
       "kv_transfer_params.do_remote_decode: expected true or false, found 1"},
      {of_vllm + R"("remote_hots": "h"})",
       "kv_transfer_params.remote_hots: this field is not known"},
      {of_vllm + R"("remote_port": 65536})",
       "kv_transfer_params.remote_port: expected an integer from 1 to 65535, found 65536"},
      {of_vllm + R"("remote_host": "h"})",
       "kv_transfer_params: expected remote_engine_id, remote_request_id, remote_host and "
       "remote_port, as the server has replied them that computes the prompt, or none of them"},
      {of_vllm + R"("remote_host": "h", "remote_port": 9, "remote_engine_id": "t;ab",
                    "remote_request_id": "1"})",
       "kv_transfer_params: expected version;host:port;token;class;request;mac"},
  };
  for (const auto& [members, expected] : kCases) EXPECT_EQ(refusal(members), expected) << members;
}

TEST(SharedPromptFieldsTest, ContextOnlyHasOneAnswerAtOnce) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"("stream": true)",
       "stream: a prompt that is computed for another server "
       "(disaggregated_params) has no stream: expected false"},
      {R"("n": 2)",
       "n: a prompt that is computed for another server (disaggregated_params) has one "
       "answer: expected 1"},
      {R"("prompt_logprobs": 0)",
       "prompt_logprobs: a prompt that is computed for another server (disaggregated_params) is "
       "not "
       "scored: leave it out"},
      {R"("echo": true, "logprobs": 0)",
       "echo: a prompt that is computed for another server (disaggregated_params) is not scored: "
       "leave it or logprobs out"}};
  const std::string context = R"("disaggregated_params": {"request_type": "context_only"}, )";
  for (const auto& [members, expected] : kCases) {
    const auto error = check_context_only(options_with(context + members), 1);
    ASSERT_TRUE(error) << members;
    EXPECT_EQ(error->message, expected);
    EXPECT_FALSE(check_context_only(options_with(members), 1)) << members;
  }
  EXPECT_FALSE(check_context_only(options_with(context + R"("echo": true)"), 1));
  EXPECT_TRUE(check_context_only(options_with(context + R"("n": 1)"), 2));
  EXPECT_THAT(refusal(context + R"("best_of": 2)"), testing::HasSubstr("best_of: "));
}

TEST(SharedPromptFieldsTest, TokensOfAChatComeBesideThem) {
  const std::string chat = R"({"model": "m", "messages": [{"role": "user", "content": "x"}], )";
  const std::string params = R"("disaggregated_params": {"request_type": "generation_only"}, )";
  const auto read = parse_chat_request(chat + params + R"("prompt_token_ids": [1, 2]})");
  EXPECT_EQ(std::get<ChatRequest>(read).prompt_ids, (std::vector<int32_t>{1, 2}));
  const auto message = [&](const std::string& members) {
    return std::get<HttpError>(parse_chat_request(chat + members)).message;
  };
  EXPECT_EQ(message(R"("prompt_token_ids": [1]})"),
            "prompt_token_ids: expected disaggregated_params beside it, or leave it out");
  EXPECT_EQ(message(params + R"("prompt_token_ids": "x"})"),
            "prompt_token_ids: expected a list of token ids, found \"x\"");
}

}  // namespace
}  // namespace wideep::server
