// SPDX-License-Identifier: Apache-2.0
//
// A model's chat template: messages in, the prompt that the model was trained on out.
//
// Templates are Jinja's, as Hugging Face runs them (trim_blocks, lstrip_blocks, loop controls).
// What Jinja has and templates do not use is refused by name when the template is read.
//
//   WIDEEP_TRY_ASSIGN(auto chat, ChatTemplate::parse(text, "chat_template.jinja"));
//   WIDEEP_TRY_ASSIGN(std::string prompt, chat.render({.messages = messages, …}));
//
// Thread safety: immutable; render() may run on several threads.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "chat/template_syntax.h"
#include "wideep/status.h"

namespace wideep::chat {

struct ChatInput {
  nlohmann::ordered_json messages;    // [{"role": …, "content": …}, …]
  nlohmann::ordered_json tools;       // null: none
  nlohmann::ordered_json variables;   // more names for the template (chat_template_kwargs), or null
  bool add_generation_prompt = true;  // ends where the assistant's answer begins
  std::string bos_token;
  std::string eos_token;
  std::time_t now = std::time(nullptr);  // of strftime_now(), in local time
};

class ChatTemplate {
 public:
  // name: begins messages. Errors (invalid input): "<name>: line N: …".
  static Result<ChatTemplate> parse(std::string_view text, std::string name);

  // Errors (invalid input): what the template raises (an order of roles that it does not know,
  // say), or cannot do with these messages.
  Result<std::string> render(const ChatInput& input) const;

 private:
  ChatTemplate(std::string name, Block block)
      : name_(std::move(name)), block_(std::make_shared<const Block>(std::move(block))) {}

  std::string name_;
  std::shared_ptr<const Block> block_;
};

}  // namespace wideep::chat
