// SPDX-License-Identifier: Apache-2.0
//
// Records for tests of places: their bytes follow from their names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "store/record.h"

namespace wideep::store {

// A page of a sequence of its own, whole. sequence: its tokens.
inline std::vector<Head> sequence_of(int32_t sequence, uint32_t pages, uint64_t bytes) {
  std::vector<Head> heads(pages);
  Name before = root_name("test", "");
  for (uint32_t i = 0; i < pages; ++i) {
    Head& head = heads[i];
    head.tokens.fill(sequence * 1000 + static_cast<int32_t>(i));
    head.page = i;
    head.before = before;
    head.name = before = page_name(before, 0, head.tokens);
    head.canonical_bytes = bytes;
    head.part = Part::whole(bytes);
  }
  return heads;
}

// Byte `at` of the canonical form is one of word at ÷ 8.
inline uint64_t word_of(const Head& head, uint64_t index) {
  const uint64_t word = (index + 1) * (NameHash()(head.name) | 1);
  return word ^ word >> 29;
}

inline std::vector<std::byte> payload_of(const Head& head) {
  std::vector<std::byte> bytes(head.part.bytes());
  for (uint64_t i = 0, to = 0; i < head.part.count; ++i) {
    uint64_t at = head.part.first + i * head.part.stride;
    uint64_t word = word_of(head, at / 8) >> at % 8 * 8;
    for (uint64_t k = 0; k < head.part.length; ++k, ++at, word >>= 8) {
      if (at % 8 == 0) word = word_of(head, at / 8);
      bytes[to++] = static_cast<std::byte>(word);
    }
  }
  return bytes;
}

inline const std::function<bool()> kIntact = [] { return true; };

}  // namespace wideep::store
