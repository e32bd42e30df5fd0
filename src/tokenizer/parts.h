// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace wideep::tokenizer {

// The content of a tokenizer.json, in the order in which encoding uses it. Immutable after reading;
// threads may share it.
struct TokenizerParts {
  AddedTokenFinder added_as_written;  // searched in the original text
  bool nfc = false;                   // normalise the text between those tokens
  AddedTokenFinder added_normalized;  // searched in the normalised text
  PreTokenizer pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token becomes that token, without BPE
  Bpe bpe;
  PostProcessor post_processor;
  Vocabulary vocabulary;  // tokens of the model, and added tokens
  std::vector<std::string> notes;
};

}  // namespace wideep::tokenizer
