// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/symbols.h"

#include "tokenizer/utf8.h"

namespace wideep::tokenizer {

int32_t Symbols::id_of(char32_t character) const {
  if (character < characters_.near.size()) return characters_.near[character];
  const auto found = characters_.far.find(character);
  return found == characters_.far.end() ? kNone : found->second;
}

bool Symbols::append_bytes(std::string_view character, std::vector<int32_t>* ids) const {
  for (const char byte : character) {
    if (characters_.fallback[static_cast<uint8_t>(byte)] == kNone) return false;
  }
  for (const char byte : character) {
    ids->push_back(characters_.fallback[static_cast<uint8_t>(byte)]);
  }
  return true;
}

void Symbols::append(std::string_view word, std::vector<int32_t>* ids) const {
  bool waits = false;  // an unknown token that is not appended yet
  while (!word.empty()) {
    const std::string_view character = word.substr(0, first_unit(word).bytes);
    word.remove_prefix(character.size());
    const int32_t id = id_of(first_code_point(character));
    if (id != kNone) {
      if (waits) ids->push_back(characters_.unknown);
      waits = false;
      ids->push_back(id);
    } else if (!append_bytes(character, ids) && characters_.unknown != kNone) {
      if (waits && !characters_.fuses_unknown) ids->push_back(characters_.unknown);
      waits = true;
    }
  }
  if (waits) ids->push_back(characters_.unknown);
}

}  // namespace wideep::tokenizer
