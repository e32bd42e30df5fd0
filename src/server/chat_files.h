// SPDX-License-Identifier: Apache-2.0
//
// The chat settings of a model's directory: chat_template.jinja, or "chat_template" in
// tokenizer_config.json (of several the one named "default"), and the special tokens it uses.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string>

#include "chat/chat_template.h"
#include "wideep/status.h"

namespace wideep::server {

struct ChatFiles {
  std::optional<chat::ChatTemplate> chat;  // nullopt: the model has none
  std::string bos_token;
  std::string eos_token;
};

// Errors (invalid input): a file with wrong contents; a template that uses unsupported features.
Result<ChatFiles> read_chat_files(const std::string& model_dir);

}  // namespace wideep::server
