// SPDX-License-Identifier: Apache-2.0
//
// Encoding: long runs cut → added tokens as written → normalizer → added tokens in the normalised
// text → words → BPE. The order is that of the tokenizers library, and each text between added
// tokens goes on by itself, as there. The whole word is looked up first where the file says so
// (ignore_merges).
//
// Invalid UTF-8 is replaced before everything, so that no step has to expect it.
#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <system_error>

#include "base/check.h"
#include "base/try.h"
#include "formats/files.h"
#include "tensor_files/gguf.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/parts.h"
#include "tokenizer/tiktoken_reader.h"
#include "tokenizer/tokenizer_reader.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

// Encodes one text. The order of the steps is that of the tokenizers library.
class Encoder {
 public:
  Encoder(const TokenizerParts& parts, std::vector<int32_t>* ids) : parts_(parts), ids_(ids) {}

  // An expression has taken too much work.
  bool exceeds() const { return words_.exceeds() || exceeds_; }

  void encode(std::string_view valid_text) {
    if (!parts_.run_limits) return encode_part(valid_text);
    for (const std::string_view part : cut_long_runs(valid_text, *parts_.run_limits)) {
      encode_part(part);
    }
  }

 private:
  void encode_part(std::string_view text) {
    std::vector<Segment> segments;
    parts_.added_as_written.split(text, &segments);
    for (const Segment& segment : segments) {
      const bool starts = segment.text.data() == text.data();
      if (segment.id != Segment::kText) {
        ids_->push_back(segment.id);
      } else if (!parts_.normalizer.empty()) {
        encode_normalized(parts_.normalizer.apply(segment.text, &exceeds_), starts);
      } else {
        encode_normalized(segment.text, starts);
      }
    }
  }

  // starts: at the start of the whole text.
  void encode_normalized(std::string_view text, bool starts) {
    std::vector<Segment> segments;
    parts_.added_normalized.split(text, &segments);
    for (const Segment& segment : segments) {
      if (segment.id != Segment::kText) {
        ids_->push_back(segment.id);
      } else {
        encode_words(segment.text, starts && segment.text.data() == text.data());
      }
    }
  }

  void encode_words(std::string_view text, bool starts) {
    for (const std::string_view word : parts_.pre_tokenizer.split(text, starts, &words_)) {
      if (!parts_.ignore_merges || !push_whole(word)) parts_.bpe.encode(word, &bpe_, ids_);
    }
  }

  bool push_whole(std::string_view word) {
    // ignore_merges concerns the model's vocabulary only: added tokens were found before.
    const std::optional<int32_t> id = parts_.bpe.symbols().by_character()
                                          ? parts_.vocabulary.find(word)
                                          : parts_.vocabulary.find(to_byte_level(word));
    if (!id || parts_.vocabulary.origin(*id) != Origin::kModel) return false;
    ids_->push_back(*id);
    return true;
  }

  const TokenizerParts& parts_;
  std::vector<int32_t>* ids_;
  PreTokenizerScratch words_;
  BpeScratch bpe_;
  bool exceeds_ = false;  // the normalizer's
};

}  // namespace

Result<Tokenizer> Tokenizer::read(const std::string& path, int32_t id_limit) {
  if (tensor_files::is_gguf(path)) {
    WIDEEP_TRY_ASSIGN(const tensor_files::GgufFiles files, tensor_files::GgufFiles::open(path));
    WIDEEP_TRY_ASSIGN(auto parts, read_gguf_tokenizer(files.first()));
    return Tokenizer(std::move(parts));
  }
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(path, error);
  const std::string file = is_directory ? path + "/tokenizer.json" : path;
  OtherFiles more;
  if (is_directory) {
    WIDEEP_TRY_ASSIGN(more, read_other_files(path));
    const TiktokenFamily* family = find_tiktoken_family(path);
    const bool has_json = std::filesystem::exists(file, error);
    if (family != nullptr && !has_json) {
      WIDEEP_TRY_ASSIGN(auto parts, read_tiktoken(path, *family, more));
      return Tokenizer(std::move(parts));
    }
    if (!has_json && std::filesystem::exists(path + "/tokenizer.model", error)) {
      return invalid_input(
          fmt::format("{}/tokenizer.model: SentencePiece's own format is not supported; save the "
                      "tokenizer with transformers, which writes a tokenizer.json",
                      path));
    }
  }
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(file));
  WIDEEP_TRY_ASSIGN(auto parts, read_parts(text, file, more, id_limit));
  return Tokenizer(std::move(parts));
}

Result<Tokenizer> Tokenizer::parse(std::string_view text, const std::string& name) {
  WIDEEP_TRY_ASSIGN(auto parts, read_parts(text, name, {}, std::numeric_limits<int32_t>::max()));
  return Tokenizer(std::move(parts));
}

Result<Tokenizer> Tokenizer::parse_ranks(std::string_view text, const std::string& name) {
  for (const TiktokenFamily& family : tiktoken_families()) {
    if (!name.ends_with(family.file)) continue;
    WIDEEP_TRY_ASSIGN(auto parts, tiktoken_parts(text, name, family, {}));
    return Tokenizer(std::move(parts));
  }
  return invalid_input(fmt::format("{}: not the name of a known file of ranks", name));
}

bool Tokenizer::is_in(const std::string& model_dir) {
  if (tensor_files::is_gguf(model_dir)) {
    const auto files = tensor_files::GgufFiles::open(model_dir);
    return files.ok() && has_gguf_tokenizer(files->first());
  }
  std::error_code error;
  return std::filesystem::exists(model_dir + "/tokenizer.json", error) ||
         find_tiktoken_family(model_dir) != nullptr;
}

std::vector<std::string> Tokenizer::file_names() {
  std::vector<std::string> names = {"tokenizer.json", "tokenizer_config.json", "added_tokens.json",
                                    "special_tokens_map.json"};
  for (const TiktokenFamily& family : tiktoken_families()) names.emplace_back(family.file);
  return names;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  bool exceeds = false;
  return encode(text, add_special_tokens, &exceeds);
}

Result<std::vector<int32_t>> Tokenizer::encode_within_limits(std::string_view text,
                                                             bool add_special_tokens) const {
  bool exceeds = false;
  std::vector<int32_t> ids = encode(text, add_special_tokens, &exceeds);
  if (!exceeds) return ids;
  return invalid_input(
      fmt::format("a pattern of the tokenizer takes too long for this text of {} bytes: its parts "
                  "can match the same characters in too many ways",
                  text.size()));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens,
                                       bool* exceeds) const {
  WIDEEP_CHECK_LT(text.size(), static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  const PostProcessor& around = parts_->post_processor;
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = around.before;
  Encoder encoder(*parts_, &ids);
  if (is_valid_utf8(text)) {
    encoder.encode(text);
  } else {
    encoder.encode(replace_invalid_utf8(text));
  }
  if (add_special_tokens) ids.insert(ids.end(), around.after.begin(), around.after.end());
  *exceeds = encoder.exceeds();
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string out;
  if (!parts_->decoder.is_bytes()) {
    DecoderState state(&parts_->decoder);
    for (const int32_t id : ids) {
      if (decodes(id, skip_special_tokens)) out += state.push(written(id), bytes(id));
    }
    return out + state.finish();
  }
  // UTF-8 is checked after all bytes are joined, because one character may span several tokens.
  for (const int32_t id : ids) {
    if (decodes(id, skip_special_tokens)) out += bytes(id);
  }
  return is_valid_utf8(out) ? out : replace_invalid_utf8(out);
}

bool Tokenizer::decodes(int32_t id, bool skip_special_tokens) const {
  // The tokenizers library looks a token up among the special ones as it is written.
  const bool is_skipped = skip_special_tokens && is_special(id);
  return parts_->vocabulary.has(id) && (!is_skipped || written(id) != id_to_token(id));
}

const Decoder& Tokenizer::decoder() const { return parts_->decoder; }

std::string_view Tokenizer::bytes(int32_t id) const { return parts_->vocabulary.bytes(id); }

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return parts_->vocabulary.find(token);
}

std::string_view Tokenizer::id_to_token(int32_t id) const { return parts_->vocabulary.token(id); }

std::string_view Tokenizer::written(int32_t id) const { return parts_->vocabulary.written(id); }

bool Tokenizer::is_special(int32_t id) const { return parts_->vocabulary.is_special(id); }

const std::vector<std::string>& Tokenizer::notes() const { return parts_->notes; }

size_t Tokenizer::vocab_size() const { return parts_->vocabulary.size(); }

int32_t Tokenizer::id_limit() const { return parts_->vocabulary.id_limit(); }

}  // namespace wideep::tokenizer
