// SPDX-License-Identifier: Apache-2.0
//
// The chat settings of a model's directory, as transformers reads them: its chat templates and the
// special tokens that they use.
//
// Templates: chat_template.jinja ("default") and additional_chat_templates/NAME.jinja; without
// these files "chat_template" of tokenizer_config.json, a text or a list of named ones. Special
// tokens: tokenizer_config.json and, for models without "added_tokens_decoder",
// special_tokens_map.json.
//
// In a GGUF file: tokenizer.chat_template, tokenizer.chat_template.NAME for those that
// tokenizer.chat_templates lists, and the tokens that tokenizer.ggml.*_token_id name.
//
// Thread safety: pure functions; a ChatTemplates is immutable once it is filled.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "chat/chat_template.h"
#include "server/answer_style.h"
#include "wideep/status.h"

namespace wideep::server {

struct ChosenTemplate {
  chat::ChatTemplate chat;
  std::shared_ptr<const AnswerStyle> style;  // never null
};

// A model's chat templates by name.
class ChatTemplates {
 public:
  // Errors (invalid input): "default" or "tool_use", which requests use unasked, cannot be parsed.
  // Another such template is an error of the requests that name it.
  Status add(const std::string& name, const std::string& text, const std::string& source);

  // Finds out how the answers to each are read; before, they are content. Errors: answer_style().
  Status find_styles(const tokenizer::Tokenizer& tokenizer, const ParserNames& names);

  bool empty() const { return by_name_.empty(); }
  bool has_default() const { return by_name_.contains("default"); }
  const std::string* default_text() const;  // null: there is none
  // "default, tool_use"
  std::string names() const;

  // name: what the request asks for; "": "tool_use", if there are tools and such a template, else
  // "default". Errors (invalid input): there is none; the message names those that there are.
  Result<ChosenTemplate> choose(const std::string& name, bool has_tools) const;

 private:
  struct Entry {
    Result<chat::ChatTemplate> chat;
    std::string text;
    std::shared_ptr<const AnswerStyle> style;
  };
  std::map<std::string, Entry> by_name_;
};

struct ChatFiles {
  ChatTemplates templates;  // empty: the model has none
  // {"bos_token": "<s>", …}: those that the model has.
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();
};

// Errors (invalid input): a file with wrong contents; ChatTemplates::add().
// model_dir: the directory, or a GGUF file.
Result<ChatFiles> read_chat_files(const std::string& model_dir);

}  // namespace wideep::server
