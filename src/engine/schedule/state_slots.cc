// SPDX-License-Identifier: Apache-2.0
//
// Slots are numbers into one block of memory. Running sequences count on a slot, snapshots use what
// is left, so free_slot() may take a snapshot's but never a sequence's. Its order (used, untouched,
// snapshot) keeps memory small and snapshots long. Slots for drafts are a stack apart: a step must
// be able to rely on those that it was promised.
#include "schedule/state_slots.h"

#include <cstring>

#include "base/check.h"

namespace wideep::engine {

StateSlots::StateSlots(size_t slot_bytes, int max_slots, int draft_slots)
    : slot_bytes_(slot_bytes),
      max_slots_(max_slots),
      memory_(slot_bytes * static_cast<size_t>(max_slots + draft_slots)),
      versions_(static_cast<size_t>(max_slots + draft_slots)) {
  // The last one is lent first.
  for (int i = draft_slots - 1; i >= 0; --i) for_drafts_.push_back(max_slots + i);
}

std::byte* StateSlots::bytes(SlotId slot) {
  return memory_.data() + static_cast<size_t>(slot) * slot_bytes_;
}

void StateSlots::copy(SlotId from, SlotId to) {
  if (slot_bytes_ > 0) std::memcpy(bytes(to), bytes(from), slot_bytes_);
}

// In order of preference: a slot that was used before, new memory, the least recently used
// snapshot. kNone: all slots belong to running sequences. Whatever is written into a slot after it
// was a snapshot, the slot comes from here: so its version changes here.
StateSlots::SlotId StateSlots::free_slot() {
  SlotId slot = kNone;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else if (num_touched_ < max_slots_) {
    slot = num_touched_++;
  } else if (!used_.empty()) {
    slot = detach(snapshots_.find(used_.front()));
  }
  if (slot != kNone) versions_[static_cast<size_t>(slot)].change();
  return slot;
}

// Removes the snapshot from the index; its slot belongs to the caller.
StateSlots::SlotId StateSlots::detach(std::unordered_map<Prefix, Snapshot>::iterator snapshot) {
  const SlotId slot = snapshot->second.slot;
  used_.erase(snapshot->second.used);
  snapshots_.erase(snapshot);
  return slot;
}

const StateSlots::Snapshot& StateSlots::use(Prefix prefix) {
  const auto found = snapshots_.find(prefix);
  WIDEEP_CHECK(found != snapshots_.end());
  used_.splice(used_.end(), used_, found->second.used);
  return found->second;
}

StateSlots::SlotId StateSlots::take(Prefix prefix) {
  WIDEEP_CHECK_LT(num_states_, max_slots_);
  ++num_states_;
  if (prefix == kNoTokens) {
    const bool fresh = free_.empty() && num_touched_ < max_slots_;
    const SlotId slot = free_slot();
    if (!fresh && slot_bytes_ > 0) std::memset(bytes(slot), 0, slot_bytes_);
    return slot;
  }
  // Used last, it is the last to go: only if it is the only one.
  const SlotId from = use(prefix).slot;
  const SlotId slot = free_slot();
  if (slot != from) copy(from, slot);
  return slot;
}

void StateSlots::restore(SlotId state, Prefix prefix) { copy(use(prefix).slot, state); }

void StateSlots::release(SlotId state) {
  --num_states_;
  free_.push_back(state);
}

StateSlots::SlotId StateSlots::lend() {
  WIDEEP_CHECK(!for_drafts_.empty());
  const SlotId slot = for_drafts_.back();
  for_drafts_.pop_back();
  return slot;
}

bool StateSlots::keep(SlotId state, Prefix prefix) {
  WIDEEP_CHECK(prefix != kNoTokens);
  if (knows(prefix)) {
    use(prefix);
    return false;
  }
  const SlotId slot = free_slot();
  if (slot == kNone) return false;
  copy(state, slot);
  snapshots_.emplace(prefix, Snapshot{.slot = slot, .used = used_.insert(used_.end(), prefix)});
  return true;
}

StateSlots::SlotId StateSlots::reserve() {
  WIDEEP_CHECK_LT(num_states_, max_slots_);
  ++num_states_;
  return free_slot();
}

bool StateSlots::adopt(SlotId reserved, Prefix prefix) {
  if (knows(prefix)) {
    use(prefix);
    release(reserved);
    return false;
  }
  --num_states_;
  snapshots_.emplace(prefix, Snapshot{.slot = reserved, .used = used_.insert(used_.end(), prefix)});
  return true;
}

void StateSlots::drop(Prefix prefix) {
  const auto found = snapshots_.find(prefix);
  if (found != snapshots_.end()) free_.push_back(detach(found));
}

}  // namespace wideep::engine
