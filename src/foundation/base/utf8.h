// SPDX-License-Identifier: Apache-2.0
//
// UTF-8: checks well-formedness (table 3-7 of the Unicode standard) and replaces ill-formed parts
// by U+FFFD.
//
// Replacement follows the rule of "maximal subparts" (Unicode standard, section 3.9), as Python's
// errors='replace' and Rust's from_utf8_lossy do: an incomplete but possible sequence becomes one
// U+FFFD, and each other invalid byte becomes its own U+FFFD.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace wideep::base {

enum class Utf8Kind {
  kValid,     // one whole code point
  kInvalid,   // bytes that no continuation can make valid
  kCutShort,  // the text ends inside a sequence that may still become a code point
};

struct Utf8Unit {
  Utf8Kind kind;
  size_t bytes;  // 1 to 4
};

// The unit that starts at text[0]. REQUIRES: text is not empty.
Utf8Unit first_unit(std::string_view text);

bool is_valid_utf8(std::string_view text);

// Replaces each ill-formed part by U+FFFD; an incomplete sequence at the end becomes one U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// The number of bytes at the end that may still become a code point: 0 to 3.
size_t cut_short_bytes(std::string_view text);

// The first or last code point of valid, non-empty UTF-8.
char32_t first_code_point(std::string_view text);
char32_t last_code_point(std::string_view text);

void append_utf8(char32_t code_point, std::string* out);

}  // namespace wideep::base
