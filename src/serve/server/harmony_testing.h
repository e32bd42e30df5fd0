// SPDX-License-Identifier: Apache-2.0
//
// For tests of grammars for answers in harmony's format.
#pragma once

#include <string>

#include "grammar/special_bytes.h"

namespace wideep::server {

// Names of harmony's special tokens become what stands for them in a text.
inline std::string with_special_tokens(std::string text) {
  for (const std::string name :
       {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"}) {
    for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
      if (at > 0 && text[at - 1] == grammar::kSpecialBegin) continue;
      text.replace(at, name.size(), grammar::special_bytes(name));
    }
  }
  return text;
}

}  // namespace wideep::server
