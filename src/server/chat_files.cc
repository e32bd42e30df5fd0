// SPDX-License-Identifier: Apache-2.0
#include "server/chat_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"

namespace wideep::server {
namespace {

using nlohmann::json;

Status unexpected(const std::string& where, std::string_view expected, const json& found) {
  return invalid_input(
      fmt::format("{}: expected {}, found {}", where, expected, formats::describe(found)));
}

// The member, or null if it is absent.
const json& member(const json& object, const char* name) {
  static const json kAbsent;
  const auto found = object.find(name);
  return found == object.end() ? kAbsent : *found;
}

// A text, or an object with "content".
Result<std::string> token_text(const json& config, const char* name, const std::string& path) {
  const json& token = member(config, name);
  if (token.is_null()) return std::string();
  const json& content = token.is_object() ? member(token, "content") : token;
  if (content.is_string()) return content.get<std::string>();
  return unexpected(fmt::format("{}: {}{}", path, name, token.is_object() ? ".content" : ""),
                    "a text", content);
}

// A text, or a list of {"name", "template"}.
Result<std::string> template_text(const json& config, const std::string& path) {
  const json& found = member(config, "chat_template");
  const std::string where = path + ": chat_template";
  if (found.is_null()) return std::string();
  if (found.is_string()) return found.get<std::string>();
  if (!found.is_array()) {
    return unexpected(where, R"(a text or a list of {"name", "template"})", found);
  }
  std::string text;
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string entry = fmt::format("{}[{}]", where, i);
    if (!found[i].is_object()) return unexpected(entry, R"({"name", "template"})", found[i]);
    for (const char* key : {"name", "template"}) {
      const json& value = member(found[i], key);
      if (!value.is_string()) return unexpected(entry + "." + key, "a text", value);
    }
    if (found[i]["name"] == "default") text = found[i]["template"].get<std::string>();
  }
  return text;
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
    if (!config.is_object()) return unexpected(config_path, "an object", config);
    WIDEEP_TRY_ASSIGN(files.bos_token, token_text(config, "bos_token", config_path));
    WIDEEP_TRY_ASSIGN(files.eos_token, token_text(config, "eos_token", config_path));
    WIDEEP_TRY_ASSIGN(text, template_text(config, config_path));
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
