// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/parts.h"
#include "wideep/status.h"

namespace wideep::tokenizer {

// Parses the text of a tokenizer.json; messages name `name` as the file.
// Errors (invalid input): see Tokenizer::parse.
Result<std::shared_ptr<const TokenizerParts>> read_parts(std::string_view text,
                                                         const std::string& name);

}  // namespace wideep::tokenizer
