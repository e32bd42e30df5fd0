// SPDX-License-Identifier: Apache-2.0
//
// Vocabularies of tiktoken's kind: a file with a line for each token, its bytes in base64 and its
// rank, which is its id. Two tokens that follow each other merge where their bytes together are a
// token, the least rank first. What the file does not say, the pattern and the special tokens, is
// code in the repositories of the models, and stands here by family:
//
//   kimi     tiktoken.model, class TikTokenTokenizer (tokenization_kimi.py). 256 special tokens
//            after the ranks, named by added_tokens_decoder of tokenizer_config.json or
//            "<|reserved_token_N|>". Long texts are cut first (long_runs.h).
//   hunyuan  hy.tiktoken, class HYTokenizer (tokenization_hy.py). <|endoftext|>, <|startoftext|>,
//            <|bos|>, <|eos|>, <|pad|>, and <|extra_0|> to <|extra_204|> after the ranks. Texts are
//            normalised to NFC first, by the tables of Python's unicodedata.
//
// Neither adds tokens around a text. Thread safety: pure functions.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/more_tokens.h"
#include "tokenizer/parts.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

// The name of the class that a tokenizer_config.json gives, and of the file of ranks.
struct TiktokenFamily {
  const char* file;
  const char* tokenizer_class;
  std::string_view pattern;
  bool is_kimi;
};

std::span<const TiktokenFamily> tiktoken_families();

// The family whose file the directory has; nullptr: none.
const TiktokenFamily* find_tiktoken_family(const std::string& model_dir);

// The tokens in the order of their ranks, as bytes.
// Errors (invalid input), one line naming the file and the line: not base64, no rank, a rank twice
// or out of order, a token twice, a file that ends inside a line.
Result<std::vector<std::string>> read_ranks(std::string_view text, const std::string& name);

// Reads the family's file of the directory. more: what tokenizer_config.json says.
// Errors (invalid input): of read_ranks(); a byte without a token; another class; a special token
// out of the range of the special tokens, or that is an ordinary one too.
Result<std::shared_ptr<const TokenizerParts>> read_tiktoken(const std::string& model_dir,
                                                            const TiktokenFamily& family,
                                                            const OtherFiles& more);

// The same for the text of the file; `name` stands for it in messages.
Result<std::shared_ptr<const TokenizerParts>> tiktoken_parts(std::string_view text,
                                                             const std::string& name,
                                                             const TiktokenFamily& family,
                                                             const OtherFiles& more);

}  // namespace wideep::tokenizer
