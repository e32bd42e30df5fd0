// SPDX-License-Identifier: Apache-2.0
//
// One block is open at a time: what comes next closes it or goes on in it, and a whole reply is
// made of the same blocks. Deltas are written by hand, since they run for every token. Three forms
// are what Anthropic's clients know: arguments that are no object as INVALID_JSON, a signature for
// thinking, though nothing is checked by it, and the words by which they see that a prompt is too
// long.
#include "api/messages_reply.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>

#include "api/context_reply.h"
#include "api/openai_reply.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"
#include "http/exchange.h"

namespace wideep::server {
namespace {

using engine::FinishReason;
using nlohmann::ordered_json;

void add_quoted(std::string_view text, std::string* out) {
  *out += '"';
  formats::add_json_characters(text, out);
  *out += '"';
}

// `members`: of the data, after its type.
void add_event(std::string_view type, std::string_view members, std::string* out) {
  *out += fmt::format("event: {0}\ndata: {{\"type\":\"{0}\"{1}}}\n\n", type, members);
}

// By hand, as this runs for every token.
void add_delta(int index, std::string_view type, std::string_view field, std::string_view text,
               std::string* out) {
  fmt::format_to(
      std::back_inserter(*out),
      "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{},"
      "\"delta\":{{\"type\":\"{}\",\"{}\":",
      index, type, field);
  add_quoted(text, out);
  *out += "}}\n\n";
}

constexpr std::string_view kStopSequence = "stop_sequence";

// "": it has not ended.
std::string_view stop_reason(const ReplyPart& part) {
  if (part.finish_reason == FinishReason::kLength) {
    return part.fills_context ? "model_context_window_exceeded" : "max_tokens";
  }
  if (part.finish_reason != FinishReason::kStop) return "";
  if (part.has_called) return "tool_use";
  return part.stop_string.empty() ? "end_turn" : kStopSequence;
}

ordered_json or_null(std::string_view text) {
  return text.empty() ? ordered_json() : ordered_json(std::string(text));
}

// Tokens of the prompt are counted once: as read from the cache, written to it, or as input.
ordered_json usage_json(const Usage& usage) {
  const int64_t rest = usage.prompt_tokens - usage.cached_tokens - usage.written_tokens;
  ordered_json json = {{"input_tokens", rest},
                       {"cache_creation_input_tokens", usage.written_tokens},
                       {"cache_read_input_tokens", usage.cached_tokens},
                       {"output_tokens", usage.completion_tokens}};
  if (usage.reasoning_tokens > 0) {
    json["output_tokens_details"] = {{"thinking_tokens", usage.reasoning_tokens}};
  }
  return json;
}

ordered_json metrics_json(const Usage& usage) {
  return {{"speculative_decoding", usage.speculation}};
}

ordered_json message_json(const ReplyHead& head, ordered_json content, std::string_view reason,
                          std::string_view sequence, const Usage& usage) {
  return {{"id", head.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", head.model},
          {"content", std::move(content)},
          {"stop_reason", or_null(reason)},
          {"stop_sequence", or_null(sequence)},
          {"usage", usage_json(usage)}};
}

// What the model has written may be no JSON object, or only the beginning of one. Anthropic's
// clients give such text back in this form.
ordered_json input_of(const std::string& arguments) {
  if (arguments.empty()) return ordered_json::object();
  auto parsed = formats::parse_exact_json(arguments, "arguments");
  if (parsed.ok() && parsed->is_object()) return std::move(*parsed);
  return {{"INVALID_JSON", arguments}};
}

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 529:
      return "overloaded_error";
    case 500:
    case 503:
      return "api_error";
    default:
      return "invalid_request_error";
  }
}

ordered_json error_json(const HttpError& error, std::string_view request_id) {
  // Clients look for these words before they shorten a conversation.
  const bool is_too_long = error.code == "context_length_exceeded";
  return {{"type", "error"},
          {"error",
           {{"type", error_type(messages_status(error))},
            {"message", (is_too_long ? "prompt is too long: " : "") + error.message}}},
          {"request_id", or_null(request_id)}};
}

}  // namespace

void MessagesWriter::begin(size_t, const Usage& usage, std::string* events) {
  if (events == nullptr) return;
  const ordered_json message = message_json(head_, ordered_json::array(), "", "", usage);
  add_event("message_start", ",\"message\":" + formats::json_text(message), events);
}

void MessagesWriter::add(const ReplyPart& part, std::string* events) {
  static const std::vector<answer::CallPart> kNoCalls;
  const auto& calls = part.calls == nullptr ? kNoCalls : *part.calls;
  auto call = calls.begin();
  if (call != calls.end() && !call->begins) add_to_block((call++)->arguments, events);
  // Text and thinking go on in an open block of their kind; each call has its own.
  if (!part.reasoning.empty()) {
    if (block_.kind != Kind::kThinking) begin_block({.kind = Kind::kThinking}, events);
    add_to_block(part.reasoning, events);
  }
  if (!part.text.empty()) {
    if (block_.kind != Kind::kText) begin_block({.kind = Kind::kText}, events);
    add_to_block(part.text, events);
  }
  for (; call != calls.end(); ++call) {
    begin_block({.kind = Kind::kCall, .id = call->id, .name = call->name}, events);
    add_to_block(call->arguments, events);
  }
  stop_reason_ = stop_reason(part);
  if (stop_reason_ == kStopSequence) stop_sequence_ = part.stop_string;
  if (part.context != nullptr) context_[context_field(*part.context)] = context_json(*part.context);
}

std::string MessagesWriter::ping() const {
  std::string event;
  add_event("ping", "", &event);
  return event;
}

void MessagesWriter::begin_block(Block block, std::string* events) {
  end_block(events);
  block_ = std::move(block);
  ++num_blocks_;
  if (events == nullptr) return;
  add_event("content_block_start",
            fmt::format(",\"index\":{},\"content_block\":{}", num_blocks_ - 1,
                        formats::json_text(block_json())),
            events);
  if (num_blocks_ == 1) *events += ping();
}

void MessagesWriter::add_to_block(std::string_view text, std::string* events) {
  if (text.empty()) return;
  if (events == nullptr) {
    block_.text += text;
    return;
  }
  switch (block_.kind) {
    case Kind::kThinking:
      return add_delta(num_blocks_ - 1, "thinking_delta", "thinking", text, events);
    case Kind::kText:
      return add_delta(num_blocks_ - 1, "text_delta", "text", text, events);
    case Kind::kCall:
      return add_delta(num_blocks_ - 1, "input_json_delta", "partial_json", text, events);
    case Kind::kNone:
      return;
  }
}

// Some clients give thinking back only with a signature. Nothing is checked by it.
void MessagesWriter::end_block(std::string* events) {
  if (block_.kind == Kind::kNone) return;
  if (events == nullptr) {
    content_.push_back(block_json());
  } else {
    if (block_.kind == Kind::kThinking) {
      add_delta(num_blocks_ - 1, "signature_delta", "signature", head_.id, events);
    }
    add_event("content_block_stop", fmt::format(",\"index\":{}", num_blocks_ - 1), events);
  }
  block_ = {};
}

// As a stream begins it, or whole.
ordered_json MessagesWriter::block_json() const {
  switch (block_.kind) {
    case Kind::kThinking:
      return {{"type", "thinking"},
              {"thinking", block_.text},
              {"signature", block_.text.empty() ? "" : head_.id}};
    case Kind::kCall:
      return {{"type", "tool_use"},
              {"id", block_.id},
              {"name", block_.name},
              {"input", input_of(block_.text)}};
    default:
      return {{"type", "text"}, {"text", block_.text}};
  }
}

void MessagesWriter::end(const Usage& usage, std::string* events) {
  end_block(events);
  if (events == nullptr) return;
  const ordered_json delta = {{"stop_reason", or_null(stop_reason_)},
                              {"stop_sequence", or_null(stop_sequence_)}};
  std::string members = ",\"delta\":" + formats::json_text(delta) +
                        ",\"usage\":" + formats::json_text(usage_json(usage));
  if (!usage.speculation.is_null()) {
    members += ",\"metrics\":" + formats::json_text(metrics_json(usage));
  }
  add_event("message_delta", members, events);
  add_event("message_stop", "", events);
}

void MessagesWriter::fail(const HttpError& error, std::string* events) {
  *events += "event: error\ndata: " + this->error(error) + "\n";
}

std::string MessagesWriter::whole(const std::vector<ReplyPart>&, const Usage& usage) {
  end_block(nullptr);
  ordered_json message =
      message_json(head_, std::move(content_), stop_reason_, stop_sequence_, usage);
  if (!usage.speculation.is_null()) message["metrics"] = metrics_json(usage);
  if (!context_.is_null()) message.update(context_);
  return formats::exact_json_text(message) + "\n";
}

std::string MessagesWriter::error(const HttpError& error) {
  return messages_error(error, request_id_of(head_.id));
}

bool is_anthropic(const RequestHead& head) {
  const std::string path = path_of_target(head.target);
  const auto is_below = [&](std::string_view endpoint) {
    return path.starts_with(endpoint) &&
           (path.size() == endpoint.size() || path[endpoint.size()] == '/');
  };
  return is_below("/v1/messages") ||
         (is_below("/v1/models") && !head.field("anthropic-version").empty());
}

int messages_status(const HttpError& error) { return error.status == 429 ? 529 : error.status; }

std::string messages_error(const HttpError& error, std::string_view request_id) {
  return json_text(error_json(error, request_id));
}

std::string request_id_of(std::string_view message_id) {
  return fmt::format("req{}", message_id.substr(std::min(message_id.find('_'), message_id.size())));
}

ordered_json anthropic_model(const std::string& name, int64_t created, int max_tokens) {
  const auto time = static_cast<std::time_t>(created);
  return {{"type", "model"},
          {"id", name},
          {"display_name", name},
          {"created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time))},
          {"lifecycle", "active"},
          {"max_input_tokens", max_tokens},
          {"max_tokens", max_tokens}};
}

ordered_json anthropic_models(const std::string& name, int64_t created, int max_tokens) {
  return {{"data", ordered_json::array({anthropic_model(name, created, max_tokens)})},
          {"has_more", false},
          {"first_id", name},
          {"last_id", name}};
}

}  // namespace wideep::server
