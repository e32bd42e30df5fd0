// SPDX-License-Identifier: Apache-2.0
//
// Kinds of characters, each by the Unicode version of the table that the tokenizers library uses
// for it. golden_test.cc compares every code point.
//
// Thread safety: pure functions.
#pragma once

#include <string>

namespace wideep::tokenizer {

// White_Space, which has not changed since Unicode 6.3.
bool is_white_space(char32_t c);

// \w of Unicode Technical Standard 18, annex C (letters, marks, digits, connectors, joiners), of
// Unicode 16.
bool is_word_character(char32_t c);

// Categories Nd, Nl and No, of Unicode 17.
bool is_numeric(char32_t c);

// ASCII punctuation and symbols, and category P of Unicode 8.
bool is_punctuation(char32_t c);

// Category M of Unicode 9.
bool is_mark(char32_t c);

// Appends the lower case of one character, of Unicode 17: only U+0130 has two.
void append_lower_case(char32_t c, std::string* out);

}  // namespace wideep::tokenizer
