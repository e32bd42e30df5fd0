// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace wideep::tokenizer {

// (left id, right id) -> the merge's rank and the id of the merged token: a hash table with open
// addressing, because a look-up per pair of neighbours is where encoding spends its time.
// Thread safety: as a plain value.
class MergeTable {
 public:
  struct Merge {
    int32_t rank = -1;  // the lower, the earlier; -1: no such merge
    int32_t merged = -1;
  };

  explicit MergeTable(size_t num_merges);

  // A pair that is there already gets the new merge, as in the tokenizers library.
  // REQUIRES: no more different pairs than the constructor was told.
  void set(int32_t left, int32_t right, Merge merge);

  Merge find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[slot_of(key(left, right))];
    return slot.merge;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no key: ids are below 2^31

  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  // The slot that holds the key, or the empty one where it would be.
  size_t slot_of(uint64_t key) const {
    // Fibonacci hashing: the odd number next to 2^64 / golden ratio spreads neighbouring ids.
    size_t at = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  int shift_;  // 64 - log2(number of slots)
  std::vector<Slot> slots_;
};

}  // namespace wideep::tokenizer
