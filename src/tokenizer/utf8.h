// SPDX-License-Identifier: Apache-2.0
//
// UTF-8: well-formedness as in table 3-7 of the Unicode standard, and U+FFFD for what is not.
//
// An ill-formed part is replaced by the rule of "maximal subparts" (Unicode 3.9, and what Python's
// errors='replace' and Rust's from_utf8_lossy do): the longest start of a possible sequence becomes
// one U+FFFD, every other stray byte becomes one of its own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace wideep::tokenizer {

enum class Utf8Kind {
  kValid,     // one whole code point
  kInvalid,   // bytes that no continuation can make valid
  kCutShort,  // the text ends inside what may become a code point
};

struct Utf8Unit {
  Utf8Kind kind;
  size_t bytes;  // 1 to 4
};

// What starts at text[0]. REQUIRES: text is not empty.
Utf8Unit first_unit(std::string_view text);

bool is_valid_utf8(std::string_view text);

// The text with U+FFFD in place of each ill-formed part; a text that is cut short at the end gets
// one for the rest.
std::string replace_invalid_utf8(std::string_view text);

// How many bytes at the end may still become a code point: 0 to 3.
size_t cut_short_bytes(std::string_view text);

// The first or last code point of valid, non-empty UTF-8.
char32_t first_code_point(std::string_view text);
char32_t last_code_point(std::string_view text);

void append_utf8(char32_t code_point, std::string* out);

}  // namespace wideep::tokenizer
