// SPDX-License-Identifier: Apache-2.0
//
// A model's chat template, which turns messages into a prompt of the form that the model was
// trained on.
//
// Templates are written in Jinja, with Hugging Face's settings (trim_blocks, lstrip_blocks, loop
// controls). Elements of Jinja that chat templates do not use are refused by name when the template
// is parsed.
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

#include "chat/messages.h"
#include "jinja/template_renderer.h"
#include "jinja/template_syntax.h"
#include "wideep/status.h"

namespace wideep::chat {

struct ChatInput {
  nlohmann::ordered_json messages;    // [{"role": …, "content": …}, …], as on the wire
  nlohmann::ordered_json tools;       // null: none
  nlohmann::ordered_json variables;   // further variables (chat_template_kwargs), or null
  bool add_generation_prompt = true;  // end the prompt with the start of the assistant's answer
  // The model's special tokens, each a variable: {"bos_token": "<s>", …}; null: none.
  nlohmann::ordered_json special_tokens;
  std::time_t now = std::time(nullptr);  // time for strftime_now(), which prints it as local time
};

class ChatTemplate {
 public:
  // name: the first part of error messages. Errors (invalid input): "<name>: line N: …".
  static Result<ChatTemplate> parse(std::string_view text, std::string name);

  // Arguments of tool calls that are JSON text are objects for the template. Where that fails, it
  // is rendered again with the text, for templates that put the text into theirs.
  // Errors (invalid input): the template calls raise_exception(), for example for an unexpected
  // order of roles, or an operation fails for these messages.
  Result<std::string> render(const ChatInput& input) const;

 private:
  Result<std::string> render_with(const ChatInput& input, CallArguments arguments,
                                  jinja::Names names) const;

  ChatTemplate(std::string name, jinja::Block block)
      : name_(std::move(name)), block_(std::make_shared<const jinja::Block>(std::move(block))) {}

  std::string name_;
  std::shared_ptr<const jinja::Block> block_;
};

}  // namespace wideep::chat
