// SPDX-License-Identifier: Apache-2.0
#include "chat/escape.h"

namespace wideep::chat {

std::string escaped(std::string_view text, Budget& budget) {
  constexpr size_t kMaxEscaped = 5;  // bytes of the longest escape
  if (!budget.spend_bytes(kMaxEscaped * text.size())) return "";
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string escaped_value(const Value& value, Budget& budget) {
  const std::string text = to_text(value, budget);
  return value.is_safe() ? text : escaped(text, budget);
}

}  // namespace wideep::chat
