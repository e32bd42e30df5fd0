// SPDX-License-Identifier: Apache-2.0
#include "ep/token_destinations.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace wideep::ep {

TokenDestinations::TokenDestinations(const DispatchShape& shape)
    : top_k_(shape.top_k),
      local_slots_(shape.local_slots()),
      num_owners_(shape.num_owners()),
      num_slices_(shape.num_slices),
      owner_of_(static_cast<size_t>(shape.top_k)),
      place_of_(static_cast<size_t>(shape.top_k)),
      ranks_(static_cast<size_t>(shape.ep_size)),
      num_slots_(static_cast<size_t>(shape.num_owners())),
      owner_bits_(static_cast<size_t>((shape.num_owners() + kOwnersInWord - 1) / kOwnersInWord)) {
  // A table, because dividing by local_slots, which is not a constant, takes longer than a
  // lookup.
  for (int slot = 0; slot < shape.num_slots(); ++slot) {
    slot_owners_.push_back(slot / shape.local_slots());
  }
}

// No branch depends on a slot's owner: it could not be predicted, and one misprediction costs as
// much as the whole loop. So owners are collected as bits, and listed once at the end.
bool TokenDestinations::find(const int32_t* slots) {
  const std::span<const int32_t> slot_owners = slot_owners_;
  int32_t* const num_slots = num_slots_.data();
  const int top_k = top_k_;
  // The bits of the first 64 owners, often all of them, are kept in a register. In memory, each
  // update would wait for the store of the one before.
  uint64_t first_owners = 0;
  for (int k = 0; k < top_k; ++k) {
    const auto slot = static_cast<uint32_t>(slots[k]);  // a negative slot becomes too large
    if (slot >= slot_owners.size()) return false;
    const auto owner = static_cast<uint32_t>(slot_owners[slot]);
    owner_of_[k] = static_cast<int32_t>(owner);
    place_of_[k] = num_slots[owner]++;
    const uint64_t bit = uint64_t{1} << owner % kOwnersInWord;
    if (owner < kOwnersInWord) {
      first_owners |= bit;
    } else {
      owner_bits_[owner / kOwnersInWord] |= bit;
    }
  }
  owner_bits_[0] = first_owners;
  return list_ranks();
}

// Lists the owners whose bits are set, in ascending order, and clears the bits. False: the token
// has more slots of an owner than the owner has.
bool TokenDestinations::list_ranks() {
  size_t count = 0;
  int32_t max = 0;
  for (size_t word = 0; word < owner_bits_.size(); ++word) {
    const auto first = static_cast<int32_t>(word * kOwnersInWord);
    for (uint64_t left = std::exchange(owner_bits_[word], 0); left != 0; left &= left - 1) {
      ranks_[count] = first + std::countr_zero(left);
      max = std::max(max, num_slots_[ranks_[count++]]);
    }
  }
  num_found_owners_ = count;
  num_found_ranks_ = count * static_cast<size_t>(num_slices_);
  for (; count < num_found_ranks_; ++count) {
    ranks_[count] = ranks_[count - num_found_owners_] + num_owners_;
  }
  return max <= local_slots_;
}

}  // namespace wideep::ep
