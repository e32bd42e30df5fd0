// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace wideep::tokenizer {

// All that a tokenizer.json says, ready for use; in the order in which a text meets it.
// Constant once read; shared by threads.
struct TokenizerParts {
  AddedTokenFinder added_as_written;  // looked for in the text
  bool nfc = false;                   // normalise what is left
  AddedTokenFinder added_normalized;  // looked for in the normalised text
  PreTokenizer pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token is that token
  Bpe bpe;
  PostProcessor post_processor;
  Vocabulary vocabulary;  // model and added tokens
};

}  // namespace wideep::tokenizer
