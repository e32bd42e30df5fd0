// SPDX-License-Identifier: Apache-2.0
//
// Splits a template into tokens and applies Jinja's rules for white space around tags, with Hugging
// Face's settings: trim_blocks and lstrip_blocks are on, and the last newline is dropped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wideep/status.h"

namespace wideep::jinja {

enum class TokenKind {
  kData,  // text outside tags
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kInteger,
  kFloat,
  kString,    // text holds the value, without quotes and escapes
  kOperator,  // "==", "(", …
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
};

// The last token is kEnd. Errors (invalid input): "line N: …". Thread safe.
Result<std::vector<Token>> tokenize_template(std::string_view source);

}  // namespace wideep::jinja
