// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/long_runs.h"

#include "tokenizer/char_kinds.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

// str.isspace() has four separators of ASCII that White_Space does not.
bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

}  // namespace

std::vector<std::string_view> cut_long_runs(std::string_view text, const RunLimits& limits) {
  std::vector<std::string_view> parts;
  size_t start = 0, at = 0, characters = 0, run = 0;
  bool in_space = false;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    const bool space = is_python_space(first_code_point(rest));
    // Each part of the greater limit begins anew.
    const bool is_full = characters > 0 && characters % limits.part == 0;
    run = !is_full && characters > 0 && space == in_space ? run + 1 : 1;
    if (is_full || run > limits.run) {
      parts.push_back(text.substr(start, at - start));
      start = at;
      run = 1;
    }
    in_space = space;
    ++characters;
    at += first_unit(rest).bytes;
  }
  if (start < text.size()) parts.push_back(text.substr(start));
  return parts;
}

}  // namespace wideep::tokenizer
