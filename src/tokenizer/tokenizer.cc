// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.h"

#include <filesystem>
#include <limits>
#include <system_error>

#include "base/check.h"
#include "base/try.h"
#include "formats/files.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/parts.h"
#include "tokenizer/tokenizer_reader.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

// Encodes one text. The order of the steps is that of the tokenizers library.
class Encoder {
 public:
  Encoder(const TokenizerParts& parts, std::vector<int32_t>* ids) : parts_(parts), ids_(ids) {}

  void encode(std::string_view valid_text) {
    std::vector<Segment> segments;
    parts_.added_as_written.split(valid_text, &segments);
    for (const Segment& segment : segments) {
      if (segment.id != Segment::kText) {
        ids_->push_back(segment.id);
      } else if (parts_.nfc) {
        encode_normalized(to_nfc(segment.text));
      } else {
        encode_normalized(segment.text);
      }
    }
  }

 private:
  void encode_normalized(std::string_view text) {
    std::vector<Segment> segments;
    parts_.added_normalized.split(text, &segments);
    for (const Segment& segment : segments) {
      if (segment.id != Segment::kText) {
        ids_->push_back(segment.id);
      } else {
        encode_words(segment.text);
      }
    }
  }

  void encode_words(std::string_view text) {
    for (const std::string_view word : parts_.pre_tokenizer.split(text, &words_)) {
      if (!parts_.ignore_merges || !push_whole(word)) parts_.bpe.encode(word, &bpe_, ids_);
    }
  }

  bool push_whole(std::string_view word) {
    // ignore_merges concerns the model's vocabulary only: added tokens were found before.
    const std::optional<int32_t> id = parts_.vocabulary.find(to_byte_level(word));
    if (!id || parts_.vocabulary.origin(*id) != Origin::kModel) return false;
    ids_->push_back(*id);
    return true;
  }

  const TokenizerParts& parts_;
  std::vector<int32_t>* ids_;
  PreTokenizerScratch words_;
  BpeScratch bpe_;
};

}  // namespace

Result<Tokenizer> Tokenizer::read(const std::string& path, int32_t id_limit) {
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(path, error);
  const std::string file = is_directory ? path + "/tokenizer.json" : path;
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(file));
  OtherFiles more;
  if (is_directory) {
    WIDEEP_TRY_ASSIGN(more, read_other_files(path));
  }
  WIDEEP_TRY_ASSIGN(auto parts, read_parts(text, file, more, id_limit));
  return Tokenizer(std::move(parts));
}

Result<Tokenizer> Tokenizer::parse(std::string_view text, const std::string& name) {
  WIDEEP_TRY_ASSIGN(auto parts, read_parts(text, name, {}, std::numeric_limits<int32_t>::max()));
  return Tokenizer(std::move(parts));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
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
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  // UTF-8 is checked after all bytes are joined, because one character may span several tokens.
  std::string out;
  for (const int32_t id : ids) {
    if (!skip_special_tokens || !is_special(id)) out += bytes(id);
  }
  return is_valid_utf8(out) ? out : replace_invalid_utf8(out);
}

std::string_view Tokenizer::bytes(int32_t id) const { return parts_->vocabulary.bytes(id); }

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return parts_->vocabulary.find(token);
}

std::string_view Tokenizer::id_to_token(int32_t id) const { return parts_->vocabulary.token(id); }

bool Tokenizer::is_special(int32_t id) const { return parts_->vocabulary.is_special(id); }

const std::vector<std::string>& Tokenizer::notes() const { return parts_->notes; }

size_t Tokenizer::vocab_size() const { return parts_->vocabulary.size(); }

int32_t Tokenizer::id_limit() const { return parts_->vocabulary.id_limit(); }

}  // namespace wideep::tokenizer
