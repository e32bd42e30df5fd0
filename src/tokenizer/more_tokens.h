// SPDX-License-Identifier: Apache-2.0
//
// Tokens that other files than tokenizer.json add, or whose flags they change, as transformers
// reads them: added_tokens_decoder of tokenizer_config.json, or else added_tokens.json; then
// special tokens by their names (bos_token, ..., additional_special_tokens), of
// tokenizer_config.json and, without added_tokens_decoder, of special_tokens_map.json.
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

// In the order in which they are added. Files that are not there have none.
// Errors (invalid input): a file that is no JSON object, a token without content, a wrong type.
Result<std::vector<MoreToken>> read_more_tokens(const std::string& model_dir);

}  // namespace wideep::tokenizer
