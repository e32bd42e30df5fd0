// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace wideep::tokenizer {

// Maps (left id, right id) to the rank of their merge and the id of the merged token. A hash table
// with open addressing, because encoding spends most of its time in these look-ups. Thread safety:
// as a plain value.
class MergeTable {
 public:
  struct Merge {
    int32_t rank = -1;    // the lowest rank is merged first; -1: no such merge
    int32_t merged = -1;  // id of the merged token
  };

  explicit MergeTable(size_t num_merges);

  // Replaces the merge of a pair that is already present, as the tokenizers library does.
  // REQUIRES: at most num_merges different pairs.
  void set(int32_t left, int32_t right, Merge merge);

  Merge find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[slot_of(key(left, right))];
    return slot.merge;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // not a key, because ids are below 2^31

  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  // The slot that holds the key, or the empty slot where it would be inserted.
  size_t slot_of(uint64_t key) const {
    // Fibonacci hashing (Knuth, volume 3, section 6.4): a multiplication by the odd number nearest
    // to 2^64 / golden ratio spreads neighbouring ids over the table.
    size_t at = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  int shift_;  // 64 - log2(number of slots)
  std::vector<Slot> slots_;
};

}  // namespace wideep::tokenizer
