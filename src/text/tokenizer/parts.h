// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/long_runs.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace wideep::tokenizer {

// The content of a tokenizer's files, in the order in which encoding uses it. Immutable after
// reading; threads may share it.
struct TokenizerParts {
  std::optional<RunLimits> run_limits;  // cut the text first
  AddedTokenFinder added_as_written;    // searched in the original text
  Normalizer normalizer;                // changes the text between those tokens
  AddedTokenFinder added_normalized;    // searched in the normalised text
  PreTokenizer pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token becomes that token, without BPE
  Bpe bpe;
  PostProcessor post_processor;
  Decoder decoder;
  Vocabulary vocabulary;  // tokens of the model, and added tokens
  std::vector<std::string> notes;
};

}  // namespace wideep::tokenizer
