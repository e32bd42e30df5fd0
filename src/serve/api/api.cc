// SPDX-License-Identifier: Apache-2.0
#include "api/api.h"

#include <utility>

#include "api/messages_reply.h"
#include "api/messages_request.h"
#include "api/openai_reply.h"
#include "api/openai_request.h"
#include "api/response_plan.h"
#include "api/responses_reply.h"
#include "api/responses_request.h"
#include "base/check.h"

namespace wideep::server {
namespace {

Parsed<TextRequest> parse_completion(std::string_view body, const ParseContext& context) {
  constexpr int kDefaultTokens = 16;  // OpenAI's
  WIDEEP_PARSED(CompletionRequest request, parse_completion_request(body, context.sampling));
  GenerationOptions& options = request.options;
  if (!options.max_tokens && !options.fills_context) options.max_tokens = kDefaultTokens;
  return request;
}

Parsed<TextRequest> parse_chat(std::string_view body, const ParseContext& context) {
  WIDEEP_PARSED(ChatRequest request, parse_chat_request(body, context.sampling));
  return request;
}

Parsed<TextRequest> parse_messages(std::string_view body, const ParseContext& context) {
  WIDEEP_PARSED(ChatRequest request, parse_messages_request(body, context.sampling));
  return request;
}

Parsed<TextRequest> parse_response(std::string_view body, const ParseContext& context) {
  WIDEEP_CHECK(context.responses != nullptr);
  ResponseStore& store = *context.responses;
  WIDEEP_PARSED(ResponsesRequest request, parse_responses_request(body, store, context.sampling));
  WIDEEP_PARSED(ChatRequest chat, planned_chat(std::move(request), store, context.keeps_records));
  return chat;
}

std::unique_ptr<ReplyWriter> openai_writer(const ReplyHead& head,
                                           const GenerationOptions& options) {
  return std::make_unique<OpenAiReply>(head, options.include_usage);
}

std::unique_ptr<ReplyWriter> responses_writer(const ReplyHead& head,
                                              const GenerationOptions& options) {
  return std::make_unique<ResponsesWriter>(head, options.response);
}

std::unique_ptr<ReplyWriter> messages_writer(const ReplyHead& head, const GenerationOptions&) {
  return std::make_unique<MessagesWriter>(head);
}

// In the order of Api.
const ApiSpec kApis[] = {
    {.api = Api::kCompletion,
     .path = "/v1/completions",
     .id_start = "cmpl-",
     .call_id_start = "call_",
     .errors = kOpenAiErrors,
     .parse = parse_completion,
     .make_writer = openai_writer},
    {.api = Api::kChat,
     .path = "/v1/chat/completions",
     .id_start = "chatcmpl-",
     .call_id_start = "call_",
     .errors = kOpenAiErrors,
     .parse = parse_chat,
     .make_writer = openai_writer},
    {.api = Api::kResponses,
     .path = "/v1/responses",
     .id_start = "resp_",
     .call_id_start = "call_",
     .stores = true,
     .errors = kOpenAiErrors,
     .parse = parse_response,
     .make_writer = responses_writer},
    {.api = Api::kMessages,
     .path = "/v1/messages",
     .id_start = "msg_",
     .call_id_start = "toolu_",
     .errors = kAnthropicErrors,
     .parse = parse_messages,
     .make_writer = messages_writer},
};

}  // namespace

const ApiSpec& spec_of(Api api) {
  const ApiSpec& spec = kApis[static_cast<size_t>(api)];
  WIDEEP_CHECK(spec.api == api);
  return spec;
}

}  // namespace wideep::server
