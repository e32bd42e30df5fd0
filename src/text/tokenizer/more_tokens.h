// SPDX-License-Identifier: Apache-2.0
//
// Tokens that other files than tokenizer.json add, or whose flags they change, as transformers
// reads them: added_tokens_decoder of tokenizer_config.json, or else added_tokens.json; then
// special tokens by their names (bos_token, ..., additional_special_tokens), of
// tokenizer_config.json and, without added_tokens_decoder, of special_tokens_map.json. And which of
// them the class of tokenizer_config.json adds to every text.
//
// Thread safety: pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

struct MoreToken {
  std::string file;           // that has it, for messages
  std::optional<int32_t> id;  // as the file says; nullopt: named without an id
  AddedToken token;           // its id is not set
  bool named = false;         // bos_token and others: only added where no added token has the text
};

// A special token before or after every text, as tokenizer_config.json asks for it.
struct EndToken {
  const char* key = "";      // add_bos_token or add_eos_token
  std::optional<bool> asks;  // the key's value
  bool by_default = false;   // what the class does without the key
  std::string content;       // bos_token or eos_token; "": none has the name
};

// Classes of Llama's kind (LlamaTokenizerFast, ...) put these in place of the post-processor of
// tokenizer.json in transformers 4; its version 5 reads DeepSeek's files with another class, and
// the token that the model was trained with is missing. Other classes ignore them.
struct TextEnds {
  std::string file;             // tokenizer_config.json; "": there is none
  std::string tokenizer_class;  // "": not named
  bool replaces = false;        // it is a class that does so
  EndToken before{.key = "add_bos_token"}, after{.key = "add_eos_token"};
};

struct OtherFiles {
  std::vector<MoreToken> tokens;  // in the order in which they are added
  TextEnds ends;
};

// Files that are not there have nothing.
// Errors (invalid input): a file that is no JSON object, a token without content, a wrong type.
Result<OtherFiles> read_other_files(const std::string& model_dir);

}  // namespace wideep::tokenizer
