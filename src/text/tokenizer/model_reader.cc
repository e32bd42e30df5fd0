// SPDX-License-Identifier: Apache-2.0
//
// Options → vocabulary → symbols → merges, each only if what came before was right, since merges
// are numbers of the vocabulary. What makes a BPE total is checked here: every byte, or every
// character, must end in some token, for otherwise a text would lose characters silently.
#include "tokenizer/model_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "formats/json_parse.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

using nlohmann::json;

// Whether the option is absent, null, or has the value with which it has no effect.
bool is_off(const Component& model, std::string_view key, const json& off) {
  return !model.has(key) || model.raw().at(std::string(key)) == off;
}

void check_options(const Component& model) {
  // Files of old libraries have no type; "merges" is what only BPE has.
  const bool untyped_bpe = !model.has("type") && model.has("merges");
  model.expect(untyped_bpe || model.type() == "BPE", "type", "'BPE'");
  model.allow_keys({"type", "dropout", "unk_token", "continuing_subword_prefix",
                    "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                    "merges"});
  model.expect(is_off(model, "dropout", 0), "dropout", "null");
  model.expect(is_off(model, "continuing_subword_prefix", ""), "continuing_subword_prefix", "null");
  model.expect(is_off(model, "end_of_word_suffix", ""), "end_of_word_suffix", "null");
  // These three affect only characters without a token, of which a byte-level vocabulary has none:
  // only the types are checked here.
  model.object().string_or("unk_token", "");
  model.object().boolean_or("fuse_unk", false);
  model.object().boolean_or("byte_fallback", false);
}

void read_vocabulary(const Component& model, Vocabulary* vocabulary) {
  const Component vocab = model.child("vocab");
  for (const auto& [token, id] : vocab.raw().items()) {
    if (!id.is_number_integer() || (id.is_number_unsigned() && id.get<uint64_t>() > INT64_MAX)) {
      vocab.complain(fmt::format("token '{}' has id {}; expected an integer",
                                 base::printable(token, 60), formats::describe(id)));
      return;
    }
    const Status status = vocabulary->add(token, id.get<int64_t>(), Origin::kModel);
    if (!status.ok()) {
      vocab.complain(status.message());
      return;
    }
  }
}

// Each byte must have a token: then every text can be encoded, and no unknown token is needed.
std::array<int32_t, 256> read_byte_ids(const Component& model, const Vocabulary& vocabulary) {
  std::array<int32_t, 256> ids{};
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    const std::string_view token = byte_level_char(static_cast<uint8_t>(byte));
    const std::optional<int32_t> id = vocabulary.find(token);
    if (!id) {
      model.complain_at(
          "vocab", fmt::format("no token for the byte 0x{:02X} ('{}'); a byte-level vocabulary "
                               "has one for each of the 256 bytes",
                               byte, token));
      return ids;
    }
    ids[byte] = *id;
  }
  return ids;
}

// The tokens of bytes, "<0x00>" to "<0xFF>".
Symbols::ByteIds read_fallback(const Vocabulary& vocabulary) {
  Symbols::ByteIds ids;
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    ids[byte] = vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(Symbols::kNone);
  }
  return ids;
}

// A character of several code points cannot be one: tokens of one code point are characters.
Symbols read_characters(const Component& model, const Vocabulary& vocabulary) {
  Symbols::Characters characters{.near = std::vector<int32_t>(0x10000, Symbols::kNone)};
  characters.fuses_unknown = model.object().boolean_or("fuse_unk", false);
  characters.fallback.fill(Symbols::kNone);
  if (model.object().boolean_or("byte_fallback", false)) {
    characters.fallback = read_fallback(vocabulary);
  }
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id) {
    const std::string_view token = vocabulary.token(id);
    if (token.empty() || first_unit(token).bytes != token.size()) continue;
    const char32_t character = first_code_point(token);
    if (character < characters.near.size()) {
      characters.near[character] = id;
    } else {
      characters.far[character] = id;
    }
  }
  const std::string unknown = model.object().string_or("unk_token", "");
  const std::optional<int32_t> id = vocabulary.find(unknown);
  if (id) characters.unknown = *id;
  if (!unknown.empty() && !id) {
    model.complain_at(
        "unk_token", fmt::format("token '{}' is not in model.vocab", base::printable(unknown, 60)));
  }
  const auto& fallback = characters.fallback;
  if (!id && std::find(fallback.begin(), fallback.end(), Symbols::kNone) != fallback.end()) {
    model.complain_at("unk_token",
                      "missing: characters without a token would be left out; expected an unknown "
                      "token, byte_fallback with tokens '<0x00>' to '<0xFF>', or a pre_tokenizer "
                      "that ends with 'ByteLevel'");
  }
  return Symbols(std::move(characters));
}

struct TokenPair {
  std::string left;
  std::string right;
};

// The two forms of a merge: "a b" or ["a", "b"].
std::optional<TokenPair> token_pair(const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return TokenPair{merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (!merge.is_string()) return std::nullopt;
  const auto& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return std::nullopt;
  }
  return TokenPair{text.substr(0, space), text.substr(space + 1)};
}

// The first line of a merges.txt ("#version: 0.2"), which some files contain as a merge.
bool is_version_line(const json& merge) {
  return merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
}

class MergeReader {
 public:
  MergeReader(const Component& model, const Vocabulary& vocabulary)
      : model_(model), vocabulary_(vocabulary) {}

  MergeTable read() {
    const auto merges = model_.raw().find("merges");
    if (merges == model_.raw().end() || !merges->is_array()) {
      model_.complain_at("merges", "expected a list of merges");
      return MergeTable(0);
    }
    MergeTable table(merges->size());
    for (size_t i = 0; i < merges->size() && model_.ok(); ++i) {
      if (!is_version_line((*merges)[i])) add((*merges)[i], i, &table);
    }
    return table;
  }

 private:
  void add(const json& merge, size_t index, MergeTable* table) {
    key_ = fmt::format("merges[{}]", index);
    const std::optional<TokenPair> pair = token_pair(merge);
    if (!pair) {
      model_.complain_at(key_, fmt::format("expected two tokens, 'a b' or ['a', 'b']; found {}",
                                           formats::describe(merge)));
      return;
    }
    const int32_t left = id_of(pair->left);
    const int32_t right = id_of(pair->right);
    const int32_t merged = id_of(pair->left + pair->right);
    // The position in the file is the rank: earlier merges come first.
    table->set(left, right, {static_cast<int32_t>(index), merged});
  }

  int32_t id_of(const std::string& token) {
    const std::optional<int32_t> id = vocabulary_.find(token);
    if (!id) {
      model_.complain_at(
          key_, fmt::format("token '{}' is not in model.vocab", base::printable(token, 60)));
    }
    return id.value_or(0);
  }

  const Component& model_;
  const Vocabulary& vocabulary_;
  std::string key_;
};

}  // namespace

Result<BpeModel> read_model(const Component& model, bool byte_level) {
  check_options(model);
  Vocabulary vocabulary;
  if (model.ok()) read_vocabulary(model, &vocabulary);
  WIDEEP_TRY(model.status());
  Symbols symbols =
      byte_level ? Symbols(read_byte_ids(model, vocabulary)) : read_characters(model, vocabulary);
  MergeTable merges = MergeReader(model, vocabulary).read();
  const bool ignore_merges = model.object().boolean_or("ignore_merges", false);
  WIDEEP_TRY(model.status());
  return BpeModel{std::move(vocabulary), Bpe(std::move(symbols), std::move(merges)), ignore_merges};
}

}  // namespace wideep::tokenizer
