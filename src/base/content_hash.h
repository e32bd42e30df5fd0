// SPDX-License-Identifier: Apache-2.0
//
// Do these bytes still say what they said? A 64-bit hash (XXH3) against accidents of memory and of
// programs, not against people: as fast as memory is read.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace wideep::base {

uint64_t content_hash(const std::byte* bytes, size_t num_bytes);

// Of a text, as 16 hexadecimal digits.
std::string content_hash_hex(std::string_view text);

// Copies and returns the hash of what now lies at `to`, read back piece by piece while the pieces
// are still in the cache: hardly slower than a copy alone. between: called after each piece of
// 128 KiB; false ends the copy, whose hash then means nothing.
template <typename Between>
uint64_t copy_and_hash(const std::byte* from, std::byte* to, size_t num_bytes, Between between);

// ---- the pieces of it ----

class HashedCopy {
 public:
  static constexpr size_t kPieceBytes = size_t{128} << 10;

  HashedCopy();
  ~HashedCopy();
  HashedCopy(const HashedCopy&) = delete;
  HashedCopy& operator=(const HashedCopy&) = delete;

  void copy(const std::byte* from, std::byte* to, size_t num_bytes);
  uint64_t hash() const;

 private:
  void* state_;
};

template <typename Between>
uint64_t copy_and_hash(const std::byte* from, std::byte* to, size_t num_bytes, Between between) {
  HashedCopy copy;
  for (size_t at = 0; at < num_bytes; at += HashedCopy::kPieceBytes) {
    const size_t left = num_bytes - at;
    copy.copy(from + at, to + at, left < HashedCopy::kPieceBytes ? left : HashedCopy::kPieceBytes);
    if (!between()) break;
  }
  return copy.hash();
}

}  // namespace wideep::base
