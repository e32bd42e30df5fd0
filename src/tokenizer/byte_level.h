// SPDX-License-Identifier: Apache-2.0
//
// The byte-level alphabet: how a tokenizer.json writes arbitrary bytes as printable characters.
//
// Each byte has one character. Printable Latin-1 ('!'..'~', U+00A1..U+00AC, U+00AE..U+00FF) stands
// for itself; the other 68 bytes, in order, are U+0100, U+0101, ...: a space is U+0120 'Ġ', a
// newline U+010A 'Ċ'. Source: GPT-2's encoder (bytes_to_unicode).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace wideep::tokenizer {

// The character of a byte, as UTF-8.
std::string_view byte_level_char(uint8_t byte);

// Bytes written in the alphabet: " a" becomes "Ġa".
std::string to_byte_level(std::string_view bytes);

// The bytes that a token stands for. A token with a character outside the alphabet (a special token
// such as "<｜end▁of▁sentence｜>") stands for its own UTF-8, as in the tokenizers library's
// decoder.
std::string bytes_of_token(std::string_view token);

}  // namespace wideep::tokenizer
