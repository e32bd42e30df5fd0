// SPDX-License-Identifier: Apache-2.0
#include "client/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/try.h"
#include "client/terminal_text.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::client {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Members of a request that the chat itself fills or counts on.
constexpr std::string_view kOwnFields[] = {"messages", "model", "stream", "stream_options", "n"};

bool is_own(std::string_view field) {
  return std::ranges::find(kOwnFields, field) != std::end(kOwnFields);
}

ordered_json value_of(std::string_view text) {
  const auto parsed = formats::parse_exact_json(text, "");
  if (parsed.ok() && formats::large_integer(*parsed) == nullptr) return *parsed;
  return std::string(text);
}

Result<std::string> text_member(const json& object, const char* member, const std::string& where) {
  if (!object.contains(member)) return std::string();
  if (object[member].is_string()) return object[member].get<std::string>();
  return invalid_input(fmt::format("{}: {}: expected a text, found {}", where, member,
                                   formats::describe(object[member])));
}

Result<Conversation::Message> message_of(const json& object, const std::string& where) {
  if (!object.is_object() || !object.contains("content")) {
    return invalid_input(fmt::format("{}: expected an object with role and content, found {}",
                                     where, formats::describe(object)));
  }
  WIDEEP_TRY_ASSIGN(const std::string role, text_member(object, "role", where));
  WIDEEP_TRY_ASSIGN(std::string content, text_member(object, "content", where));
  if (role != "user" && role != "assistant") {
    return invalid_input(fmt::format("{}: role: expected user or assistant, found '{}'", where,
                                     terminal_line(role)));
  }
  return Conversation::Message{role == "user", std::move(content)};
}

}  // namespace

void Conversation::attach(std::string_view name, std::string_view text) {
  attached_ += fmt::format("File {}:\n{}", name, text);
  if (!attached_.ends_with('\n')) attached_ += '\n';
  attached_ += '\n';
}

void Conversation::add_user(std::string_view text) {
  messages_.push_back({true, std::exchange(attached_, {}) + std::string(text)});
}

void Conversation::add_answer(std::string text) { messages_.push_back({false, std::move(text)}); }

bool Conversation::regenerate() {
  if (!messages_.empty() && !messages_.back().is_users) messages_.pop_back();
  return !messages_.empty();
}

bool Conversation::undo() {
  if (!regenerate()) return false;
  messages_.pop_back();
  return true;
}

void Conversation::clear() {
  messages_.clear();
  attached_.clear();
}

Status Conversation::set(std::string_view text) {
  constexpr std::string_view kSpaces = " \t";
  const size_t end = std::min(text.find_first_of(" \t="), text.size());
  const std::string field(text.substr(0, end));
  std::string_view value = text.substr(end);
  value.remove_prefix(std::min(value.find_first_not_of(kSpaces), value.size()));
  if (value.starts_with('=')) {
    value.remove_prefix(1);
    value.remove_prefix(std::min(value.find_first_not_of(kSpaces), value.size()));
    if (value.empty()) {
      return invalid_input(fmt::format("{}: expected a value behind =", terminal_line(field, 60)));
    }
  }
  if (field.empty()) return invalid_input("expected the name of a field, found none");
  if (is_own(field))
    return invalid_input(fmt::format("{}: the chat itself sets this field", field));
  if (!value.empty()) {
    settings_[field] = value_of(value);
  } else if (settings_.erase(field) == 0) {
    return invalid_input(
        fmt::format("{}: expected a value; the field is not set", terminal_line(field, 60)));
  }
  return {};
}

ordered_json Conversation::messages_json() const {
  ordered_json list = ordered_json::array();
  for (const Message& each : messages_) {
    list.push_back({{"role", each.is_users ? "user" : "assistant"}, {"content", each.text}});
  }
  return list;
}

std::string Conversation::request(const std::string& model) const {
  ordered_json messages = messages_json();
  if (!system_.empty()) {
    // Not in braces: a list of two pairs would be taken for a list of lists.
    const ordered_json system = {{"role", "system"}, {"content", system_}};
    messages.insert(messages.begin(), system);
  }
  ordered_json body = {{"model", model},
                       {"messages", std::move(messages)},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}}};
  body.update(settings_);
  return formats::json_text(body);
}

std::string Conversation::saved(const std::string& model) const {
  const ordered_json file = {{"model", model},
                             {"system", system_},
                             {"settings", settings_},
                             {"messages", messages_json()}};
  return formats::json_text(file, 2) + "\n";
}

Result<Conversation> Conversation::loaded(std::string_view text, const std::string& name) {
  WIDEEP_TRY_ASSIGN(const json file, formats::parse_json(text, name));
  if (!file.is_object() || !file.contains("messages") || !file["messages"].is_array()) {
    return invalid_input(
        fmt::format("{}: expected a chat that /save has written, an object with messages", name));
  }
  Conversation loaded;
  WIDEEP_TRY_ASSIGN(loaded.system_, text_member(file, "system", name));
  const json settings = file.value("settings", json::object());
  if (!settings.is_object()) {
    return invalid_input(fmt::format("{}: settings: expected an object, found {}", name,
                                     formats::describe(settings)));
  }
  for (const auto& [field, value] : settings.items()) {
    if (is_own(field)) {
      return invalid_input(fmt::format("{}: settings: {}: the chat itself sets it", name, field));
    }
    loaded.settings_[field] = value;
  }
  for (size_t i = 0; i < file["messages"].size(); ++i) {
    WIDEEP_TRY_ASSIGN(Message message,
                      message_of(file["messages"][i], fmt::format("{}: messages[{}]", name, i)));
    loaded.messages_.push_back(std::move(message));
  }
  return loaded;
}

}  // namespace wideep::client
