// SPDX-License-Identifier: Apache-2.0
//
// Slots for the states of sequences (model/state_layout.h), beside the pages of the KV cache. All
// slots are equally large and lie in one allocation. A slot holds
//
//   the state of a running sequence, which the forward pass advances, or
//   a snapshot: a copy of a state at the end of a full page, for sequences with the same prefix, or
//   a state after a draft, until it is known how many drafts were right (engine/speculation).
//
// A page holds the keys and values of its own tokens; a state sums up all tokens before it. So a
// known prefix (schedule/page_cache.h) can be shared only as far as a snapshot exists. Running
// sequences come first: if one needs a slot and none is free, the least recently used snapshot
// goes. Slots for drafts are apart from both.
//
// The first touch of a slot's memory is its first use, by the thread that computes: no memory is
// used before it is needed, and it is near to that thread.
//
// Ranks that compute the same sequences, and the stages of a pipeline, each have slots and must
// stay equal without communication. So which slots are in use depends only on the order of the
// calls, not on the number of bytes, which may be 0: a stage without recurrent layers.
//
// Not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/aligned_bytes.h"
#include "schedule/page_changes.h"

namespace wideep::engine {

class StateSlots {
 public:
  using SlotId = int32_t;
  static constexpr SlotId kNone = -1;
  // PageCache::Prefix of the tokens that a state sums up.
  using Prefix = uint64_t;
  static constexpr Prefix kNoTokens = 0;

  // slot_bytes: a multiple of 64. draft_slots: more slots, for states after drafts.
  StateSlots(size_t slot_bytes, int max_slots, int draft_slots = 0);

  // ---- of running sequences ----

  // A slot with the state after the prefix: zero for kNoTokens, else a copy of its snapshot. If
  // there is no other slot, the snapshot itself becomes the state.
  // REQUIRES: num_states() < max_slots(); knows(prefix), or kNoTokens.
  SlotId take(Prefix prefix);
  // Overwrites the state by a snapshot. REQUIRES: knows(prefix).
  void restore(SlotId state, Prefix prefix);
  void release(SlotId state);
  std::byte* bytes(SlotId slot);

  // ---- after drafts ----

  // A slot with undefined contents. REQUIRES: num_free_for_drafts() > 0.
  SlotId lend();
  void give_back(SlotId lent) { for_drafts_.push_back(lent); }
  // The lent slot holds the sequence's state from now on, and the former slot of the state is lent.
  static void exchange(SlotId& state, SlotId& lent) { std::swap(state, lent); }
  int num_free_for_drafts() const { return static_cast<int>(for_drafts_.size()); }

  // ---- snapshots ----

  // Copies the state to a snapshot, for which the least recently used one may go. Returns whether
  // there is a new snapshot: not if there is one of this prefix, which then counts as just used, or
  // if all slots belong to running sequences.
  bool keep(SlotId state, Prefix prefix);
  bool knows(Prefix prefix) const { return snapshots_.contains(prefix); }
  // Removes the snapshot of the prefix, if there is one.
  void drop(Prefix prefix);
  // The slot of a snapshot. REQUIRES: knows(prefix).
  SlotId snapshot(Prefix prefix) const { return snapshots_.at(prefix).slot; }
  // Changes before another state is written over a snapshot. Lives as long as this object.
  const Version& version(SlotId slot) const { return versions_[static_cast<size_t>(slot)]; }

  // ---- snapshots from elsewhere ----

  // A slot with undefined contents, for which the least recently used snapshot may go. It counts as
  // a state until it is released or adopted. REQUIRES: num_states() < max_slots().
  SlotId reserve();
  // The slot becomes the snapshot of the prefix, or is free if there is one. Returns whether the
  // snapshot is new.
  bool adopt(SlotId reserved, Prefix prefix);

  // ---- counts ----

  int max_slots() const { return max_slots_; }
  int num_states() const { return num_states_; }
  int num_snapshots() const { return static_cast<int>(snapshots_.size()); }

 private:
  struct Snapshot {
    SlotId slot = kNone;
    std::list<Prefix>::iterator used;  // its place in used_
  };
  SlotId free_slot();
  SlotId detach(std::unordered_map<Prefix, Snapshot>::iterator snapshot);
  const Snapshot& use(Prefix prefix);
  void copy(SlotId from, SlotId to);

  size_t slot_bytes_;
  int max_slots_;
  base::AlignedBytes memory_;
  std::deque<Version> versions_;  // [slots]
  int num_touched_ = 0;           // slots that were ever used; the others are zero
  int num_states_ = 0;
  std::vector<SlotId> free_;  // used before, free now
  std::vector<SlotId> for_drafts_;
  std::unordered_map<Prefix, Snapshot> snapshots_;
  std::list<Prefix> used_;  // prefixes of the snapshots, the least recently used first
};

}  // namespace wideep::engine
