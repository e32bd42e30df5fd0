// SPDX-License-Identifier: Apache-2.0
//
// One item is open at a time; those that are closed are in output_, from which the last event of a
// stream and a whole reply are made, so both say the same. The start of a delta's event is
// formatted once for an item. Probabilities of tokens without a text of their own wait for the text
// that they are a part of. Only a response that has ended is stored: nobody can go on from a failed
// one.
#include "api/responses_reply.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "api/context_reply.h"
#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// In a content part a token has its bytes, in an event it has not: so say OpenAI's types.
ordered_json logprob_json(const TokenLogprob& token, bool has_bytes) {
  ordered_json json = {{"token", token.token}};
  if (has_bytes) {
    ordered_json& bytes = json["bytes"] = ordered_json::array();
    for (const char byte : token.bytes) bytes.push_back(static_cast<unsigned char>(byte));
  }
  json["logprob"] = token.logprob;
  return json;
}

ordered_json logprobs_json(const std::vector<TokenLogprob>& tokens, bool has_bytes) {
  ordered_json list = ordered_json::array();
  for (const TokenLogprob& token : tokens) {
    list.push_back(logprob_json(token, has_bytes));
    ordered_json& top = list.back()["top_logprobs"] = ordered_json::array();
    for (const TokenLogprob& each : token.top) top.push_back(logprob_json(each, has_bytes));
  }
  return list;
}

ordered_json without_bytes(ordered_json logprobs) {
  for (ordered_json& token : logprobs) {
    token.erase("bytes");
    for (ordered_json& each : token["top_logprobs"]) each.erase("bytes");
  }
  return logprobs;
}

ordered_json usage_json(const Usage& usage) {
  ordered_json json = {
      {"input_tokens", usage.prompt_tokens},
      {"input_tokens_details",
       {{"cache_write_tokens", usage.written_tokens}, {"cached_tokens", usage.cached_tokens}}},
      {"output_tokens", usage.completion_tokens},
      {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  if (usage.clipped_max_tokens) json["clipped_max_tokens"] = *usage.clipped_max_tokens;
  return json;
}

}  // namespace

ResponsesWriter::ResponsesWriter(ReplyHead head, std::shared_ptr<const ResponsePlan> plan)
    : head_(std::move(head)), plan_(std::move(plan)) {}

void ResponsesWriter::begin(size_t, const Usage&, std::string* events) {
  if (events == nullptr) return;
  const ordered_json begun = response("in_progress");
  add_event("response.created", {{"response", begun}}, events);
  add_event("response.in_progress", {{"response", begun}}, events);
}

void ResponsesWriter::add(const ReplyPart& part, std::string* events) {
  static const std::vector<answer::CallPart> kNoCalls;
  const auto& calls = part.calls == nullptr ? kNoCalls : *part.calls;
  size_t next = 0;
  if (!calls.empty() && !calls.front().begins) add_arguments(calls[next++].arguments, events);
  if (!part.reasoning.empty()) {
    if (item_.kind != Kind::kReasoning) open(Kind::kReasoning, nullptr, events);
    add_text(part.reasoning, events);
  }
  add_message_text(part, events);
  for (; next < calls.size(); ++next) {
    if (calls[next].begins) open(Kind::kCall, &calls[next], events);
    if (!calls[next].arguments.empty()) add_arguments(calls[next].arguments, events);
  }
  if (part.finish_reason == engine::FinishReason::kNotFinished) return;
  if (part.context != nullptr) context_[context_field(*part.context)] = context_json(*part.context);
  is_cut_ = part.finish_reason == engine::FinishReason::kLength;
  close(is_cut_, events);
}

// The probabilities of tokens without text (a part of a character) go with the text that follows.
void ResponsesWriter::add_message_text(const ReplyPart& part, std::string* events) {
  const bool has_more = !part.reasoning.empty() || (part.calls != nullptr && !part.calls->empty());
  if (part.logprobs != nullptr && !has_more) {
    waiting_.insert(waiting_.end(), part.logprobs->begin(), part.logprobs->end());
  }
  if (has_more && part.text.empty()) waiting_.clear();
  if (part.text.empty()) return;
  if (item_.kind != Kind::kMessage) open(Kind::kMessage, nullptr, events);
  add_text(part.text, events);
}

void ResponsesWriter::open(Kind kind, const answer::CallPart* call, std::string* events) {
  close(false, events);
  item_ = Item();
  if (call != nullptr) {
    const auto tool = plan_->tools.by_function.find(call->name);
    const bool is_known = tool != plan_->tools.by_function.end();
    if (is_known && tool->second.is_custom) kind = Kind::kCustomCall;
    item_.name = is_known ? tool->second.name : call->name;
    item_.space = is_known ? tool->second.space : "";
    item_.call = call->index;
    item_.call_id = call->id;
  }
  const char* start = kind == Kind::kReasoning ? "rs"
                      : kind == Kind::kMessage ? "msg"
                      : kind == Kind::kCall    ? "fc"
                                               : "ctc";
  item_.kind = kind;
  item_.id =
      fmt::format("{}_{}-{}", start, head_.id.substr(head_.id.find('_') + 1), output_.size());
  if (events == nullptr) return;
  ordered_json begun = item_json("in_progress");
  if (kind == Kind::kMessage || kind == Kind::kReasoning) begun["content"] = ordered_json::array();
  add_event("response.output_item.added",
            {{"output_index", output_.size()}, {"item", std::move(begun)}}, events);
  ordered_json where = place();
  if (!item_.is_call()) {
    ordered_json members = where;
    members["part"] = content_part();
    add_event("response.content_part.added", std::move(members), events);
  }
  // Formatted once, so that a token costs only its own text.
  item_.delta = formats::json_text(where).substr(1);
  item_.delta.back() = ',';  // instead of '}': the text follows
  item_.delta = "," + item_.delta + "\"delta\":\"";
}

// Where the text of the item is.
ordered_json ResponsesWriter::place() const {
  ordered_json where = {{"item_id", item_.id}, {"output_index", output_.size()}};
  if (!item_.is_call()) where["content_index"] = 0;
  return where;
}

void ResponsesWriter::add_arguments(std::string_view arguments, std::string* events) {
  if (item_.kind != Kind::kCustomCall) return add_text(arguments, events);
  const std::string text = item_.input.push(arguments);
  if (!text.empty()) add_text(text, events);
}

void ResponsesWriter::add_text(std::string_view text, std::string* events) {
  item_.text += text;
  const bool is_message = item_.kind == Kind::kMessage;
  const std::vector<TokenLogprob> logprobs =
      is_message ? std::exchange(waiting_, {}) : std::vector<TokenLogprob>();
  for (ordered_json& each : logprobs_json(logprobs, true)) {
    item_.logprobs.push_back(std::move(each));
  }
  if (events == nullptr) return;
  const char* type = is_message                       ? "response.output_text.delta"
                     : item_.kind == Kind::kReasoning ? "response.reasoning_text.delta"
                     : item_.kind == Kind::kCall      ? "response.function_call_arguments.delta"
                                                      : "response.custom_tool_call_input.delta";
  *events += fmt::format("event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1}", type,
                         num_events_++);
  *events += item_.delta;
  formats::add_json_characters(text, events);
  *events += '"';
  if (is_message) {
    *events += ",\"logprobs\":";
    *events += logprobs.empty() ? "[]" : formats::json_text(logprobs_json(logprobs, false));
  }
  *events += "}\n\n";
}

// is_cut: in the middle of the item, unless it is a call that has all of its arguments.
void ResponsesWriter::close(bool is_cut, std::string* events) {
  if (item_.kind == Kind::kNone) return;
  if (item_.kind == Kind::kCall && is_cut) is_cut = !ordered_json::accept(item_.text);
  if (item_.kind == Kind::kCustomCall) {
    const std::string rest = item_.input.finish();
    if (!rest.empty()) add_text(rest, events);
    is_cut = is_cut && !item_.input.is_whole();
  }
  ordered_json whole = item_json(is_cut ? "incomplete" : "completed");
  if (events != nullptr) {
    ordered_json members = place();
    if (item_.kind == Kind::kCall) {
      members["arguments"] = item_.text;
      add_event("response.function_call_arguments.done", std::move(members), events);
    } else if (item_.kind == Kind::kCustomCall) {
      members["input"] = item_.text;
      add_event("response.custom_tool_call_input.done", std::move(members), events);
    } else {
      const bool is_message = item_.kind == Kind::kMessage;
      members["text"] = item_.text;
      if (is_message) members["logprobs"] = without_bytes(item_.logprobs);
      add_event(is_message ? "response.output_text.done" : "response.reasoning_text.done",
                std::move(members), events);
      members = place();
      members["part"] = content_part();
      add_event("response.content_part.done", std::move(members), events);
    }
    add_event("response.output_item.done", {{"output_index", output_.size()}, {"item", whole}},
              events);
  }
  output_.push_back(std::move(whole));
  item_ = Item();
}

ordered_json ResponsesWriter::content_part() const {
  if (item_.kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", item_.text}};
  return {{"type", "output_text"},
          {"annotations", ordered_json::array()},
          {"logprobs", item_.logprobs},
          {"text", item_.text}};
}

ordered_json ResponsesWriter::item_json(const char* status) const {
  if (item_.kind == Kind::kReasoning) {
    return {{"id", item_.id},
            {"type", "reasoning"},
            {"status", status},
            {"summary", ordered_json::array()},
            {"content", ordered_json::array({content_part()})}};
  }
  if (item_.kind == Kind::kMessage) {
    return {{"id", item_.id},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", ordered_json::array({content_part()})}};
  }
  const bool is_custom = item_.kind == Kind::kCustomCall;
  ordered_json call = {
      {"id", item_.id},     {"type", is_custom ? "custom_tool_call" : "function_call"},
      {"status", status},   {"call_id", item_.call_id},
      {"name", item_.name}, {is_custom ? "input" : "arguments", item_.text}};
  if (!item_.space.empty()) call["namespace"] = item_.space;
  return call;
}

// The object as it is now.
ordered_json ResponsesWriter::response(const char* status) const {
  ordered_json object = {
      {"id", head_.id},       {"object", "response"}, {"created_at", head_.created},
      {"status", status},     {"error", nullptr},     {"incomplete_details", nullptr},
      {"model", head_.model}, {"output", output_},    {"usage", nullptr}};
  object.update(plan_->repeated);
  return object;
}

// Ends the response, stores it if it is to be, and returns it as JSON.
std::string ResponsesWriter::finish(const Usage& usage) {
  ordered_json ended = response(is_cut_ ? "incomplete" : "completed");
  if (is_cut_) {
    ended["incomplete_details"] = {{"reason", "max_output_tokens"}};
  } else {
    ended["completed_at"] = usage.ended_at > 0 ? usage.ended_at : int64_t{std::time(nullptr)};
  }
  ended["usage"] = usage_json(usage);
  if (!context_.is_null()) ended.update(context_);
  // What is repeated of the request may have integers of any size.
  std::string text = formats::exact_json_text(ended);
  if (plan_->store != nullptr) {
    plan_->store->add(head_.id, {.response = text, .conversation = plan_->conversation()});
  }
  return text;
}

void ResponsesWriter::end(const Usage& usage, std::string* events) {
  const char* type = is_cut_ ? "response.incomplete" : "response.completed";
  *events += fmt::format(
      "event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1},\"response\":{2}}}\n\n", type,
      num_events_++, finish(usage));
}

std::string ResponsesWriter::whole(const std::vector<ReplyPart>&, const Usage& usage) {
  return finish(usage) + "\n";
}

void ResponsesWriter::fail(const HttpError& error, std::string* events) {
  if (item_.kind != Kind::kNone) output_.push_back(item_json("incomplete"));
  ordered_json failed = response("failed");
  // One of OpenAI's codes, which programs know; `error` has the server's own.
  failed["error"] = {{"code", "server_error"}, {"message", error.message}};
  add_event("error",
            {{"code", error.code.empty() ? ordered_json() : ordered_json(error.code)},
             {"message", error.message},
             {"param", nullptr}},
            events);
  add_event("response.failed", {{"response", std::move(failed)}}, events);
}

void ResponsesWriter::add_event(const char* type, ordered_json members, std::string* events) {
  ordered_json event = {{"type", type}, {"sequence_number", num_events_++}};
  event.update(members);
  *events += fmt::format("event: {}\ndata: {}\n\n", type, formats::exact_json_text(event));
}

}  // namespace wideep::server
