// SPDX-License-Identifier: Apache-2.0
#include "client/chat_reply.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/try.h"
#include "client/terminal_text.h"
#include "formats/json_parse.h"

namespace wideep::client {
namespace {

using nlohmann::json;

// The member of an object; null: it has none, or is no object.
const json* member(const json* object, const char* name) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(name);
  return found == object->end() || found->is_null() ? nullptr : &*found;
}

std::string text_of(const json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::optional<int64_t> count_of(const json* value) {
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  const auto count = value->get<int64_t>();
  if (count < 0) return std::nullopt;
  return count;
}

// OpenAI's {"error": {"message"}}, vLLM's older {"message"}, FastAPI's {"detail"}.
std::string error_text(const json& body) {
  const json* error = member(&body, "error");
  if (error != nullptr && error->is_string()) return error->get<std::string>();
  for (const json* text :
       {member(error, "message"), member(&body, "message"), member(&body, "detail")}) {
    if (text != nullptr && text->is_string()) return text->get<std::string>();
  }
  return "";
}

std::optional<ReplyUsage> usage_of(const json& event) {
  const json* usage = member(&event, "usage");
  const auto completion = count_of(member(usage, "completion_tokens"));
  if (!completion) return std::nullopt;
  ReplyUsage result;
  result.completion_tokens = *completion;
  result.prompt_tokens = count_of(member(usage, "prompt_tokens")).value_or(0);
  result.cached_tokens = count_of(member(member(usage, "prompt_tokens_details"), "cached_tokens"));
  if (!result.cached_tokens) {
    result.cached_tokens = count_of(member(member(&event, "timings"), "cache_n"));
  }
  result.reasoning_tokens =
      count_of(member(member(usage, "completion_tokens_details"), "reasoning_tokens"));
  return result;
}

}  // namespace

Result<ReplyPiece> ReplyReader::take(std::string_view data) {
  if (data == "[DONE]") {
    is_done_ = true;
    return ReplyPiece{};
  }
  const auto event = formats::parse_json(data, "event");
  if (!event.ok()) {
    return failed(
        fmt::format("the server has sent an event that is no JSON: {}", terminal_line(data, 120)));
  }
  if (member(&*event, "error") != nullptr) {
    const std::string why = error_text(*event);
    return failed(fmt::format("the server has given up: {}",
                              why.empty() ? terminal_line(data, 200) : terminal_line(why)));
  }
  if (auto usage = usage_of(*event)) usage_ = usage;
  const json* choices = member(&*event, "choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return ReplyPiece{};
  const json& choice = choices->front();
  if (std::string reason = text_of(member(&choice, "finish_reason")); !reason.empty()) {
    finish_reason_ = std::move(reason);
  }
  const json* delta = member(&choice, "delta");
  ReplyPiece piece{text_of(member(delta, "content")), text_of(member(delta, "reasoning_content"))};
  if (piece.reasoning.empty()) piece.reasoning = text_of(member(delta, "reasoning"));
  return piece;
}

std::string refusal_message(const Refusal& refusal) {
  const auto body = formats::parse_json(refusal.body, "body");
  std::string why = body.ok() ? error_text(*body) : "";
  if (why.empty()) why = refusal.body;
  std::string message =
      fmt::format("the server refuses ({}): {}", refusal.status, terminal_line(why));
  if (refusal.status == 401 || refusal.status == 403) {
    message += "; give the server's key with --api-key, WIDEEP_API_KEY or OPENAI_API_KEY";
  } else if (refusal.status == 404) {
    message +=
        "; is --url that of an OpenAI API, as http://host:8000/v1, and MODEL one of its models?";
  } else if (refusal.status == 429 || refusal.status == 503) {
    const std::string wait = terminal_line(refusal.retry_after, 40);
    message += wait.empty() ? "; try again later" : fmt::format("; try again in {} s", wait);
  }
  return message;
}

Result<std::string> first_model(std::string_view reply) {
  const auto parsed = formats::parse_json(reply, "models");
  const json* list = parsed.ok() ? member(&*parsed, "data") : nullptr;
  if (list != nullptr && list->is_array() && !list->empty()) {
    if (std::string name = text_of(member(&list->front(), "id")); !name.empty()) return name;
  }
  return failed("the server's /models names no model; give its name as MODEL");
}

}  // namespace wideep::client
