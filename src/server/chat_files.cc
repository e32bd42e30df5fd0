// SPDX-License-Identifier: Apache-2.0
#include "server/chat_files.h"

#include <filesystem>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"

namespace wideep::server {
namespace {

using nlohmann::json;

// A text, or an object with "content".
std::string token_text(const json& config, const char* name) {
  const json token = config.value(name, json());
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object()) return token.value("content", "");
  return "";
}

// A text, or a list of {"name", "template"}.
std::string template_text(const json& config) {
  const json found = config.value("chat_template", json());
  if (found.is_string()) return found.get<std::string>();
  if (!found.is_array()) return "";
  for (const json& each : found) {
    if (each.is_object() && each.value("name", json()) == "default") {
      return each.value("template", "");
    }
  }
  return "";
}

}  // namespace

Result<ChatFiles> read_chat_files(const std::string& model_dir) {
  ChatFiles files;
  const std::string config_path = model_dir + "/tokenizer_config.json";
  const std::string template_path = model_dir + "/chat_template.jinja";
  std::string text, source = template_path;
  std::error_code absent;
  if (std::filesystem::exists(config_path, absent)) {
    WIDEEP_TRY_ASSIGN(const std::string content, formats::read_file(config_path));
    WIDEEP_TRY_ASSIGN(const json config, formats::parse_json(content, config_path));
    files.bos_token = token_text(config, "bos_token");
    files.eos_token = token_text(config, "eos_token");
    text = template_text(config);
    if (!text.empty()) source = config_path + ": chat_template";
  }
  if (std::filesystem::exists(template_path, absent)) {
    WIDEEP_TRY_ASSIGN(text, formats::read_file(template_path));
    source = template_path;
  }
  if (text.empty()) return files;
  WIDEEP_TRY_ASSIGN(files.chat, chat::ChatTemplate::parse(text, source));
  return files;
}

}  // namespace wideep::server
