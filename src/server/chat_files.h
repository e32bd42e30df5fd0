// SPDX-License-Identifier: Apache-2.0
//
// What a model's directory says about chats: chat_template.jinja, or "chat_template" in
// tokenizer_config.json (of several the one named "default"), and the special tokens it uses.
#pragma once

#include <optional>
#include <string>

#include "chat/chat_template.h"
#include "wideep/status.h"

namespace wideep::server {

struct ChatFiles {
  std::optional<chat::ChatTemplate> chat;  // nothing: the model has none
  std::string bos_token;
  std::string eos_token;
};

// Errors (invalid input): a file that is not as it should be; a template that needs what is not
// supported.
Result<ChatFiles> read_chat_files(const std::string& model_dir);

}  // namespace wideep::server
