// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/parts.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

// Reads the text of a tokenizer.json; `name` stands for the file in messages.
// Errors (invalid input): see Tokenizer::parse.
Result<std::shared_ptr<const TokenizerParts>> read_parts(std::string_view text,
                                                         const std::string& name);

}  // namespace wideep::tokenizer
