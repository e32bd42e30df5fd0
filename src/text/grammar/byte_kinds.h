// SPDX-License-Identifier: Apache-2.0
//
// Kinds of bytes that rules seldom tell apart, so that what is below a node of a TokenTrie can be
// decided at once where a state takes all kinds that occur there and stays the same.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>

namespace wideep::grammar {

enum ByteKind : uint16_t {
  kLowerLetters = 1,
  kUpperLetters = 2,
  kDigitBytes = 4,
  kSpaceByte = 8,
  kQuoteBytes = 16,  // " and \, which JSON escapes
  kControlBytes = 32,
  kAngleBytes = 64,   // < and >, of which marks are made
  kOtherSigns = 128,  // all other ASCII
  kCharacters = 256,  // whole characters beyond ASCII, the last one of a token perhaps cut short
  kBrokenBytes = 512  // what is no UTF-8, and special tokens
};

constexpr ByteKind ascii_kind(uint8_t byte) {
  if (byte >= 'a' && byte <= 'z') return kLowerLetters;
  if (byte >= 'A' && byte <= 'Z') return kUpperLetters;
  if (byte >= '0' && byte <= '9') return kDigitBytes;
  if (byte == ' ') return kSpaceByte;
  if (byte == '"' || byte == '\\') return kQuoteBytes;
  if (byte < 0x20 || byte == 0x7f) return kControlBytes;
  if (byte == '<' || byte == '>') return kAngleBytes;
  return kOtherSigns;
}

// Bytes of a character as they come: which may be next, and how many then lack.
struct CharacterRest {
  uint8_t first = 0, last = 0;  // 0: none lacks
  int more = 0;

  bool is_whole() const { return last == 0; }
  // Whether the byte goes on with it, or begins another one. After a byte that does not: nothing
  // is known of it.
  bool take(uint8_t byte) {
    if (!is_whole()) {
      if (byte < first || byte > last) return false;
      *this = more > 0 ? CharacterRest{0x80, 0xbf, more - 1} : CharacterRest{};
      return true;
    }
    if (byte < 0x80) return true;
    if (byte < 0xc2 || byte > 0xf4) return false;
    *this = {0x80, 0xbf, byte >= 0xf0 ? 2 : byte >= 0xe0 ? 1 : 0};
    if (byte == 0xe0) first = 0xa0;
    if (byte == 0xed) last = 0x9f;  // no surrogates
    if (byte == 0xf0) first = 0x90;
    if (byte == 0xf4) last = 0x8f;
    return true;
  }
  auto operator<=>(const CharacterRest&) const = default;
};

}  // namespace wideep::grammar
