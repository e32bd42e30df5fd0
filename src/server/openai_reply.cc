// SPDX-License-Identifier: Apache-2.0
#include "server/openai_reply.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

ordered_json reason_json(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return "stop";
    case engine::FinishReason::kLength:
      return "length";
    default:
      return nullptr;
  }
}

ordered_json chat_logprob(const TokenLogprob& token) {
  ordered_json bytes = ordered_json::array();
  for (const char byte : token.bytes) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", token.token}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
}

ordered_json chat_logprobs(const std::vector<TokenLogprob>& tokens) {
  ordered_json content = ordered_json::array();
  for (const TokenLogprob& token : tokens) {
    ordered_json top = ordered_json::array();
    for (const TokenLogprob& each : token.top) top.push_back(chat_logprob(each));
    content.push_back(chat_logprob(token));
    content.back()["top_logprobs"] = std::move(top);
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// By text: of tokens that have the same (parts of characters) the likeliest. The chosen one is
// always there.
ordered_json top_by_text(const TokenLogprob& token) {
  ordered_json top = ordered_json::object();
  for (const TokenLogprob& each : token.top) {
    if (!top.contains(each.token)) top[each.token] = each.logprob;
  }
  if (!top.contains(token.token)) top[token.token] = token.logprob;
  return top;
}

ordered_json completion_logprobs(const std::vector<TokenLogprob>& tokens) {
  ordered_json texts = ordered_json::array(), logprobs = texts, top = texts, offsets = texts;
  for (const TokenLogprob& token : tokens) {
    texts.push_back(token.token);
    logprobs.push_back(token.logprob);
    top.push_back(top_by_text(token));
    offsets.push_back(token.text_offset);
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

ordered_json logprobs_json(Api api, const ReplyPart& part) {
  if (part.logprobs == nullptr) return nullptr;
  return api == Api::kChat ? chat_logprobs(*part.logprobs) : completion_logprobs(*part.logprobs);
}

ordered_json head_json(const ReplyHead& head, const char* chat, const char* completion) {
  return {{"id", head.id},
          {"object", head.api == Api::kChat ? chat : completion},
          {"created", head.created},
          {"model", head.model}};
}

ordered_json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

// What an answer says, under the name that the API has for it.
ordered_json said(Api api, const ReplyPart& part, bool chunk) {
  if (api == Api::kCompletion) return {{"text", part.text}};
  ordered_json message = ordered_json::object();
  if (part.first || !chunk) message["role"] = "assistant";
  if (part.first || !chunk || !part.text.empty()) message["content"] = part.text;
  if (!chunk) message["refusal"] = nullptr;
  return {{chunk ? "delta" : "message", std::move(message)}};
}

ordered_json choice_json(Api api, const ReplyPart& part, bool chunk) {
  ordered_json choice = {{"index", part.index}};
  choice.update(said(api, part, chunk));
  choice["logprobs"] = logprobs_json(api, part);
  choice["finish_reason"] = reason_json(part.finish_reason);
  return choice;
}

}  // namespace

ordered_json whole_reply(const ReplyHead& head, const std::vector<ReplyPart>& answers,
                         const Usage& usage) {
  ordered_json reply = head_json(head, "chat.completion", "text_completion");
  ordered_json& choices = reply["choices"] = ordered_json::array();
  for (const ReplyPart& answer : answers) choices.push_back(choice_json(head.api, answer, false));
  reply["usage"] = usage_json(usage);
  return reply;
}

ordered_json chunk_reply(const ReplyHead& head, const ReplyPart& part, bool usage_follows) {
  ordered_json reply = head_json(head, "chat.completion.chunk", "text_completion");
  reply["choices"] = ordered_json::array({choice_json(head.api, part, true)});
  if (usage_follows) reply["usage"] = nullptr;
  return reply;
}

ordered_json usage_chunk(const ReplyHead& head, const Usage& usage) {
  ordered_json reply = head_json(head, "chat.completion.chunk", "text_completion");
  reply["choices"] = ordered_json::array();
  reply["usage"] = usage_json(usage);
  return reply;
}

std::string json_text(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string event_text(const ordered_json& json) { return "data: " + json_text(json) + "\n"; }

}  // namespace wideep::server
