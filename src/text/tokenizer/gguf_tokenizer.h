// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer in a GGUF file's metadata (tokenizer.ggml.*):
//
//   model   what
//   gpt2    byte-level BPE with merges; `pre` says how texts are cut into words
//           (gguf_patterns.h). The file holds no normalizer, and none is applied
//   llama   SentencePiece's BPE: a pair of neighbours becomes a token by the token's score, the
//           highest first, of equals the leftmost; characters without a token become bytes
//
// Tokens of type control and user-defined are found in the text first. Source:
// ggml/docs/gguf.md and llama-vocab.cpp of llama.cpp.
//
// Thread safety: pure functions.
#pragma once

#include <memory>
#include <string>

#include "tensor_files/gguf.h"
#include "tokenizer/parts.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

// Whether the file has a tokenizer, of whatever kind.
bool has_gguf_tokenizer(const tensor_files::GgufFile& file);

// Errors (invalid input) name the file and the key: another model, an unknown `pre`, lists of
// different lengths, tokens that merges name and that do not exist, two tokens of one text.
Result<std::shared_ptr<const TokenizerParts>> read_gguf_tokenizer(
    const tensor_files::GgufFile& file);

// The same as a tokenizer.json. Errors: as read_gguf_tokenizer.
Result<std::string> gguf_tokenizer_json(const tensor_files::GgufFile& file);

}  // namespace wideep::tokenizer
