// SPDX-License-Identifier: Apache-2.0
#include "formats/python_json.h"

#include <cctype>
#include <string_view>

namespace wideep::formats {
namespace {

bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The length of such a word at the begin of the text; 0: there is none.
size_t python_number(std::string_view text) {
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
    const bool ends = text.size() <= word.size() || !is_word_character(text[word.size()]);
    if (text.starts_with(word) && ends) return word.size();
  }
  return 0;
}

}  // namespace

void quote_python_numbers(std::string* json) {
  if (json->find("NaN") == std::string::npos && json->find("Infinity") == std::string::npos) return;
  std::string out;
  bool in_string = false;
  const std::string_view text = *json;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool begins = !in_string && (at == 0 || !is_word_character(text[at - 1]));
    if (const size_t length = begins ? python_number(text.substr(at)) : 0; length > 0) {
      out.append("\"").append(text.substr(at, length)).append("\"");
      at += length - 1;
      continue;
    }
    if (in_string && text[at] == '\\' && at + 1 < text.size())
      out += text[at++];
    else if (text[at] == '"')
      in_string = !in_string;
    out += text[at];
  }
  *json = std::move(out);
}

}  // namespace wideep::formats
