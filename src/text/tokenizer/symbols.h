// SPDX-License-Identifier: Apache-2.0
//
// The tokens with which byte-pair encoding starts: one for each byte of a word, or one for each
// character, as SentencePiece's kind of tokenizers does.
//
// A character without a token becomes the tokens of its bytes ("<0xE4>"), where all of them exist
// and the file asks for it (byte_fallback); else the unknown token, of which neighbours may be one
// (fuse_unk); else nothing. As in the tokenizers library, an unknown token waits for the next
// character that has a token or is unknown too, so that bytes may overtake it.
//
// Thread safety: constant after construction.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace wideep::tokenizer {

class Symbols {
 public:
  static constexpr int32_t kNone = -1;
  using ByteIds = std::array<int32_t, 256>;

  // One for each byte.
  Symbols(const ByteIds& byte_ids) : of_byte_(byte_ids) {}  // NOLINT: a table is the symbols

  // One for each character.
  struct Characters {
    std::vector<int32_t> near;                  // [code point]
    std::unordered_map<char32_t, int32_t> far;  // of code points beyond `near`
    ByteIds fallback{};                         // of "<0x00>" ...; all kNone: no byte_fallback
    int32_t unknown = kNone;
    bool fuses_unknown = false;
  };
  explicit Symbols(Characters characters)
      : of_byte_{}, by_character_(true), characters_(std::move(characters)) {}

  bool by_character() const { return by_character_; }

  // REQUIRES: symbols are bytes.
  int32_t of_byte(char byte) const { return of_byte_[static_cast<uint8_t>(byte)]; }

  // Appends the symbols of a word. REQUIRES: symbols are characters, and valid UTF-8.
  void append(std::string_view word, std::vector<int32_t>* ids) const;

 private:
  int32_t id_of(char32_t character) const;
  bool append_bytes(std::string_view character, std::vector<int32_t>* ids) const;

  ByteIds of_byte_;
  bool by_character_ = false;
  Characters characters_;
};

}  // namespace wideep::tokenizer
