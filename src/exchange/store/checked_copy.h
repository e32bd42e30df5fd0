// SPDX-License-Identifier: Apache-2.0
//
// Copies bytes that others may be changing, and hashes what it has copied: where the hash is that
// of the writer, so are the bytes.
//
// Thread safety: an object belongs to one thread. The copied bytes may be written meanwhile: that
// is what the hash is for. (To the language this is a race; the thread sanitizer is told so.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/content_hash.h"

namespace wideep::store {

class CheckedCopy {
 public:
  // Continues behind what was copied before. `to` is in memory when it returns, not in the cache of
  // the core if it is long: its reader comes later.
  void copy(const std::byte* from, std::byte* to, size_t num_bytes);
  // XXH3 of all bytes that it has copied (base::content_hash).
  uint64_t hash() const { return hash_.hash(); }

 private:
  base::HashedCopy hash_;
};

}  // namespace wideep::store
