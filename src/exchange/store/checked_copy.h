// SPDX-License-Identifier: Apache-2.0
//
// Copies bytes that others may be changing, and hashes what it has copied: where the hash is that
// of the writer, so are the bytes.
//
// Thread safety: an object belongs to one thread. The copied bytes may be written meanwhile: that
// is what the hash is for. (To the language this is a race; the thread sanitizer is told so.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace wideep::store {

class CheckedCopy {
 public:
  // num_bytes: of all that will be copied.
  explicit CheckedCopy(uint64_t num_bytes);
  // Continues behind what was copied before. What is long is in memory afterwards, not in the cache
  // of the core: its reader comes later. Fastest where `to` is on a boundary of 32 bytes, and all
  // lengths but the last are multiples of 1,024.
  void copy(const std::byte* from, std::byte* to, size_t num_bytes);
  // XXH3 of the copy (base::content_hash). Others see the bytes after this call.
  // REQUIRES: all bytes are copied.
  uint64_t hash() const;

 private:
  static constexpr size_t kStripe = 64, kBlock = 1024;  // of the hash

  std::array<uint64_t, 24> secret_;
  alignas(64) std::array<uint64_t, 8> sums_;
  // A block that came in pieces, or the last one, with the stripe before it.
  std::array<std::byte, kStripe + kBlock> recent_ = {};
  size_t pending_ = 0;  // bytes of that block
  uint64_t num_bytes_ = 0, copied_ = 0;
};

}  // namespace wideep::store
