// SPDX-License-Identifier: Apache-2.0
//
// Text goes to the last message while the role stays the same, in place: a body may have a block
// every few bytes. What a chat has no place for becomes text: "Error: " before the result of a call
// that failed, a sentence in the place of an image. Lines for Anthropic's bills differ in each
// request: they are taken out, or no request could share the pages of what follows them.
#include "api/turn_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// Some agents begin their prompt with a line for Anthropic's bills that differs in each request: no
// model should read it, and nothing after it could be shared.
std::string_view without_billing(std::string_view text) {
  constexpr std::string_view kBilling = "x-anthropic-billing-header:";
  while (text.starts_with(kBilling)) {
    text.remove_prefix(std::min(text.find('\n'), text.size()));
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  }
  return text;
}

}  // namespace

void append_text(ordered_json& text, std::string_view part) {
  if (part.empty()) return;
  if (!text.is_string()) text = "";
  auto& bytes = text.get_ref<std::string&>();
  if (!bytes.empty()) bytes += "\n\n";
  bytes += part;
}

void TurnMessages::add_system(const std::string& place, const ordered_json& content) {
  if (content.is_null()) return;
  const std::string all = text_of(place, content);
  const std::string_view text = without_billing(all);
  if (!text.empty()) add_text("system", "content", text);
}

void TurnMessages::add(const std::string& place, const ordered_json& turn) {
  const ordered_json& role = member_of(turn, "role");
  const ordered_json& content = member_of(turn, "content");
  if (turn.is_object() && !body_.check_members(place, turn, kTurn)) return;
  if (role == "system") return add_system(place + ".content", content);
  if (role != "user" && role != "assistant") {
    return body_.complain(
        place + ".role",
        "expected \"user\", \"assistant\" or \"system\", found " + BodyReader::shown(role));
  }
  if (content.is_string()) return add_text(role, "content", content.get<std::string>());
  if (!content.is_array()) {
    return body_.complain(place + ".content", "expected a string, or a list of blocks, found " +
                                                  BodyReader::shown(content));
  }
  if (content.empty()) add_text(role, "content", "");
  for (size_t i = 0; i < content.size() && body_.is_valid(); ++i) {
    add_block(role, fmt::format("{}.content[{}]", place, i), content[i]);
  }
}

void TurnMessages::add_block(const std::string& role, const std::string& place,
                             const ordered_json& block) {
  const ordered_json& type = member_of(block, "type");
  const bool is_assistant = role == "assistant";
  const auto has_only = [&](const NestedFields& fields) {
    return body_.check_members(place, block, fields);
  };
  if (type == "text") {
    if (has_only(kTurnText)) add_text(role, "content", text_member(place, block, "text"));
  } else if (is_assistant && type == "thinking") {
    if (has_only(kTurnThinking))
      add_text(role, "reasoning_content", text_member(place, block, "thinking"));
  } else if (is_assistant && type == "redacted_thinking") {
    // Only the service that has written it can read it.
    if (has_only(kTurnRedacted)) message_of(role);
  } else if (is_assistant && type == "tool_use") {
    if (has_only(kTurnCall)) add_call(place, block);
  } else if (!is_assistant && type == "tool_result") {
    if (has_only(kTurnResult)) add_result(place, block);
  } else {
    body_.complain(place + ".type",
                   fmt::format("expected {}, found {}",
                               is_assistant ? "text, thinking, redacted_thinking or tool_use"
                                            : "text or tool_result",
                               BodyReader::shown(type)));
  }
}

void TurnMessages::add_call(const std::string& place, const ordered_json& block) {
  const std::string id = text_member(place, block, "id");
  const std::string name = text_member(place, block, "name");
  const ordered_json& input = member_of(block, "input");
  if (!input.is_object()) {
    return body_.complain(place + ".input",
                          "expected an object, found " + BodyReader::shown(input));
  }
  message_of("assistant")["tool_calls"].push_back(
      {{"id", id},
       {"type", "function"},
       {"function", {{"name", name}, {"arguments", formats::exact_json_text(input)}}}});
}

// Templates have no other place that says that a call has failed.
void TurnMessages::add_result(const std::string& place, const ordered_json& block) {
  const std::string id = text_member(place, block, "tool_use_id");
  const ordered_json& content = member_of(block, "content");
  const ordered_json& is_error = member_of(block, "is_error");
  if (!is_error.is_null() && !is_error.is_boolean()) {
    body_.complain(place + ".is_error", "expected true or false");
  }
  std::string text =
      content.is_null() ? "" : text_of(place + ".content", content, /*shows_images=*/true);
  if (is_error == true) text.insert(0, "Error: ");
  messages_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(text)}});
}

void TurnMessages::add_text(const std::string& role, const char* member, std::string_view text) {
  append_text(message_of(role)[member], text);
}

// The last message if it has this role, else another one.
ordered_json& TurnMessages::message_of(const std::string& role) {
  if (messages_.empty() || messages_.back()["role"] != role) {
    messages_.push_back({{"role", role}, {"content", ""}});
  }
  return messages_.back();
}

std::string TurnMessages::text_of(const std::string& place, const ordered_json& content,
                                  bool shows_images) {
  if (content.is_string()) return content.get<std::string>();
  ordered_json text = "";
  if (!content.is_array()) {
    body_.complain(place, "expected a string, or a list of blocks of type text, found " +
                              BodyReader::shown(content));
    return "";
  }
  for (size_t i = 0; i < content.size() && body_.is_valid(); ++i) {
    const std::string where = fmt::format("{}[{}]", place, i);
    const ordered_json& type = member_of(content[i], "type");
    if (shows_images && (type == "image" || type == "document")) {
      body_.ignore("content of tool_result of type " + type.get<std::string>());
      append_text(text, type == "image" ? kImage : kDocument);
      continue;
    }
    if (type != "text") {
      body_.complain(where + ".type", "expected \"text\", found " + BodyReader::shown(type));
      return "";
    }
    if (!body_.check_members(where, content[i], kTurnText)) return "";
    append_text(text, text_member(where, content[i], "text"));
  }
  return text;
}

std::string TurnMessages::text_member(const std::string& place, const ordered_json& block,
                                      const char* name) {
  const ordered_json& text = member_of(block, name);
  if (text.is_string()) return text;
  body_.complain(fmt::format("{}.{}", place, name),
                 "expected a string, found " + BodyReader::shown(text));
  return "";
}

std::string TurnMessages::take_prefill() {
  if (messages_.empty() || messages_.back()["role"] != "assistant") return "";
  const ordered_json last = std::move(messages_.back());
  messages_.erase(messages_.size() - 1);
  if (last.contains("tool_calls")) {
    body_.complain("messages", "the last one calls tools: expected a tool_result after it");
  } else if (last.contains("reasoning_content")) {
    body_.complain("messages",
                   "the last one, of role assistant, is continued: expected only text, found "
                   "thinking");
  }
  return last["content"];
}

// An assistant's content is null where it only calls tools, as OpenAI's clients send it.
ordered_json TurnMessages::take() {
  for (ordered_json& message : messages_) {
    if (message.contains("tool_calls") && message["content"] == "") message["content"] = nullptr;
  }
  return std::move(messages_);
}

ordered_json with_systems_folded(const ordered_json& messages) {
  ordered_json folded = ordered_json::array();
  bool has_any = false;
  for (const ordered_json& message : messages) {
    const bool is_later =
        message["role"] == "system" && !folded.empty() && folded.back()["role"] != "system";
    has_any = has_any || is_later;
    if (!is_later && message["role"] != "user") {
      folded.push_back(message);
    } else if (!folded.empty() && folded.back()["role"] == "user") {
      append_text(folded.back()["content"], message["content"].get_ref<const std::string&>());
    } else {
      folded.push_back({{"role", "user"}, {"content", message["content"]}});
    }
  }
  return has_any ? folded : ordered_json();
}

}  // namespace wideep::server
