// SPDX-License-Identifier: Apache-2.0
//
// The files beside tokenizer.json, in transformers' order: tokenizer_config.json decides which
// others count. Without added_tokens_decoder these are the older ones, in which a token is special
// because it has a name, so names are read before tokens. What is found is only listed here;
// AddedTokenReader gives ids and refuses other ones.
#include "tokenizer/more_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "base/printable.h"
#include "base/try.h"
#include "formats/json.h"
#include "formats/json_parse.h"
#include "tokenizer/vocabulary.h"

namespace wideep::tokenizer {
namespace {

using formats::JsonDocument;
using formats::JsonObject;

constexpr const char* kDecoder = "added_tokens_decoder";
constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                  "pad_token", "cls_token", "mask_token"};
constexpr const char* kLists[] = {"additional_special_tokens", "extra_special_tokens"};

Result<std::optional<JsonDocument>> read_if_there(const std::string& path) {
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return std::optional<JsonDocument>();
  WIDEEP_TRY_ASSIGN(JsonDocument document, JsonDocument::read(path));
  return std::optional(std::move(document));
}

// A flag that is absent has the library's default.
AddedToken token_of(const JsonObject& object) {
  const bool special = object.boolean_or("special", false);
  return {.content = object.string("content"),
          .single_word = object.boolean_or("single_word", false),
          .lstrip = object.boolean_or("lstrip", false),
          .rstrip = object.boolean_or("rstrip", false),
          .normalized = object.boolean_or("normalized", !special),
          .special = special};
}

// The tokens of added_tokens_decoder, by id.
std::map<int32_t, AddedToken> decoder_tokens(const JsonObject& root) {
  std::map<int32_t, AddedToken> tokens;
  const JsonObject decoder = root.object(kDecoder);
  for (const std::string& key : decoder.keys()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id > kMaxTokenId) {
      decoder.complain(key, fmt::format("expected a token id from 0 to {}", kMaxTokenId));
      continue;
    }
    tokens[id] = token_of(decoder.object(key));
  }
  return tokens;
}

// A special token by its name is a text, or an object with flags.
class NamedTokens {
 public:
  // Later files replace what earlier ones say about a name.
  void read(const JsonObject& root, const std::string& file) {
    for (const char* name : kNames) {
      if (!root.has(name)) continue;
      by_name_[name] = {file, {}, token_at(root, name, root.raw().at(name)), true};
    }
    for (const char* name : kLists) read_list(root, name, file);
  }

  std::string content(const char* name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? "" : found->second.token.content;
  }

  bool contains(const std::string& content) const {
    const std::vector<MoreToken> tokens = all();
    return std::any_of(tokens.begin(), tokens.end(),
                       [&](const MoreToken& named) { return named.token.content == content; });
  }

  std::vector<MoreToken> all() const {
    std::vector<MoreToken> tokens;
    for (const char* name : kNames) {
      const auto found = by_name_.find(name);
      if (found != by_name_.end()) tokens.push_back(found->second);
    }
    tokens.insert(tokens.end(), listed_.begin(), listed_.end());
    return tokens;
  }

 private:
  static AddedToken token_at(const JsonObject& root, const std::string& key,
                             const nlohmann::json& value) {
    AddedToken token;
    if (value.is_object()) {
      formats::Complaint ignored("");  // a missing content is reported below, by its key
      token = token_of(JsonObject(&value, key, &ignored));
    } else if (value.is_string()) {
      token.content = value.get<std::string>();
    }
    if (token.content.empty()) {
      root.complain(key, "expected a token: a text, or an object with content, found " +
                             formats::describe(value));
    }
    token.special = true;
    return token;
  }

  void read_list(const JsonObject& root, const char* name, const std::string& file) {
    if (!root.has(name) || !root.raw().at(name).is_array()) return;
    for (const nlohmann::json& value : root.raw().at(name)) {
      listed_.push_back({file, {}, token_at(root, name, value), true});
    }
  }

  std::map<std::string, MoreToken> by_name_;
  std::vector<MoreToken> listed_;
};

// added_tokens.json: {"text": id}. A token is special if it has a name.
std::vector<MoreToken> legacy_tokens(const JsonObject& root, const std::string& file,
                                     const NamedTokens& named) {
  std::map<int32_t, MoreToken> by_id;
  for (const std::string& text : root.keys()) {
    const auto id = static_cast<int32_t>(root.integer(text, {.min = 0, .max = kMaxTokenId}));
    const bool special = named.contains(text);
    by_id[id] = {file, id, {.content = text, .normalized = !special, .special = special}};
  }
  std::vector<MoreToken> tokens;
  for (auto& [id, token] : by_id) tokens.push_back(std::move(token));
  return tokens;
}

// The classes of transformers 4.57 that replace the post-processor.
struct ReplacingClass {
  const char* name;  // "Fast" may follow
  bool adds_bos;     // without add_bos_token
  const char* bos;   // without bos_token
};
constexpr ReplacingClass kReplacingClasses[] = {{"LlamaTokenizer", true, "<s>"},
                                                {"CodeLlamaTokenizer", true, "<s>"},
                                                {"GemmaTokenizer", true, "<bos>"},
                                                {"CohereTokenizer", true, "<BOS_TOKEN>"},
                                                {"GPTNeoXTokenizer", false, "<|endoftext|>"}};

std::optional<bool> flag_of(const JsonObject& root, const char* key) {
  if (!root.has(key)) return {};
  return root.boolean_or(key, false);
}

TextEnds read_ends(const JsonObject& root, const std::string& file, const NamedTokens& named) {
  TextEnds ends{.file = file, .tokenizer_class = root.string_or("tokenizer_class", "")};
  ends.before.asks = flag_of(root, "add_bos_token");
  ends.after.asks = flag_of(root, "add_eos_token");
  ends.before.content = named.content("bos_token");
  ends.after.content = named.content("eos_token");
  std::string_view name = ends.tokenizer_class;
  if (name.ends_with("Fast")) name.remove_suffix(4);
  for (const ReplacingClass& each : kReplacingClasses) {
    if (name != each.name) continue;
    ends.replaces = true;
    ends.before.by_default = each.adds_bos;
    if (ends.before.content.empty()) ends.before.content = each.bos;
  }
  return ends;
}

}  // namespace

Result<OtherFiles> read_other_files(const std::string& model_dir) {
  const std::string config_file = model_dir + "/tokenizer_config.json";
  WIDEEP_TRY_ASSIGN(const auto config, read_if_there(config_file));
  NamedTokens named;
  std::vector<MoreToken> tokens;
  if (config) named.read(config->root(), config_file);
  if (config && config->root().has(kDecoder)) {
    for (auto& [id, token] : decoder_tokens(config->root())) {
      tokens.push_back({config_file, id, token});
    }
  } else {
    const std::string map_file = model_dir + "/special_tokens_map.json";
    WIDEEP_TRY_ASSIGN(const auto map, read_if_there(map_file));
    if (map) {
      named.read(map->root(), map_file);
      WIDEEP_TRY(map->status());
    }
    const std::string legacy_file = model_dir + "/added_tokens.json";
    WIDEEP_TRY_ASSIGN(const auto legacy, read_if_there(legacy_file));
    if (legacy) {
      tokens = legacy_tokens(legacy->root(), legacy_file, named);
      WIDEEP_TRY(legacy->status());
    }
  }
  TextEnds ends;
  if (config) ends = read_ends(config->root(), config_file, named);
  if (config) WIDEEP_TRY(config->status());
  for (MoreToken& token : tokens) token.token.special |= named.contains(token.token.content);
  for (MoreToken& token : named.all()) tokens.push_back(std::move(token));
  return OtherFiles{std::move(tokens), std::move(ends)};
}

}  // namespace wideep::tokenizer
