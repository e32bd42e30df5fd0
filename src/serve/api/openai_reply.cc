// SPDX-License-Identifier: Apache-2.0
//
// A chunk runs for every token, so it is written by hand behind a head that was formatted once; a
// whole reply is built as JSON. openai_reply_test.cc holds the two against each other. What OpenAI
// does not have is vLLM's, under its names. Reasoning has both names that servers use, because
// clients look for either.
#include "api/openai_reply.h"

#include <charconv>

#include "api/context_reply.h"
#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// DeepSeek's name for it, and OpenAI's open models'; servers have either, clients look for either.
constexpr const char* kReasoning[] = {"reasoning_content", "reasoning"};

// As JSON text.
std::string_view reason_text(const ReplyPart& part) {
  switch (part.finish_reason) {
    case engine::FinishReason::kStop:
      return part.has_called ? "\"tool_calls\"" : "\"stop\"";
    case engine::FinishReason::kLength:
      return "\"length\"";
    default:
      return "null";
  }
}

// As a JSON value.
ordered_json reason_json(const ReplyPart& part) {
  const std::string_view text = reason_text(part);
  if (text == "null") return nullptr;
  return std::string(text.substr(1, text.size() - 2));
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

// An object by token text. Of tokens with the same text (U+FFFD for parts of characters) it has the
// likeliest. The sampled token is always included.
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
    logprobs.push_back(token.is_first ? ordered_json() : ordered_json(token.logprob));
    top.push_back(token.is_first ? ordered_json() : top_by_text(token));
    offsets.push_back(token.text_offset);
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

// As vLLM has them: an object by token id for each token of the prompt, null for the first.
ordered_json prompt_logprobs_json(const std::vector<TokenLogprob>& tokens) {
  ordered_json list = ordered_json::array();
  for (const TokenLogprob& token : tokens) {
    if (token.is_first) {
      list.push_back(nullptr);
      continue;
    }
    ordered_json each = ordered_json::object();
    const auto add = [&](const TokenLogprob& likely, const ordered_json& rank) {
      const std::string id = std::to_string(likely.id);
      if (each.contains(id)) return;
      each[id] = {{"logprob", likely.logprob}, {"rank", rank}, {"decoded_token", likely.token}};
    };
    for (size_t i = 0; i < token.top.size(); ++i) add(token.top[i], i + 1);
    add(token, nullptr);
    list.push_back(std::move(each));
  }
  return list;
}

// What vLLM has of a prompt: in a choice of a completion, beside the choices of a chat.
ordered_json prompt_json(const ReplyPart& part) {
  ordered_json json = ordered_json::object();
  if (part.prompt_logprobs != nullptr) {
    json["prompt_logprobs"] = prompt_logprobs_json(*part.prompt_logprobs);
  }
  if (part.prompt_ids != nullptr) json["prompt_token_ids"] = *part.prompt_ids;
  return json;
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
  ordered_json json = {
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details",
       {{"cached_tokens", usage.cached_tokens}, {"cache_write_tokens", usage.written_tokens}}}};
  if (usage.clipped_max_tokens) json["clipped_max_tokens"] = *usage.clipped_max_tokens;
  return json;
}

// As vLLM has them in a reply, and in a stream beside the usage.
ordered_json metrics_json(const Usage& usage) {
  return {{"speculative_decoding", usage.speculation}};
}

// The whole calls of an answer.
ordered_json calls_json(const std::vector<answer::CallPart>& parts) {
  ordered_json calls = ordered_json::array();
  for (const answer::CallPart& part : parts) {
    calls.push_back({{"id", part.id},
                     {"type", "function"},
                     {"function", {{"name", part.name}, {"arguments", part.arguments}}}});
  }
  return calls;
}

// The text of an answer, in the field that the API has for it.
ordered_json content_json(Api api, const ReplyPart& part) {
  const std::string text(part.text);
  if (api == Api::kCompletion) return {{"text", text}};
  ordered_json message = {{"role", "assistant"}};
  for (const char* name : kReasoning) {
    if (!part.reasoning.empty()) message[name] = std::string(part.reasoning);
  }
  message["content"] = text.empty() && part.has_called ? ordered_json() : ordered_json(text);
  message["refusal"] = nullptr;
  if (part.has_called) message["tool_calls"] = calls_json(*part.calls);
  return {{"message", std::move(message)}};
}

ordered_json choice_json(Api api, const ReplyPart& part) {
  ordered_json choice = {{"index", part.index}};
  choice.update(content_json(api, part));
  choice["logprobs"] = logprobs_json(api, part);
  choice["finish_reason"] = reason_json(part);
  if (part.routed_experts != nullptr) choice["routed_experts"] = *part.routed_experts;
  if (api == Api::kCompletion) choice.update(prompt_json(part));
  if (part.token_ids != nullptr) choice["token_ids"] = *part.token_ids;
  if (part.context != nullptr && part.context->request.form == SharedPrompt::Form::kTrt) {
    choice[context_field(*part.context)] = context_json(*part.context);
  }
  return choice;
}

// What is beside the one choice of a context-only request: TensorRT-LLM has the prompt there, vLLM
// all that the other server needs.
ordered_json beside_choice(const ContextReply& context) {
  if (context.request.form == SharedPrompt::Form::kTrt) {
    return {{"prompt_token_ids", context.prompt_ids}};
  }
  return {{context_field(context), context_json(context)}};
}

void add_number(int64_t value, std::string* out) {
  char digits[24];
  out->append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

void add_quoted(std::string_view text, std::string* out) {
  *out += '"';
  formats::add_json_characters(text, out);
  *out += '"';
}

void add_calls(const std::vector<answer::CallPart>& parts, std::string* out) {
  *out += "\"tool_calls\":[";
  const char* comma = "";
  for (const answer::CallPart& part : parts) {
    *out += comma;
    *out += "{\"index\":";
    add_number(part.index, out);
    if (part.begins) {
      *out += ",\"id\":";
      add_quoted(part.id, out);
      *out += ",\"type\":\"function\",\"function\":{\"name\":";
      add_quoted(part.name, out);
      *out += ',';
    } else {
      *out += ",\"function\":{";
    }
    *out += "\"arguments\":";
    add_quoted(part.arguments, out);
    *out += "}}";
    comma = ",";
  }
  *out += ']';
}

void add_delta(const ReplyPart& part, std::string* out) {
  *out += "\"delta\":{";
  const char* comma = "";
  if (part.first) {
    *out += "\"role\":\"assistant\"";
    comma = ",";
  }
  if (!part.reasoning.empty()) {
    for (const char* name : kReasoning) {
      *out += comma;
      add_quoted(name, out);
      *out += ':';
      add_quoted(part.reasoning, out);
      comma = ",";
    }
  }
  if (part.first || !part.text.empty()) {
    *out += comma;
    *out += "\"content\":";
    add_quoted(part.text, out);
    comma = ",";
  }
  if (part.calls != nullptr && !part.calls->empty()) {
    *out += comma;
    add_calls(*part.calls, out);
  }
  *out += '}';
}

}  // namespace

ordered_json whole_reply(const ReplyHead& head, const std::vector<ReplyPart>& answers,
                         const Usage& usage) {
  ordered_json reply = head_json(head, "chat.completion", "text_completion");
  ordered_json& choices = reply["choices"] = ordered_json::array();
  for (const ReplyPart& answer : answers) choices.push_back(choice_json(head.api, answer));
  reply["usage"] = usage_json(usage);
  if (head.api == Api::kChat && !answers.empty()) reply.update(prompt_json(answers[0]));
  if (!answers.empty() && answers[0].context != nullptr) {
    reply.update(beside_choice(*answers[0].context));
  }
  if (!usage.speculation.is_null()) reply["metrics"] = metrics_json(usage);
  return reply;
}

std::string json_text(const ordered_json& json) { return formats::json_text(json) + "\n"; }

EventWriter::EventWriter(const ReplyHead& head, bool usage_follows)
    : api_(head.api), usage_follows_(usage_follows) {
  head_ = "data: ";
  head_ += formats::json_text(head_json(head, "chat.completion.chunk", "text_completion"));
  head_.back() = ',';  // instead of '}': the choices follow
  head_ += "\"choices\":[";
}

void EventWriter::add_chunk(const ReplyPart& part, std::string* events) const {
  add_open_chunk(part, events);
  *events += "}\n\n";
}

void EventWriter::add_progress(int answer, const PromptShare& share, std::string* events) const {
  add_open_chunk({.index = answer, .text = {}}, events);
  *events += ",\"prompt_progress\":";
  *events += formats::json_text(ordered_json{{"total", share.total},
                                             {"cache", share.cached},
                                             {"processed", share.processed},
                                             {"time_ms", share.ms}});
  *events += "}\n\n";
}

// Without its end.
void EventWriter::add_open_chunk(const ReplyPart& part, std::string* events) const {
  *events += head_;
  *events += "{\"index\":";
  add_number(part.index, events);
  *events += ',';
  if (api_ == Api::kChat) {
    add_delta(part, events);
  } else {
    *events += "\"text\":";
    add_quoted(part.text, events);
  }
  *events += ",\"logprobs\":";
  *events += part.logprobs == nullptr ? "null" : formats::json_text(logprobs_json(api_, part));
  *events += ",\"finish_reason\":";
  *events += reason_text(part);
  if (part.token_ids != nullptr) {
    *events += ",\"token_ids\":";
    *events += formats::json_text(ordered_json(*part.token_ids));
  }
  const std::string prompt =
      part.prompt_ids == nullptr
          ? ""
          : ",\"prompt_token_ids\":" + formats::json_text(ordered_json(*part.prompt_ids));
  if (api_ == Api::kCompletion) *events += prompt;
  *events += "}]";
  if (api_ == Api::kChat) *events += prompt;
  if (usage_follows_) {
    *events += ",\"usage\":";
    *events += part.usage == nullptr ? "null" : formats::json_text(usage_json(*part.usage));
  }
}

void EventWriter::add_usage(const Usage& usage, std::string* events) const {
  *events += head_;
  *events += "],\"usage\":";
  *events += formats::json_text(usage_json(usage));
  if (!usage.speculation.is_null()) {
    *events += ",\"metrics\":";
    *events += formats::json_text(metrics_json(usage));
  }
  *events += "}\n\n";
}

OpenAiReply::OpenAiReply(ReplyHead head, bool includes_usage)
    : head_(std::move(head)), includes_usage_(includes_usage), events_(head_, includes_usage) {}

// OpenAI's chat streams begin with a chunk that has only the role.
void OpenAiReply::begin(size_t num_answers, const Usage&, std::string* events) {
  if (events == nullptr || head_.api != Api::kChat) return;
  for (size_t i = 0; i < num_answers; ++i) {
    events_.add_chunk({.index = static_cast<int>(i), .text = {}, .first = true}, events);
  }
}

void OpenAiReply::add(const ReplyPart& part, std::string* events) {
  events_.add_chunk(part, events);
}

void OpenAiReply::end(const Usage& usage, std::string* events) {
  if (includes_usage_) events_.add_usage(usage, events);
  EventWriter::add_last(events);
}

void OpenAiReply::fail(const HttpError& error, std::string* events) {
  EventWriter::add_error(error, events);
  EventWriter::add_last(events);
}

std::string OpenAiReply::progress(int answer, const PromptShare& share) const {
  std::string event;
  events_.add_progress(answer, share, &event);
  return event;
}

std::string OpenAiReply::whole(const std::vector<ReplyPart>& answers, const Usage& usage) {
  return json_text(whole_reply(head_, answers, usage));
}

}  // namespace wideep::server
