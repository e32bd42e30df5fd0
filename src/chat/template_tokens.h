// SPDX-License-Identifier: Apache-2.0
//
// A template's text as tokens, by Jinja's rules for the white space around tags: as Hugging Face
// sets them (trim_blocks and lstrip_blocks on, the last newline dropped).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "wideep/status.h"

namespace wideep::chat {

enum class TokenKind {
  kData,  // text outside tags
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kInteger,
  kFloat,
  kString,    // unescaped
  kOperator,  // "==", "(", …
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
};

// Ends with one of kEnd. Errors (invalid input): "line N: …".
Result<std::vector<Token>> tokenize_template(std::string_view source);

}  // namespace wideep::chat
