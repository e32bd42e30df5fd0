// SPDX-License-Identifier: Apache-2.0
//
// The ranks that have a token's slots.
//
// An owner is the rank that has a slot or, where experts are cut into slices, the rank that has the
// first slice of it: ranks 0 … num_owners − 1. The other slices of owner o's slots are on ranks
// o + num_owners, o + 2 · num_owners, …
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

  // Looks at a token's slots: [top_k] global slot ids. False, and what follows is undefined: there
  // is no such slot, or the token wants more slots of an owner than that has (one of them twice).
  // REQUIRES: take_slots_on has been called for all owners of the token before.
  bool find(const int32_t* slots);

  // All of the token that was found last.
  // [top_k] each slot's owner; and its place among the token's slots there: 0, 1, …
  std::span<const int32_t> owner_of_slot() const { return owner_of_; }
  std::span<const int32_t> place_of_slot() const { return place_of_; }
  // The different owners in ascending order, and how many of the token's slots an owner has.
  std::span<const int32_t> owners() const { return std::span(ranks_).first(num_found_owners_); }
  int32_t num_slots_on(int32_t owner) const { return num_slots_[owner]; }
  // The same, which starts the owner's count anew for the next token: the loop over owners that
  // needs it last clears it without another.
  int32_t take_slots_on(int32_t owner) { return std::exchange(num_slots_[owner], 0); }
  // The ranks of all slices, in ascending order. (With whole experts these are the owners.)
  std::span<const int32_t> ranks() const { return std::span(ranks_).first(num_found_ranks_); }

 private:
  static constexpr int kOwnersInWord = 64;

  bool list_ranks();

  int top_k_, slots_per_rank_, num_owners_, num_slices_;
  std::vector<int32_t> slot_owners_;  // [num_slots]
  std::vector<int32_t> owner_of_;     // [top_k]
  std::vector<int32_t> place_of_;     // [top_k]
  std::vector<int32_t> ranks_;        // [ep_size], of which the first are the token's
  size_t num_found_owners_ = 0, num_found_ranks_ = 0;
  std::vector<int32_t> num_slots_;    // [num_owners]; 0 but for the owners found, see take_slots_on
  std::vector<uint64_t> owner_bits_;  // [num_owners] bits: has any slot; 0 between calls of find
};

}  // namespace wideep::ep
