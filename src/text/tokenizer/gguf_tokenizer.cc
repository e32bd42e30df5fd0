// SPDX-License-Identifier: Apache-2.0
//
// Reader reads and checks the metadata into Content. From it the parts are made directly, or a
// tokenizer.json is written for `wideep quantize`. Both take the steps around the model from
// pipeline(), which the readers of tokenizer.json understand, so that there is one reader of steps.
//
// Gemma 4 has the steps of a SentencePiece model, with merges that the file lists. Those of other
// SentencePiece models are not in the file. They are all the ways to cut a token into two others,
// ranked by its score; equal scores get equal ranks, so that the leftmost pair comes first.
#include "tokenizer/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "formats/json_text.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/gguf_patterns.h"
#include "tokenizer/pipeline_reader.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

using tensor_files::GgufFile;
using tensor_files::GgufValue;
using Json = nlohmann::ordered_json;

// Of a token that others may make: all ways to cut it are tried, which takes the square of its
// length. SentencePiece's own limit is 16 characters.
constexpr size_t kMaxMergedBytes = 1024;
constexpr std::string_view kSpace = "\xe2\x96\x81";  // ▁, SentencePiece's space

// tokenizer.ggml.token_type
enum class Kind : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Merge {
  int32_t left, right, merged, rank;
};

// What the metadata say.
struct Content {
  bool is_spm = false;        // llama and gemma4: characters, and bytes of those without a token
  bool lists_merges = false;  // gpt2 and gemma4
  std::vector<std::string> tokens;
  std::vector<Kind> kinds;
  std::vector<Merge> merges;
  GgufSplits splits;                // gpt2
  bool adds_space = false;          // llama: before every text
  std::optional<int32_t> unknown;   // llama
  std::optional<int32_t> bos, eos;  // as far as texts begin or end with them
};

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {}

  Result<Content> read() {
    Content content;
    WIDEEP_TRY_ASSIGN(const std::string model, text("model", ""));
    content.is_spm = model != "gpt2";
    content.lists_merges = model != "llama";
    if (model != "llama" && model != "gpt2" && model != "gemma4") {
      return error("model",
                   fmt::format("expected gemma4, gpt2 or llama, found {}; wideep computes no other",
                               model.empty() ? "none" : base::printable(model)));
    }
    WIDEEP_TRY(read_tokens(content));
    WIDEEP_TRY(content.lists_merges ? read_merges(content) : read_scores(content));
    if (!content.is_spm) WIDEEP_TRY(read_splits(content));
    return read_ends(std::move(content));
  }

 private:
  Status error(std::string_view key, std::string_view what) const {
    return invalid_input(fmt::format("{}: tokenizer.ggml.{}: {}", file_.path(), key, what));
  }
  const GgufValue* find(std::string_view key) const {
    return file_.find(fmt::format("tokenizer.ggml.{}", key));
  }

  Result<std::string> text(std::string_view key, std::string_view otherwise) const {
    const GgufValue* found = find(key);
    if (found == nullptr) return std::string(otherwise);
    if (!found->is_list() && found->text()) return std::string(*found->text());
    return error(key, fmt::format("expected a text, found {}", found->describe()));
  }
  Result<bool> boolean(std::string_view key, bool otherwise) const {
    const GgufValue* found = find(key);
    if (found == nullptr) return otherwise;
    if (!found->is_list() && found->boolean()) return *found->boolean();
    return error(key, fmt::format("expected a boolean, found {}", found->describe()));
  }
  // A list with an element for each token; nullptr: there is none.
  Result<const GgufValue*> list(std::string_view key, size_t size) const {
    const GgufValue* found = find(key);
    if (found == nullptr) return found;
    if (found->is_list() && found->size() == size && found->type() != GgufValue::Type::kString) {
      return found;
    }
    return error(key, fmt::format("expected a list of {} numbers, one for each token, found {}",
                                  size, found->describe()));
  }
  Result<std::optional<int32_t>> token_id(std::string_view key, size_t num_tokens) const {
    const GgufValue* found = find(key);
    if (found == nullptr) return std::optional<int32_t>();
    const int64_t id = found->is_list() ? -1 : found->integer().value_or(-1);
    // Some files write 2^32 − 1 for none.
    if (id == 0xffffffff) return std::optional<int32_t>();
    if (id >= 0 && id < static_cast<int64_t>(num_tokens)) {
      return std::optional(static_cast<int32_t>(id));
    }
    return error(key, fmt::format("expected a token from 0 to {}, found {}", num_tokens - 1,
                                  id < 0 ? found->describe() : std::to_string(id)));
  }

  Status read_tokens(Content& content) {
    const GgufValue* tokens = find("tokens");
    if (tokens == nullptr || !tokens->is_list() || tokens->type() != GgufValue::Type::kString ||
        tokens->size() == 0) {
      return error("tokens", fmt::format("expected a list of texts, found {}",
                                         tokens == nullptr ? "none" : tokens->describe()));
    }
    const size_t count = tokens->size();
    if (count > static_cast<size_t>(kMaxTokenId)) {
      return error("tokens", fmt::format("expected at most {}, found {}", kMaxTokenId, count));
    }
    WIDEEP_TRY_ASSIGN(const GgufValue* kinds, list("token_type", count));
    for (size_t i = 0; i < count; ++i) {
      // llama.cpp's name for an empty one, which no text contains.
      const std::string_view token = *tokens->text(i);
      content.tokens.push_back(token.empty() ? fmt::format("[EMPTY_{}]", i) : std::string(token));
      const int64_t kind = kinds == nullptr ? 1 : kinds->integer(i).value_or(0);
      if (kind < 1 || kind > 6) {
        return error("token_type", fmt::format("expected 1 to 6, found {} for token {}", kind, i));
      }
      content.kinds.push_back(static_cast<Kind>(kind));
      const auto [at, is_new] = ids_.emplace(content.tokens.back(), static_cast<int32_t>(i));
      if (is_new) continue;
      return error("tokens",
                   fmt::format("'{}' is token {} and token {}",
                               base::printable(content.tokens.back(), 60), at->second, i));
    }
    return {};
  }

  std::optional<int32_t> id_of(std::string_view token) const {
    const auto found = ids_.find(std::string(token));
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }

  Status read_merges(Content& content) {
    const GgufValue* merges = find("merges");
    const bool is_list = merges != nullptr && merges->is_list();
    if (!is_list || (merges->size() > 0 && merges->type() != GgufValue::Type::kString)) {
      return error("merges", fmt::format("expected a list of texts, found {}",
                                         merges == nullptr ? "none" : merges->describe()));
    }
    for (size_t i = 0; i < merges->size(); ++i) {
      const std::string_view merge = *merges->text(i);
      // A token may itself begin with a space, which byte-level tokens do not.
      const size_t space = merge.find(' ', 1);
      const auto left = space == merge.npos ? std::nullopt : id_of(merge.substr(0, space));
      const auto right = space == merge.npos ? std::nullopt : id_of(merge.substr(space + 1));
      const auto merged =
          left && right
              ? id_of(std::string(merge.substr(0, space)) + std::string(merge.substr(space + 1)))
              : std::nullopt;
      if (!merged) {
        return error("merges",
                     fmt::format("[{}]: expected two tokens that make a token, found '{}'", i,
                                 base::printable(merge, 60)));
      }
      content.merges.push_back({*left, *right, *merged, static_cast<int32_t>(i)});
    }
    return {};
  }

  // Every way to make a token of two others, ranked by the token's score.
  Status read_scores(Content& content) {
    const size_t count = content.tokens.size();
    WIDEEP_TRY_ASSIGN(const GgufValue* scores, list("scores", count));
    if (scores == nullptr) return error("scores", "missing");
    const auto merges = [&](size_t id) {
      return content.kinds[id] == Kind::kNormal || content.kinds[id] == Kind::kUserDefined ||
             content.kinds[id] == Kind::kUnused;
    };
    std::vector<int32_t> by_score;
    for (size_t i = 0; i < count; ++i) {
      if (merges(i)) by_score.push_back(static_cast<int32_t>(i));
    }
    const auto score = [&](int32_t id) {
      const double found = scores->number(static_cast<size_t>(id)).value_or(0.0);
      return std::isnan(found) ? -std::numeric_limits<double>::infinity() : found;
    };
    std::ranges::sort(by_score, [&](int32_t a, int32_t b) {
      return std::pair(-score(a), a) < std::pair(-score(b), b);
    });
    int32_t rank = 0;
    for (size_t i = 0; i < by_score.size(); ++i) {
      if (i > 0 && score(by_score[i]) != score(by_score[i - 1])) ++rank;
      const std::string& token = content.tokens[static_cast<size_t>(by_score[i])];
      if (token.size() > kMaxMergedBytes) {
        return error("tokens", fmt::format("expected texts of at most {} bytes, found {} for token "
                                           "{}",
                                           kMaxMergedBytes, token.size(), by_score[i]));
      }
      for (size_t at = 1; at < token.size(); ++at) {
        if ((static_cast<unsigned char>(token[at]) & 0xc0) == 0x80) continue;  // inside a character
        const auto left = id_of(std::string_view(token).substr(0, at));
        const auto right = id_of(std::string_view(token).substr(at));
        if (!left || !right || !merges(static_cast<size_t>(*left)) ||
            !merges(static_cast<size_t>(*right))) {
          continue;
        }
        content.merges.push_back({*left, *right, by_score[i], rank});
      }
    }
    return {};
  }

  Status read_splits(Content& content) {
    WIDEEP_TRY_ASSIGN(const std::string pre, text("pre", "default"));
    const GgufSplits* splits = find_splits(pre);
    if (splits == nullptr) {
      return error("pre", fmt::format("{} is not supported; supported: {}", base::printable(pre),
                                      known_splits()));
    }
    content.splits = *splits;
    return {};
  }

  Result<Content> read_ends(Content content) {
    const size_t count = content.tokens.size();
    const bool is_llama = content.is_spm && !content.lists_merges;
    WIDEEP_TRY_ASSIGN(content.adds_space, boolean("add_space_prefix", is_llama));
    WIDEEP_TRY_ASSIGN(const bool begins,
                      boolean("add_bos_token", content.is_spm || content.splits.begins));
    WIDEEP_TRY_ASSIGN(const bool ends, boolean("add_eos_token", false));
    WIDEEP_TRY_ASSIGN(content.bos, token_id("bos_token_id", count));
    WIDEEP_TRY_ASSIGN(content.eos, token_id("eos_token_id", count));
    if (!begins) content.bos.reset();
    if (!ends) content.eos.reset();
    if (!content.is_spm) return content;
    WIDEEP_TRY_ASSIGN(content.unknown, token_id("unknown_token_id", count));
    const auto marked = std::ranges::find(content.kinds, Kind::kUnknown);
    if (!content.unknown && marked != content.kinds.end()) {
      content.unknown = static_cast<int32_t>(marked - content.kinds.begin());
    }
    return content;
  }

  const GgufFile& file_;
  std::unordered_map<std::string, int32_t> ids_;
};

// ---- the pipeline around the model, as a tokenizer.json has it ----

Json split_step(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Json pipeline(const Content& content) {
  if (!content.is_spm) {
    Json steps = Json::array();
    for (const std::string_view pattern : content.splits.patterns) {
      steps.push_back(split_step(pattern));
    }
    const Json bytes = {{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", true},
                        {"use_regex", false}};
    steps.push_back(bytes);
    return {{"normalizer", nullptr},
            {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
            {"decoder", bytes}};
  }
  Json normalizers = Json::array();
  if (content.adds_space) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
  normalizers.push_back(replace);
  Json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (content.adds_space) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
          {"pre_tokenizer", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}}};
}

// ---- the parts ----

bool is_added(Kind kind) { return kind == Kind::kControl || kind == Kind::kUserDefined; }

std::vector<AddedToken> added_tokens(const Content& content) {
  std::vector<AddedToken> added;
  for (size_t i = 0; i < content.tokens.size(); ++i) {
    // No text contains bytes that are not UTF-8.
    if (!is_added(content.kinds[i]) || !is_valid_utf8(content.tokens[i])) continue;
    added.push_back({.id = static_cast<int32_t>(i),
                     .content = content.tokens[i],
                     .special = content.kinds[i] == Kind::kControl});
  }
  return added;
}

Result<Vocabulary> vocabulary_of(const Content& content, const std::string& path) {
  Vocabulary vocabulary;
  for (size_t i = 0; i < content.tokens.size(); ++i) {
    const Kind kind = content.kinds[i];
    const Status added =
        vocabulary.add(content.tokens[i], static_cast<int64_t>(i),
                       is_added(kind) || kind == Kind::kUnused ? Origin::kAdded : Origin::kModel);
    if (!added.ok()) return added.at(path + ": tokenizer.ggml.tokens");
    const auto id = static_cast<int32_t>(i);
    // The steps of its decoder are on text.
    if (content.is_spm && !is_valid_utf8(content.tokens[i])) {
      vocabulary.set_written(id, replace_invalid_utf8(content.tokens[i]));
    }
    // Written as they are, not in the byte-level alphabet.
    if (!content.is_spm && is_added(kind)) vocabulary.set_bytes(id, content.tokens[i]);
    if (kind == Kind::kControl || kind == Kind::kUnknown) vocabulary.mark_special(id);
  }
  return vocabulary;
}

Result<Symbols> symbols_of(const Content& content, const Vocabulary& vocabulary,
                           const std::string& path) {
  Symbols::ByteIds bytes{};
  for (size_t byte = 0; byte < bytes.size(); ++byte) {
    const std::string token = content.is_spm
                                  ? fmt::format("<0x{:02X}>", byte)
                                  : std::string(byte_level_char(static_cast<uint8_t>(byte)));
    const std::optional<int32_t> id = vocabulary.find(token);
    // Valid UTF-8 has no such bytes, and many vocabularies no tokens for them.
    const bool never = byte == 0xc0 || byte == 0xc1 || byte >= 0xf5;
    if (!id && !content.is_spm && !never) {
      return invalid_input(fmt::format(
          "{}: tokenizer.ggml.tokens: no token for the byte 0x{:02X} ('{}')", path, byte, token));
    }
    bytes[byte] = id.value_or(Symbols::kNone);
  }
  if (!content.is_spm) return Symbols(bytes);
  const bool has_all = std::ranges::find(bytes, Symbols::kNone) == bytes.end();
  if (!has_all && !content.unknown) {
    return invalid_input(fmt::format(
        "{}: tokenizer.ggml.tokens: expected tokens '<0x00>' to '<0xFF>', or an unknown token, "
        "found neither: characters without a token would be left out",
        path));
  }
  Symbols::Characters characters{.near = std::vector<int32_t>(0x10000, Symbols::kNone)};
  characters.fallback = bytes;
  if (!has_all) characters.fallback.fill(Symbols::kNone);
  if (content.unknown) characters.unknown = *content.unknown;
  for (size_t i = 0; i < content.tokens.size(); ++i) {
    const std::string& token = content.tokens[i];
    if (!is_valid_utf8(token) || first_unit(token).bytes != token.size()) continue;
    if (content.kinds[i] == Kind::kControl) continue;
    const char32_t character = first_code_point(token);
    if (character < characters.near.size()) {
      characters.near[character] = static_cast<int32_t>(i);
    } else {
      characters.far[character] = static_cast<int32_t>(i);
    }
  }
  return Symbols(std::move(characters));
}

}  // namespace

bool has_gguf_tokenizer(const GgufFile& file) {
  return file.find("tokenizer.ggml.tokens") != nullptr;
}

Result<std::shared_ptr<const TokenizerParts>> read_gguf_tokenizer(const GgufFile& file) {
  WIDEEP_TRY_ASSIGN(const Content content, Reader(file).read());
  const std::string& path = file.path();
  WIDEEP_TRY_ASSIGN(Vocabulary vocabulary, vocabulary_of(content, path));
  WIDEEP_TRY_ASSIGN(Symbols symbols, symbols_of(content, vocabulary, path));
  MergeTable table(content.merges.size());
  for (const Merge& merge : content.merges) {
    table.set(merge.left, merge.right, {merge.rank, merge.merged});
  }
  const nlohmann::json steps = pipeline(content);
  formats::Complaint complaint(path + ": tokenizer.ggml");
  const Component root(&steps, "", &complaint);
  Normalizer normalizer = read_normalizer(root);
  PreTokenizer pre_tokenizer = read_pre_tokenizer(root);
  Decoder decoder = read_decoder(root);
  WIDEEP_TRY(root.status());
  if (!decoder.is_bytes()) {
    for (int32_t id = 0; id < vocabulary.id_limit(); ++id) {
      vocabulary.set_bytes(id, decoder.bytes_of(vocabulary.written(id)));
    }
  }
  PostProcessor ends;
  if (content.bos) ends.before = {*content.bos};
  if (content.eos) ends.after = {*content.eos};
  return std::make_shared<const TokenizerParts>(
      TokenizerParts{.run_limits = std::nullopt,
                     .added_as_written = AddedTokenFinder(added_tokens(content)),
                     .normalizer = std::move(normalizer),
                     .added_normalized = {},
                     .pre_tokenizer = std::move(pre_tokenizer),
                     .ignore_merges = content.splits.ignores_merges,
                     .bpe = Bpe(std::move(symbols), std::move(table)),
                     .post_processor = std::move(ends),
                     .decoder = std::move(decoder),
                     .vocabulary = std::move(vocabulary),
                     .notes = {}});
}

Result<std::string> gguf_tokenizer_json(const GgufFile& file) {
  WIDEEP_TRY_ASSIGN(const Content content, Reader(file).read());
  Json json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  Json added = Json::array();
  for (const AddedToken& token : added_tokens(content)) {
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", token.special}});
  }
  json["added_tokens"] = added;
  json.update(pipeline(content));
  Json processors = nullptr;
  if (content.bos || content.eos) {
    Json single = Json::array(), specials = Json::object();
    const auto add = [&](const std::optional<int32_t>& id) {
      if (!id) return;
      const std::string& token = content.tokens[static_cast<size_t>(*id)];
      single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
      specials[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
    };
    add(content.bos);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    add(content.eos);
    processors = {{"type", "TemplateProcessing"},
                  {"single", single},
                  {"pair", single},
                  {"special_tokens", specials}};
  }
  json["post_processor"] = processors;
  Json vocab = Json::object(), merges = Json::array();
  for (size_t i = 0; i < content.tokens.size(); ++i) vocab[content.tokens[i]] = i;
  for (const Merge& merge : content.merges) {
    merges.push_back({content.tokens[static_cast<size_t>(merge.left)],
                      content.tokens[static_cast<size_t>(merge.right)]});
  }
  json["model"] = {
      {"type", "BPE"},
      {"unk_token", content.unknown ? Json(content.tokens[static_cast<size_t>(*content.unknown)])
                                    : Json(nullptr)},
      {"fuse_unk", content.is_spm},
      {"byte_fallback", content.is_spm},
      {"ignore_merges", content.splits.ignores_merges},
      {"vocab", vocab},
      {"merges", merges}};
  return formats::json_text(json) + "\n";
}

}  // namespace wideep::tokenizer
