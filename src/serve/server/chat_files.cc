// SPDX-License-Identifier: Apache-2.0
//
// Precedence is transformers': files of templates replace all of the configuration's, and
// special_tokens_map.json counts only where the configuration has no added_tokens_decoder. A
// template that cannot be parsed stops the start only if requests use it unasked; any other is an
// error of those that name it, so that an odd file keeps no model from being served.
#include "server/chat_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/printable.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/json_parse.h"
#include "tensor_files/gguf.h"

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

// A text, or an object with "content"; null: none.
Result<std::string> token_text(const json& token, const std::string& where) {
  if (token.is_null()) return std::string();
  const json& content = token.is_object() ? member(token, "content") : token;
  if (content.is_string()) return content.get<std::string>();
  return unexpected(where + (token.is_object() ? ".content" : ""), "a text", content);
}

Result<std::vector<std::string>> token_texts(const json& tokens, const std::string& where) {
  if (!tokens.is_array()) return unexpected(where, "a list of texts", tokens);
  std::vector<std::string> texts;
  for (size_t i = 0; i < tokens.size(); ++i) {
    WIDEEP_TRY_ASSIGN(std::string text, token_text(tokens[i], fmt::format("{}[{}]", where, i)));
    texts.push_back(std::move(text));
  }
  return texts;
}

// Takes the tokens of one file; a later file replaces those of an earlier one.
Status read_special_tokens(const json& object, const std::string& path,
                           nlohmann::ordered_json& tokens) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const auto found = object.find(name);
    if (found == object.end()) continue;
    WIDEEP_TRY_ASSIGN(const std::string text, token_text(*found, path + ": " + name));
    tokens.erase(name);
    if (!found->is_null()) tokens[name] = text;
  }
  constexpr const char* kMore = "additional_special_tokens";
  if (const json& more = member(object, kMore); !more.is_null()) {
    WIDEEP_TRY_ASSIGN(tokens[kMore], token_texts(more, path + ": " + kMore));
  }
  return {};
}

// A text, or a list of {"name", "template"}.
Status add_templates(const json& config, const std::string& path, ChatTemplates& templates) {
  const json& found = member(config, "chat_template");
  const std::string where = path + ": chat_template";
  if (found.is_null()) return {};
  if (found.is_string()) return templates.add("default", found.get<std::string>(), where);
  if (!found.is_array()) {
    return unexpected(where, R"(a text or a list of {"name", "template"})", found);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string entry = fmt::format("{}[{}]", where, i);
    if (!found[i].is_object()) return unexpected(entry, R"({"name", "template"})", found[i]);
    for (const char* key : {"name", "template"}) {
      const json& value = member(found[i], key);
      if (!value.is_string()) return unexpected(entry + "." + key, "a text", value);
    }
    WIDEEP_TRY(templates.add(found[i]["name"].get<std::string>(),
                             found[i]["template"].get<std::string>(), entry));
  }
  return {};
}

bool exists(const std::string& path) {
  std::error_code absent;
  return std::filesystem::exists(path, absent);
}

// The object in a file; empty if there is no such file.
Result<json> read_object(const std::string& path) {
  if (!exists(path)) return json::object();
  WIDEEP_TRY_ASSIGN(const std::string content, formats::read_file(path));
  WIDEEP_TRY_ASSIGN(json object, formats::parse_json(content, path));
  if (!object.is_object()) return unexpected(path, "an object", object);
  return object;
}

// ---- GGUF ----

Status add_gguf_template(const tensor_files::GgufFile& file, const std::string& name,
                         const std::string& key, ChatTemplates& templates) {
  const tensor_files::GgufValue* found = file.find(key);
  if (found == nullptr) return {};
  const std::string where = fmt::format("{}: {}", file.path(), base::printable(key));
  if (!found->is_list() && found->text()) {
    return templates.add(name, std::string(*found->text()), where);
  }
  return invalid_input(fmt::format("{}: expected a text, found {}", where, found->describe()));
}

// The ids are checked by the tokenizer's reader; one that is no token is left out.
void read_gguf_tokens(const tensor_files::GgufFile& file, nlohmann::ordered_json& tokens) {
  const tensor_files::GgufValue* texts = file.find("tokenizer.ggml.tokens");
  if (texts == nullptr) return;
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"bos_token", "bos_token_id"},     {"eos_token", "eos_token_id"},
      {"unk_token", "unknown_token_id"}, {"sep_token", "seperator_token_id"},
      {"pad_token", "padding_token_id"}, {"cls_token", "cls_token_id"},
      {"mask_token", "mask_token_id"}};
  for (const auto& [name, key] : kNames) {
    const tensor_files::GgufValue* id = file.find(fmt::format("tokenizer.ggml.{}", key));
    const int64_t index = id == nullptr || id->is_list() ? -1 : id->integer().value_or(-1);
    if (index < 0 || index >= static_cast<int64_t>(texts->size())) continue;
    if (const auto text = texts->text(static_cast<size_t>(index))) tokens[name] = *text;
  }
}

Result<ChatFiles> read_gguf_chat(const std::string& path) {
  WIDEEP_TRY_ASSIGN(const tensor_files::GgufFiles all, tensor_files::GgufFiles::open(path));
  const tensor_files::GgufFile& file = all.first();
  ChatFiles files;
  constexpr const char* kKey = "tokenizer.chat_template";
  WIDEEP_TRY(add_gguf_template(file, "default", kKey, files.templates));
  if (const tensor_files::GgufValue* names = file.find("tokenizer.chat_templates")) {
    for (size_t i = 0; i < names->size(); ++i) {
      const auto text = names->text(i);
      if (!names->is_list() || !text) {
        return invalid_input(
            fmt::format("{}: tokenizer.chat_templates: expected a list of texts, found {}",
                        file.path(), names->describe()));
      }
      const std::string name(*text);
      WIDEEP_TRY(add_gguf_template(file, name, fmt::format("{}.{}", kKey, name), files.templates));
    }
  }
  read_gguf_tokens(file, files.special_tokens);
  return files;
}

Status add_template_files(const std::string& model_dir, ChatTemplates& templates) {
  std::vector<std::pair<std::string, std::string>> files;  // name, path
  const std::string main_path = model_dir + "/chat_template.jinja";
  if (exists(main_path)) files.emplace_back("default", main_path);
  std::error_code absent;
  for (const auto& file :
       std::filesystem::directory_iterator(model_dir + "/additional_chat_templates", absent)) {
    if (file.path().extension() != ".jinja") continue;
    files.emplace_back(file.path().stem().string(), file.path().string());
  }
  for (const auto& [name, path] : files) {
    WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(path));
    WIDEEP_TRY(templates.add(name, text, path));
  }
  return {};
}

}  // namespace

Status ChatTemplates::add(const std::string& name, const std::string& text,
                          const std::string& source) {
  if (text.empty()) return {};  // as if there were none
  Result<chat::ChatTemplate> parsed = chat::ChatTemplate::parse(text, source);
  const bool used_unasked = name == "default" || name == "tool_use";
  if (used_unasked && !parsed.ok()) return parsed.status();
  by_name_.insert_or_assign(name, Entry{.chat = std::move(parsed),
                                        .text = text,
                                        .style = std::make_shared<const AnswerStyle>()});
  return {};
}

const std::string* ChatTemplates::default_text() const {
  const auto found = by_name_.find("default");
  return found == by_name_.end() ? nullptr : &found->second.text;
}

Status ChatTemplates::find_styles(const tokenizer::Tokenizer& tokenizer, const ParserNames& names) {
  for (auto& [name, entry] : by_name_) {
    WIDEEP_TRY_ASSIGN(AnswerStyle style, answer_style(entry.text, tokenizer, names));
    entry.style = std::make_shared<const AnswerStyle>(std::move(style));
  }
  return {};
}

std::string ChatTemplates::names() const {
  std::string all;
  for (const auto& [name, entry] : by_name_) all += (all.empty() ? "" : ", ") + name;
  return all;
}

Result<ChosenTemplate> ChatTemplates::choose(const std::string& name, bool has_tools) const {
  if (empty()) return invalid_input("this model has no chat template; use /v1/completions");
  const bool for_tools = name.empty() && has_tools && by_name_.contains("tool_use");
  const auto found = by_name_.find(!name.empty() ? name : for_tools ? "tool_use" : "default");
  if (found != by_name_.end()) {
    WIDEEP_TRY_ASSIGN(chat::ChatTemplate chat, found->second.chat);
    return ChosenTemplate{.chat = std::move(chat), .style = found->second.style};
  }
  return invalid_input(
      name.empty() ? fmt::format("this model has no chat template named 'default'; name one with "
                                 "\"chat_template\": {}",
                                 names())
                   : fmt::format("this model has no chat template '{}', only: {}", name, names()));
}

Result<ChatFiles> read_chat_files(const std::string& model_dir) {
  if (tensor_files::is_gguf(model_dir)) return read_gguf_chat(model_dir);
  ChatFiles files;
  const std::string config_path = model_dir + "/tokenizer_config.json";
  WIDEEP_TRY_ASSIGN(const json config, read_object(config_path));
  WIDEEP_TRY(read_special_tokens(config, config_path, files.special_tokens));
  if (!config.contains("added_tokens_decoder")) {
    const std::string map_path = model_dir + "/special_tokens_map.json";
    WIDEEP_TRY_ASSIGN(const json map, read_object(map_path));
    WIDEEP_TRY(read_special_tokens(map, map_path, files.special_tokens));
  }
  WIDEEP_TRY(add_template_files(model_dir, files.templates));
  if (files.templates.empty()) WIDEEP_TRY(add_templates(config, config_path, files.templates));
  return files;
}

}  // namespace wideep::server
