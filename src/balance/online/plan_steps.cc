// SPDX-License-Identifier: Apache-2.0
#include "online/plan_steps.h"

#include <algorithm>

namespace wideep::online {
namespace {

// A placement between the old and the new one, and the records that are still free.
class Step {
 public:
  Step(const balance::Placement& from, std::span<const int32_t> to,
       std::span<const int> free_records)
      : from_(from),
        to_(to),
        now_(from.slot_to_expert),
        free_(free_records.begin(), free_records.end()),
        replicas_(static_cast<size_t>(from.num_experts)) {
    for (const int32_t expert : now_) {
      if (expert != balance::kUnusedSlot) ++replicas_[expert];
    }
  }

  // Changes the slot, and those that must change with it: an expert that loses its last slot needs
  // another one in the same step. Undoes all of it if that takes more records than are free.
  void try_change(int slot) {
    changed_.clear();
    change(slot);
    // Each pass gives one expert a slot of `to`. It ends: no slot changes twice, and `to` has a
    // slot for every expert.
    for (bool complete = false; !complete;) {
      const int orphan = find_orphan();
      complete = orphan < 0;
      if (!complete) change(slot_for(orphan));
    }
    if (*std::min_element(free_.begin(), free_.end()) < 0) {
      for (const int each : changed_) undo(each);
    }
  }

  bool pending(int slot) const { return now_[slot] != to_[slot]; }
  std::vector<int32_t> take() { return std::move(now_); }

 private:
  void put(int slot, int32_t expert, int records) {
    if (now_[slot] != balance::kUnusedSlot) --replicas_[now_[slot]];
    now_[slot] = expert;
    if (expert != balance::kUnusedSlot) ++replicas_[expert];
    free_[from_.rank_of_slot(slot)] += records;
  }
  void change(int slot) {
    put(slot, to_[slot], -1);
    changed_.push_back(slot);
  }
  void undo(int slot) { put(slot, from_.slot_to_expert[slot], 1); }

  // An expert without a slot after the changes, or −1.
  int find_orphan() const {
    for (const int slot : changed_) {
      const int32_t expert = from_.slot_to_expert[slot];
      if (expert != balance::kUnusedSlot && replicas_[expert] == 0) return expert;
    }
    return -1;
  }
  // `to` is valid, so the expert has a slot there.
  int slot_for(int expert) const {
    return static_cast<int>(std::find(to_.begin(), to_.end(), expert) - to_.begin());
  }

  const balance::Placement& from_;
  std::span<const int32_t> to_;
  std::vector<int32_t> now_;
  std::vector<int> free_;      // by rank
  std::vector<int> replicas_;  // by expert
  std::vector<int> changed_;   // by the try under way
};

}  // namespace

std::vector<int> changed_slots(const balance::Placement& from, std::span<const int32_t> to) {
  std::vector<int> changed(static_cast<size_t>(from.ep_size));
  for (int slot = 0; slot < from.num_slots(); ++slot) {
    if (from.slot_to_expert[slot] != to[slot]) ++changed[from.rank_of_slot(slot)];
  }
  return changed;
}

std::vector<int32_t> next_step(const balance::Placement& from, std::span<const int32_t> to,
                               std::span<const int> free_records) {
  Step step(from, to, free_records);
  for (int slot = 0; slot < from.num_slots(); ++slot) {
    if (step.pending(slot)) step.try_change(slot);
  }
  return step.take();
}

}  // namespace wideep::online
