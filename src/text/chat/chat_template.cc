// SPDX-License-Identifier: Apache-2.0
#include "chat/chat_template.h"

#include <array>

#include "base/try.h"
#include "jinja/arguments.h"

namespace wideep::chat {
namespace {

using jinja::ArgumentReader;
using jinja::Arguments;
using jinja::Names;
using jinja::Value;
using jinja::ValueResult;

jinja::Function strftime_now(std::time_t now) {
  return [now](const Arguments& arguments) -> ValueResult {
    ArgumentReader reader("strftime_now", arguments);
    const std::string format = reader.string("format");
    WIDEEP_TRY(reader.status());
    std::tm local = {};
    ::localtime_r(&now, &local);
    std::array<char, 256> text;
    return Value(
        std::string(text.data(), std::strftime(text.data(), text.size(), format.c_str(), &local)));
  };
}

Status add_members(const nlohmann::ordered_json& object, Names& names) {
  if (!object.is_object()) return {};
  for (const auto& [key, value] : object.items()) {
    WIDEEP_TRY_ASSIGN(names[key], Value::from_json(value));
  }
  return {};
}

// All variables but the messages.
Result<Names> names_of(const ChatInput& input) {
  Names names;
  WIDEEP_TRY(add_members(input.variables, names));
  // After input.variables, so that a request cannot replace these.
  WIDEEP_TRY(add_members(input.special_tokens, names));
  WIDEEP_TRY_ASSIGN(names["tools"], Value::from_json(input.tools));
  names["documents"] = Value();
  names["add_generation_prompt"] = input.add_generation_prompt;
  names["strftime_now"] = strftime_now(input.now);
  return names;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view text, std::string name) {
  Result<jinja::Block> block = jinja::parse_template(text);
  if (!block.ok()) return block.status().at(name);
  return ChatTemplate(std::move(name), std::move(block).value());
}

Result<std::string> ChatTemplate::render(const ChatInput& input) const {
  WIDEEP_TRY_ASSIGN(Names names, names_of(input));
  Result<std::string> text = render_with(input, CallArguments::kObjects, names);
  if (!text.ok() && has_text_arguments(input.messages)) {
    const Result<std::string> as_sent = render_with(input, CallArguments::kAsSent, names);
    if (as_sent.ok()) return as_sent;
  }
  if (!text.ok()) return text.status().at(name_);
  return text;
}

Result<std::string> ChatTemplate::render_with(const ChatInput& input, CallArguments arguments,
                                              Names names) const {
  WIDEEP_TRY_ASSIGN(names["messages"], messages_value(input.messages, arguments));
  return jinja::render_template(*block_, std::move(names));
}

}  // namespace wideep::chat
