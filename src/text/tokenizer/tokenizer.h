// SPDX-License-Identifier: Apache-2.0
//
// Converts text to token ids and back, by a Hugging Face tokenizer.json, or by the tiktoken.model
// of Kimi or the hy.tiktoken of Hunyuan.
//
//   WIDEEP_TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::read("models/qwen3"));
//   std::vector<int32_t> ids = tokenizer.encode("Hello, world");
//   std::string text = tokenizer.decode(ids);
//
// Supports byte-pair encoding of bytes and of characters (SentencePiece's kind, with
// byte_fallback), with the steps that are listed in model_reader.h, pipeline_reader.h and
// pattern_syntax.h, and what tiktoken_reader.h says. Ids and texts are equal to those of the
// `tokenizers` library and of `tiktoken`. A file with any other step or option is refused when
// read, with an error that names the key. Of tokenizer_config.json the tokens are read, and
// add_bos_token and add_eos_token where its class uses them (more_tokens.h).
//
// Bytes that are not UTF-8 become U+FFFD, both in texts to encode and in decoded text, as with
// Python's bytes.decode(errors="replace").
//
// Thread safety: immutable after reading; encode and decode may be called from any thread. Copies
// are cheap and share their tables.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wideep/status.h"

namespace wideep::tokenizer {

class Decoder;
struct TokenizerParts;

class Tokenizer {
 public:
  // Reads "<path>/tokenizer.json", or where there is none the file of a family of tiktoken's kind,
  // and, as transformers does, the tokens of other files beside it (more_tokens.h); or `path`
  // alone, a tokenizer.json or a GGUF file (gguf_tokenizer.h), where it is no directory. id_limit:
  // the model's tokens; special tokens that other files name without an id are left out where they
  // would be beyond it. Errors: see parse; a missing or unreadable file is invalid input as well; a
  // token of another file with an id that does not follow from tokenizer.json.
  static Result<Tokenizer> read(const std::string& path,
                                int32_t id_limit = std::numeric_limits<int32_t>::max());

  // Reads the text of a tokenizer.json; `name` stands for the file in messages.
  // Errors (invalid input), one line naming the key: not JSON, an unknown or unsupported setting,
  // a vocabulary that cannot encode every text, tokens or ids that appear twice, merges of unknown
  // tokens, ids of added tokens that the tokenizers library would not give them.
  static Result<Tokenizer> parse(std::string_view text, const std::string& name);

  // Reads the text of a file of ranks (tiktoken_reader.h), without other files beside it. `name`
  // ends with the file's name, which says whose it is. Errors (invalid input): no such family; see
  // tiktoken_reader.h.
  static Result<Tokenizer> parse_ranks(std::string_view text, const std::string& name);

  // Whether a directory has one of the files that read() starts with, or a GGUF file a tokenizer.
  static bool is_in(const std::string& model_dir);
  // The names of all files that read() may use.
  static std::vector<std::string> file_names();

  // The ids of a text, which may hold any bytes. Added tokens in the text are recognised, special
  // ones too. add_special_tokens: also add the tokens of the file's TemplateProcessing before and
  // after. REQUIRES: below 2 GiB.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = true) const;

  // The same for a text of any origin, with a tokenizer of any: errors (invalid input) where an
  // expression of the file takes more work than texts of this size should (MatchScratch), of which
  // encode() takes as few matches as it has found.
  Result<std::vector<int32_t>> encode_within_limits(std::string_view text,
                                                    bool add_special_tokens = true) const;

  // The text of ids: always valid UTF-8. Ids without a token are left out, as are special tokens
  // unless skip_special_tokens is false.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;

  // The bytes that one token stands for, which need not be valid UTF-8; "" for an id without a
  // token. Decoding may leave out the space of the first token. Valid as long as a copy of the
  // tokenizer exists.
  std::string_view bytes(int32_t id) const;

  // Whether decoding uses the id.
  bool decodes(int32_t id, bool skip_special_tokens) const;
  const Decoder& decoder() const;  // valid as long as a copy of the tokenizer exists

  std::optional<int32_t> token_to_id(std::string_view token) const;  // as written in the file
  std::string_view id_to_token(int32_t id) const;                    // "" if there is none
  std::string_view written(int32_t id) const;                        // what the decoder takes
  bool is_special(int32_t id) const;

  // One line each: what the files say and encoding does not use.
  const std::vector<std::string>& notes() const;

  // The number of tokens, including added ones; and the greatest id + 1, which is the number of
  // rows that a model's embedding needs. The second may be larger, because ids may have holes.
  size_t vocab_size() const;
  int32_t id_limit() const;

 private:
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens, bool* exceeds) const;

  std::shared_ptr<const TokenizerParts> parts_;
};

}  // namespace wideep::tokenizer
