// SPDX-License-Identifier: Apache-2.0
#include "store/record.h"

#include "base/sha256.h"

namespace wideep::store {
namespace {

Name first_half(const base::Sha256& hash) {
  const auto digest = hash.digest();
  Name name;
  std::copy_n(digest.begin(), name.bytes.size(), name.bytes.begin());
  return name;
}

}  // namespace

std::string Name::hex() const {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// The length of the class separates it from the salt.
Name root_name(std::string_view record_class, std::string_view salt) {
  const uint64_t length = record_class.size();
  base::Sha256 hash;
  hash.update(&length, sizeof(length));
  hash.update(record_class.data(), record_class.size());
  hash.update(salt.data(), salt.size());
  return first_half(hash);
}

Name page_name(const Name& before, int32_t form, std::span<const int32_t, kPageTokens> tokens) {
  base::Sha256 hash;
  hash.update(before.bytes.data(), before.bytes.size());
  hash.update(&form, sizeof(form));
  hash.update(tokens.data(), tokens.size_bytes());
  return first_half(hash);
}

// Walks the pieces of `to`; pieces of `from` are in order, so each is found by division.
uint64_t copy_overlap(const Part& from_part, std::span<const std::byte> from, const Part& to_part,
                      std::span<std::byte> to) {
  if (from_part.bytes() == 0 || to_part.bytes() == 0) return 0;
  uint64_t copied = 0;
  for (uint64_t i = 0; i < to_part.count; ++i) {
    const uint64_t begin = to_part.first + i * to_part.stride;
    const uint64_t end = begin + to_part.length;
    if (end <= from_part.first) continue;
    uint64_t j = begin <= from_part.first || from_part.stride == 0
                     ? 0
                     : (begin - from_part.first) / from_part.stride;
    for (; j < from_part.count; ++j) {
      const uint64_t piece = from_part.first + j * from_part.stride;
      if (piece >= end) break;
      const uint64_t low = std::max(begin, piece);
      const uint64_t high = std::min(end, piece + from_part.length);
      if (low >= high) continue;
      std::memcpy(to.data() + i * to_part.length + (low - begin),
                  from.data() + j * from_part.length + (low - piece), high - low);
      copied += high - low;
    }
  }
  return copied;
}

}  // namespace wideep::store
