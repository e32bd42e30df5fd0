// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/bpe.h"
#include "tokenizer/component.h"
#include "tokenizer/vocabulary.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

struct BpeModel {
  Vocabulary vocabulary;
  Bpe bpe;
  bool ignore_merges;
};

// Reads the "model" of a tokenizer.json, which must be a BPE: of bytes (byte_level), or of
// characters, with byte_fallback, unk_token and fuse_unk. Errors (invalid input), also reported to
// the component: another type, an option that changes the result (dropout, a prefix or suffix of
// words), a byte without a token, characters that would have no token and no unknown token either,
// a token or id that appears twice, a merge of tokens that are not in the vocabulary. Ids may have
// holes.
Result<BpeModel> read_model(const Component& model, bool byte_level);

}  // namespace wideep::tokenizer
