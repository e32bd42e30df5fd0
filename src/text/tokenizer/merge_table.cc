// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/merge_table.h"

#include <bit>

namespace wideep::tokenizer {

// At least twice as many slots as merges: look-ups stay short, and that of a missing pair always
// ends at an empty slot.
MergeTable::MergeTable(size_t num_merges)
    : shift_(63 - std::bit_width(num_merges + 1)), slots_(size_t{1} << (64 - shift_)) {}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = key(left, right);
  slots_[slot_of(pair)] = {pair, merge};
}

}  // namespace wideep::tokenizer
