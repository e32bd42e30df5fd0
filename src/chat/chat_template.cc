// SPDX-License-Identifier: Apache-2.0
#include "chat/chat_template.h"

#include <array>

#include "base/try.h"
#include "chat/arguments.h"
#include "chat/template_renderer.h"

namespace wideep::chat {
namespace {

Function strftime_now(std::time_t now) {
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

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view text, std::string name) {
  Result<Block> block = parse_template(text);
  if (!block.ok()) return block.status().at(name);
  return ChatTemplate(std::move(name), std::move(block).value());
}

Result<std::string> ChatTemplate::render(const ChatInput& input) const {
  Names names;
  if (input.variables.is_object()) {
    for (const auto& [key, value] : input.variables.items()) {
      WIDEEP_TRY_ASSIGN(names[key], Value::from_json(value));
    }
  }
  WIDEEP_TRY_ASSIGN(names["messages"], Value::from_json(input.messages));
  WIDEEP_TRY_ASSIGN(names["tools"], Value::from_json(input.tools));
  // After input.variables, so that a request cannot replace these.
  names["documents"] = Value();
  names["add_generation_prompt"] = input.add_generation_prompt;
  names["bos_token"] = input.bos_token;
  names["eos_token"] = input.eos_token;
  names["strftime_now"] = strftime_now(input.now);
  const Result<std::string> text = render_template(*block_, std::move(names));
  if (!text.ok()) return text.status().at(name_);
  return text;
}

}  // namespace wideep::chat
