// SPDX-License-Identifier: Apache-2.0
//
// Special tokens move between places; text between them is a header or a message. A header is kept
// as written until <|message|> decides what it is: a call of a known tool, reasoning, or content.
//
// The hard part is text without its <|start|>: it may be a header that goes on, or an answer of a
// model that does not keep to the format. It is held only as long as it can still be a header
// (may_be_header).
#include "answer/harmony_answer.h"

#include <algorithm>
#include <utility>

#include "answer/cursor.h"

namespace wideep::answer {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>",
                           kEnd = "<|end|>", kConstrain = "<|constrain|>", kCall = "<|call|>";

constexpr std::string_view kTo = " to=", kRole = "assistant";

// "functions.f" of "… to=functions.f …"; "": to nobody, or to who is no tool.
std::string_view tool_named(std::string_view header) {
  std::string_view recipient;
  for (size_t to = header.find(kTo); to != header.npos; to = header.find(kTo)) {
    header.remove_prefix(to + kTo.size());
    recipient = header.substr(0, header.find_first_of(" <"));
  }
  return recipient == kRole || recipient == "user" || recipient == "all" ? "" : recipient;
}

// "f" of "functions.f"; "": no function.
std::string_view function_of(std::string_view tool) {
  constexpr std::string_view kFunctions = "functions.";
  return tool.starts_with(kFunctions) ? tool.substr(kFunctions.size()) : std::string_view();
}

// Whether one of them begins with the other.
bool agree(std::string_view a, std::string_view b) {
  const size_t known = std::min(a.size(), b.size());
  return a.substr(0, known) == b.substr(0, known);
}

// Whether it may be what comes before <|channel|> or <|message|>.
bool may_be_header(std::string_view text, bool may_have_role) {
  if (agree(text, kTo)) return true;
  if (!may_have_role || !agree(text, kRole)) return false;
  return text.size() <= kRole.size() || agree(text.substr(kRole.size()), kTo);
}

}  // namespace

void HarmonyAnswer::add_special(std::string_view token, AnswerParts& parts) {
  if (token == kStart) {
    if (field_ == Field::kCall) end_message(parts);
    take_header(parts);
    place_ = Place::kRole;
    header_.clear();
    channel_.clear();
  } else if (token == kChannel) {
    if (place_ == Place::kMessage) end_message(parts);
    place_ = Place::kChannel;
    header_ += kChannel;
    channel_.clear();
  } else if (token == kConstrain && place_ != Place::kMessage) {
    header_ += kConstrain;
  } else if (token == kMessage) {
    begin_message(parts);
  } else if (token == kEnd || token == kCall) {
    end_message(parts);
  }
}

void HarmonyAnswer::add_text(std::string_view text, AnswerParts& parts) {
  if (text.empty()) return;
  if (place_ == Place::kMessage) return write(text, parts);
  header_ += text;
  if (place_ == Place::kChannel) channel_ += text;
  const bool may_have_role = place_ == Place::kBetween;
  if (may_be_text() && !may_be_header(header_, may_have_role)) take_header(parts);
}

void HarmonyAnswer::finish(bool is_cut, AnswerParts& parts) {
  take_header(parts);
  if (field_ == Field::kCall && !is_cut) end_message(parts);
  parts.end_reasoning();
  parts.end_answer();
}

// What begins the answer and has no message is the text of a model that does not keep to the
// format. A later header without a message has no text.
void HarmonyAnswer::take_header(AnswerParts& parts) {
  if (!may_be_text()) return;
  const bool is_role = place_ == Place::kBetween && header_ == kRole;
  place_ = Place::kMessage;
  if (!is_role) write(header_, parts);
}

void HarmonyAnswer::begin_message(AnswerParts& parts) {
  if (field_ == Field::kCall) end_message(parts);
  place_ = Place::kMessage;
  const std::string_view tool = tool_named(header_), function = function_of(tool);
  if (tools_.find(function) != nullptr) return begin_call(function, parts);
  const bool to_tool = !tool.empty();
  field_ = !to_tool && channel_.starts_with("analysis") ? Field::kReasoning : Field::kContent;
  separate_ = field_ == Field::kReasoning ? has_reasoning_ : has_content_;
  if (!to_tool) return;
  // A role that was not in the prompt is in the header.
  const std::string role(header_.starts_with(kRole) ? std::string_view() : kRole);
  write(std::string(kStart) + role + header_ + std::string(kMessage), parts);
}

void HarmonyAnswer::begin_call(std::string_view name, AnswerParts& parts) {
  field_ = Field::kCall;
  arguments_.emplace("");
  has_arguments_ = false;
  parts.begin_call(std::string(name), "");
}

// What may follow without a <|start|> is a header, or content.
void HarmonyAnswer::end_message(AnswerParts& parts) {
  take_header(parts);
  if (field_ == Field::kCall) {
    if (!has_arguments_) parts.add_arguments("{}");
    parts.end_call();
  }
  place_ = Place::kBetween;
  header_.clear();
  channel_.clear();
  field_ = Field::kContent;
  separate_ = has_content_;
}

void HarmonyAnswer::write(std::string_view text, AnswerParts& parts) {
  if (text.empty()) return;
  if (field_ == Field::kCall) return write_arguments(text, parts);
  const bool reasons = field_ == Field::kReasoning;
  const std::string separated = separate_ ? "\n" + std::string(text) : std::string(text);
  separate_ = false;
  reasons ? parts.add_reasoning(separated) : parts.add_content(separated);
  (reasons ? has_reasoning_ : has_content_) = true;
}

// White space around the object is not passed on; what else is there, is.
void HarmonyAnswer::write_arguments(std::string_view text, AnswerParts& parts) {
  if (!has_arguments_) text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  while (!text.empty() && !arguments_->is_done()) {
    has_arguments_ = true;
    text.remove_prefix(arguments_->take(text, false, parts));
  }
  parts.add_arguments(trimmed(text));
}

}  // namespace wideep::answer
