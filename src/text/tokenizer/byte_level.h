// SPDX-License-Identifier: Apache-2.0
//
// The byte-level alphabet, in which a tokenizer.json writes arbitrary bytes as printable
// characters.
//
// Each byte has one character. The bytes of printable Latin-1 ('!'..'~', U+00A1..U+00AC,
// U+00AE..U+00FF) have the character of the same number; the other 68 bytes have U+0100, U+0101,
// ... in order: a space is U+0120 'Ġ', a newline U+010A 'Ċ'. Source: GPT-2's encoder
// (bytes_to_unicode).
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wideep::tokenizer {

// The character of a byte, as UTF-8.
std::string_view byte_level_char(uint8_t byte);

// Writes bytes in the alphabet: " a" becomes "Ġa".
std::string to_byte_level(std::string_view bytes);

// The bytes that a token represents. A token with a character outside the alphabet, such as the
// special token "<｜end▁of▁sentence｜>", represents its own UTF-8, as in the tokenizers library.
std::string bytes_of_token(std::string_view token);

}  // namespace wideep::tokenizer
