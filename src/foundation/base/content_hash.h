// SPDX-License-Identifier: Apache-2.0
//
// A 64-bit hash (XXH3) that detects bytes changed by faulty memory or by a bug. It does not resist
// an attacker. Its speed is that of reading the memory.
//
// Thread safety: pure functions; a StreamedHash and a HashedCopy belong to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace wideep::base {

uint64_t content_hash(const std::byte* bytes, size_t num_bytes);

// The hash of a text as 16 hexadecimal digits.
std::string content_hash_hex(std::string_view text);

// XXH3's secret, for those that compute the hash elsewhere (cuda/record_hash.h): its 192 bytes as
// little-endian words.
std::array<uint64_t, 24> content_hash_secret();

// Copies num_bytes and returns the hash of the bytes at `to`. Each piece of 128 KiB is hashed while
// it is still in the cache, so that the hash adds little time to the copy. after_piece(): called
// after each piece; where it returns false, the copy ends early and the returned hash is not that
// of the whole.
template <typename AfterPiece>
uint64_t copy_and_hash(const std::byte* from, std::byte* to, size_t num_bytes,
                       AfterPiece after_piece);

// The hash of bytes that come in consecutive pieces: that of all of them as one.
class StreamedHash {
 public:
  StreamedHash();
  ~StreamedHash();
  StreamedHash(const StreamedHash&) = delete;
  StreamedHash& operator=(const StreamedHash&) = delete;

  void reset();  // as after construction
  void update(const std::byte* bytes, size_t num_bytes);
  uint64_t hash() const;

 private:
  void* state_;  // XXH3_state_t
};

// ---- implementation ----

// Copies consecutive pieces and keeps the hash of all of them.
class HashedCopy {
 public:
  static constexpr size_t kPieceBytes = size_t{128} << 10;

  void copy(const std::byte* from, std::byte* to, size_t num_bytes);
  uint64_t hash() const { return hash_.hash(); }

 private:
  StreamedHash hash_;
};

template <typename AfterPiece>
uint64_t copy_and_hash(const std::byte* from, std::byte* to, size_t num_bytes,
                       AfterPiece after_piece) {
  HashedCopy copy;
  for (size_t at = 0; at < num_bytes; at += HashedCopy::kPieceBytes) {
    const size_t left = num_bytes - at;
    copy.copy(from + at, to + at, left < HashedCopy::kPieceBytes ? left : HashedCopy::kPieceBytes);
    if (!after_piece()) break;
  }
  return copy.hash();
}

}  // namespace wideep::base
