// SPDX-License-Identifier: Apache-2.0
//
// What a rank's cache says of its known pages to those who keep them elsewhere (engine/page_store.h)
// and to those who want to know where a prefix is (run::PagesChanged).
//
// Thread safety: plain values; KeptBytes may be read by another thread than the cache's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/record.h"

namespace wideep::engine {

// A page has become known and is computed, or is known no more.
struct PageChange {
  bool is_known = true;
  bool is_salted = false;  // only requests with the same salt find it
  int32_t page = 0;        // its number in the sequence, from 0
  store::Name name;
  store::Name before;                                   // of a page that is known
  std::array<int32_t, store::kPageTokens> tokens = {};  // likewise
};

// Counts how often other contents were written over some bytes. Who copies them while they may be
// written sees afterwards whether the copy is what was there (a seqlock without waiting writers).
class Version {
 public:
  // Before the bytes are written.
  void change() {
    value_.fetch_add(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
  }
  uint64_t now() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

// A page or a snapshot of a state that is computed, as long as is_intact().
struct KeptBytes {
  store::Head head;  // without its part
  const std::byte* bytes = nullptr;
  const Version* version = nullptr;  // lives as long as the cache
  uint64_t seen = 0;
  bool is_imported = false;  // it has come from a place where it is kept

  // After the bytes were copied.
  bool is_intact() const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return version->now() == seen;
  }
};

// In the order in which it has happened.
struct PageNews {
  std::vector<PageChange> changes;
  std::vector<KeptBytes> kept;  // of this rank's own pages

  bool empty() const { return changes.empty() && kept.empty(); }
};

}  // namespace wideep::engine
