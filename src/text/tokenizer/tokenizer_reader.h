// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/more_tokens.h"
#include "tokenizer/parts.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

// Parses the text of a tokenizer.json; messages name `name` as the file. more: what other
// files say (more_tokens.h); tokens are added after those of tokenizer.json. Errors (invalid
// input): see Tokenizer::parse; a token of `more` with another id than the tokenizers library gives
// it.
Result<std::shared_ptr<const TokenizerParts>> read_parts(std::string_view text,
                                                         const std::string& name,
                                                         const OtherFiles& more, int32_t id_limit);

}  // namespace wideep::tokenizer
