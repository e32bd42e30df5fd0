// SPDX-License-Identifier: Apache-2.0
#include "plan/moves.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace wideep::balance {
namespace {

void check_same_sizes(const Placement& from, const Placement& to) {
  WIDEEP_CHECK_EQ(from.num_experts, to.num_experts);
  WIDEEP_CHECK_EQ(from.ep_size, to.ep_size);
  WIDEEP_CHECK_EQ(from.num_slots(), to.num_slots());
}

// A slot of the rank's slots [begin, end) where `to` has the expert and `from` has another one, so
// that the expert may leave it; end: none.
size_t loose_slot(const Placement& from, const Placement& to, int32_t expert, size_t begin,
                  size_t end) {
  size_t slot = begin;
  while (slot < end && !(to.slot_to_expert[slot] == expert && from.slot_to_expert[slot] != expert))
    ++slot;
  return slot;
}

// Compares multisets without building them. Counts only the rank's slots [begin, begin + count)
// that differ: the replica in `slot` is new if `to` has the expert in more of them, up to and
// including `slot`, than `from` has in all.
bool is_new(const Placement& from, const Placement& to, size_t slot, size_t begin, size_t count) {
  const int32_t expert = to.slot_to_expert[slot];
  if (expert == kUnusedSlot) return false;
  int surplus = 1;
  for (size_t i = begin; i < begin + count; ++i) {
    if (from.slot_to_expert[i] == to.slot_to_expert[i]) continue;
    surplus += i < slot && to.slot_to_expert[i] == expert;
    surplus -= from.slot_to_expert[i] == expert;
  }
  return surplus > 0;
}

// Calls swap(slot, other) for the exchanges that align `to`, which swap() must make at once. Greedy
// is enough: an exchange puts one expert on its old slot and takes no other expert from its own.
template <typename Swap>
void align(const Placement& from, const Placement& to, Swap swap) {
  check_same_sizes(from, to);
  const auto count = static_cast<size_t>(from.slots_per_rank());
  for (size_t begin = 0; begin < from.slot_to_expert.size(); begin += count) {
    const size_t end = begin + count;
    for (size_t slot = begin; slot < end; ++slot) {
      if (to.slot_to_expert[slot] == from.slot_to_expert[slot]) continue;
      const size_t other = loose_slot(from, to, from.slot_to_expert[slot], begin, end);
      if (other < end) swap(slot, other);
    }
  }
}

}  // namespace

// Slots that agree cancel out: only the others are compared.
int count_moves(const Placement& from, const Placement& to) {
  check_same_sizes(from, to);
  const auto count = static_cast<size_t>(from.slots_per_rank());
  int moves = 0;
  for (size_t slot = 0; slot < to.slot_to_expert.size(); ++slot) {
    if (from.slot_to_expert[slot] == to.slot_to_expert[slot]) continue;
    moves += is_new(from, to, slot, slot - slot % count, count);
  }
  return moves;
}

Placement align_slots(const Placement& from, Placement to) {
  align(from, to, [&](size_t slot, size_t other) {
    std::swap(to.slot_to_expert[slot], to.slot_to_expert[other]);
  });
  return to;
}

void align_slots(const Placement& from, LayerPlan* to) {
  align(from, to->placement, [&](size_t slot, size_t other) {
    std::swap(to->placement.slot_to_expert[slot], to->placement.slot_to_expert[other]);
    std::swap(to->shares[slot], to->shares[other]);
  });
}

}  // namespace wideep::balance
