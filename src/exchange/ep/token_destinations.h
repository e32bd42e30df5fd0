// SPDX-License-Identifier: Apache-2.0
//
// Finds the ranks that have a token's slots.
//
// The owner of a slot is the rank that has it. If experts are split into slices, it is the rank
// with the first slice: one of ranks 0 … num_owners − 1. The other slices of owner o's slots are on
// ranks o + num_owners, o + 2 · num_owners, …
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ep/buffer_layout.h"

namespace wideep::ep {

class TokenDestinations {
 public:
  explicit TokenDestinations(const DispatchShape& shape);

  // Finds the owners of a token's slots. slots: [top_k] global slot ids. False, with the results
  // below undefined: a slot does not exist, or the token has more slots of an owner than the owner
  // has. REQUIRES: take_slots_on has been called for every owner of the previous token.
  bool find(const int32_t* slots);

  // The results of the last find.
  // [top_k] the owner of each slot; and its index among the token's slots on that owner: 0, 1, …
  std::span<const int32_t> owner_of_slot() const { return owner_of_; }
  std::span<const int32_t> place_of_slot() const { return place_of_; }
  // The distinct owners, ascending; and the number of the token's slots on an owner.
  std::span<const int32_t> owners() const { return std::span(ranks_).first(num_found_owners_); }
  int32_t num_slots_on(int32_t owner) const { return num_slots_[owner]; }
  // As num_slots_on, and resets the owner's count for the next token. The caller's last loop over
  // the owners calls it, which saves a loop for clearing.
  int32_t take_slots_on(int32_t owner) { return std::exchange(num_slots_[owner], 0); }
  // The ranks of all slices, ascending. Without slices these are the owners.
  std::span<const int32_t> ranks() const { return std::span(ranks_).first(num_found_ranks_); }

 private:
  static constexpr int kOwnersInWord = 64;

  bool list_ranks();

  int top_k_, local_slots_, num_owners_, num_slices_;
  std::vector<int32_t> slot_owners_;  // [num_slots]
  std::vector<int32_t> owner_of_;     // [top_k]
  std::vector<int32_t> place_of_;     // [top_k]
  std::vector<int32_t> ranks_;        // [ep_size]; the first num_found_ranks_ are valid
  size_t num_found_owners_ = 0, num_found_ranks_ = 0;
  std::vector<int32_t> num_slots_;  // [num_owners]; 0 except for the found owners
  std::vector<uint64_t>
      owner_bits_;  // [num_owners] bits: owner has a slot; 0 between calls of find
};

}  // namespace wideep::ep
