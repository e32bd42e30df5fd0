// SPDX-License-Identifier: Apache-2.0
//
// Augmenting paths by breadth-first search, of tokens between ranks through experts with several
// replicas. A search does not stop at the first rank below the level: it fills all that it meets
// on the way, and begins again only when a slot of its path is used up. Ranks that a failed search
// reached are never entered again at this level, which is what makes settling after a small change
// cheap. The slots of an expert are a circular list, so a change of placement alters two links.
#include "plan/repair/share_flow.h"

#include <algorithm>
#include <utility>

namespace wideep::balance {

ShareFlow::ShareFlow(int num_experts, int num_ranks, int slots_per_rank)
    : num_ranks_(num_ranks),
      slots_per_rank_(slots_per_rank),
      rank_of_(at(num_ranks) * at(slots_per_rank)),
      load_(at(num_experts)),
      expert_(rank_of_.size()),
      next_(rank_of_.size()),
      last_(at(num_experts)),
      spread_slots_(rank_of_.size()),
      spread_count_(at(num_ranks)),
      amount_(rank_of_.size()),
      rank_load_(at(num_ranks)),
      saved_amount_(rank_of_.size()),
      saved_rank_load_(at(num_ranks)),
      stuck_(at(num_ranks), 0),
      from_slot_(at(num_ranks)),
      to_slot_(at(num_ranks)),
      rank_mark_(at(num_ranks), 0),
      expert_mark_(at(num_experts), 0) {
  reached_.reserve(at(num_ranks));
  for (size_t slot = 0; slot < rank_of_.size(); ++slot) {
    rank_of_[slot] = static_cast<int32_t>(slot) / slots_per_rank;
  }
}

void ShareFlow::assign(std::span<const int32_t> slot_to_expert, std::span<const double> load) {
  std::copy(slot_to_expert.begin(), slot_to_expert.end(), expert_.begin());
  std::copy(load.begin(), load.end(), load_.begin());
  link_slots();
  std::fill(rank_load_.begin(), rank_load_.end(), 0.0);
  for (size_t slot = 0; slot < expert_.size(); ++slot) {
    rank_load_[at(rank_of_[slot])] += amount_[slot];
  }
  for (int rank = 0; rank < num_ranks_; ++rank) list_spread_slots(rank);
}

// Also sets the amounts to equal parts.
// A circular list per expert: adding or removing a slot changes two entries, and a walk over an
// expert's slots can start at any of them.
void ShareFlow::link_slots() {
  std::fill(last_.begin(), last_.end(), -1);
  for (int slot = 0; slot < static_cast<int>(expert_.size()); ++slot) {
    if (!used(slot)) {
      next_[at(slot)] = slot;
      amount_[at(slot)] = 0.0;
      continue;
    }
    int32_t& last = last_[at(expert(slot))];
    if (last < 0) {
      next_[at(slot)] = slot;
      amount_[at(slot)] = load_[at(expert(slot))];
    } else {
      next_[at(slot)] = next_[at(last)];
      next_[at(last)] = slot;
    }
    last = slot;
  }
  for (int last : last_) {
    if (single(last)) continue;
    const double part = load_[at(expert(last))] / replicas(last);
    amount_[at(last)] = part;
    for (int slot = next_slot(last); slot != last; slot = next_slot(slot)) amount_[at(slot)] = part;
  }
}

int ShareFlow::replicas(int slot) const {
  int count = 1;
  for (int s = next_slot(slot); s != slot; s = next_slot(s)) ++count;
  return count;
}

// A search uses only slots of experts with several replicas; listing them keeps it off the others.
void ShareFlow::list_spread_slots(int rank) {
  const int first = rank * slots_per_rank_;
  int count = 0;
  for (int slot = first; slot < first + slots_per_rank_; ++slot) {
    spread_slots_[at(first + count)] = slot;
    count += !single(slot);
  }
  spread_count_[at(rank)] = count;
}

bool ShareFlow::first_of_expert(int slot) const {
  for (int s = next_slot(slot); s != slot; s = next_slot(s)) {
    if (s < slot) return false;
  }
  return true;
}

bool ShareFlow::holds(int rank, int expert) const {
  const auto first = expert_.begin() + rank * slots_per_rank_;
  return std::find(first, first + slots_per_rank_, expert) != first + slots_per_rank_;
}

// One pass is enough: draining a rank fills others at most up to the level, so no rank that was
// drained before rises above it.
double ShareFlow::settle(double level) {
  level_ = level;
  std::fill(stuck_.begin(), stuck_.end(), 0);
  double excess = 0.0;
  for (int rank = 0; rank < num_ranks_; ++rank) {
    if (!drain(rank)) excess += rank_load_[at(rank)] - level_;
  }
  return excess;
}

// False: the rank stays above the level, and the ranks that its load reaches become stuck. Later
// searches need not enter them: none of them is below the level, and no path leads out of them.
bool ShareFlow::drain(int rank) {
  const double& load = rank_load_[at(rank)];
  while (load > level_ + tolerance()) {
    if (stuck(rank)) return false;
    if (!search(rank) || load <= level_ + tolerance()) continue;
    for (int32_t r : reached_) stuck_[at(r)] = 1;
    return false;
  }
  return true;
}

bool ShareFlow::reach(int rank, int from_slot, int to_slot) {
  if (rank_mark_[at(rank)] == search_ || stuck(rank)) return false;
  rank_mark_[at(rank)] = search_;
  from_slot_[at(rank)] = from_slot;
  to_slot_[at(rank)] = to_slot;
  reached_.push_back(rank);
  return true;
}

// Visits the ranks that load of the hot rank can reach, nearest first, and fills those below the
// level on the way. False: stopped because a path was used up or the hot rank is at the level.
bool ShareFlow::search(int hot_rank) {
  if (++search_ == 0) {  // the counter wrapped: old marks would look new
    std::fill(rank_mark_.begin(), rank_mark_.end(), 0);
    std::fill(expert_mark_.begin(), expert_mark_.end(), 0);
    search_ = 1;
  }
  reached_.clear();
  reach(hot_rank, -1, -1);
  for (size_t i = 0; i < reached_.size(); ++i) {
    const int rank = reached_[i];
    const int32_t* slots = &spread_slots_[at(rank * slots_per_rank_)];
    for (const int32_t* end = slots + spread_count_[at(rank)]; slots != end; ++slots) {
      const int from = *slots;
      uint32_t& mark = expert_mark_[at(expert(from))];
      // Load leaves a rank only through a slot that carries some. All ranks of a marked expert have
      // been tried.
      if (amount_[at(from)] <= 0.0 || mark == search_) continue;
      mark = search_;
      for (int to = next_slot(from); to != from; to = next_slot(to)) {
        const int next = rank_of(to);
        if (!reach(next, from, to) || rank_load_[at(next)] >= level_) continue;
        if (!push_along_path(hot_rank, next)) return false;
      }
    }
  }
  return true;
}

// False: a slot of the path has nothing left, or the hot rank is at the level.
bool ShareFlow::push_along_path(int hot_rank, int cold_rank) {
  double max = rank_load_[at(hot_rank)] - level_;
  for (int rank = cold_rank; rank != hot_rank; rank = rank_of(from_slot_[at(rank)])) {
    max = std::min(max, amount_[at(from_slot_[at(rank)])]);
  }
  const double lack = level_ - rank_load_[at(cold_rank)];
  const double amount = std::min(max, lack);
  for (int rank = cold_rank; rank != hot_rank; rank = rank_of(from_slot_[at(rank)])) {
    amount_[at(from_slot_[at(rank)])] -= amount;
    amount_[at(to_slot_[at(rank)])] += amount;
  }
  rank_load_[at(hot_rank)] -= amount;
  // Exactly the level, so that no rounding is left to be filled.
  rank_load_[at(cold_rank)] = amount == lack ? level_ : rank_load_[at(cold_rank)] + amount;
  return amount < max;
}

void ShareFlow::list_spread_slots_of_circle(int slot) {
  int s = slot;
  do {
    list_spread_slots(rank_of(s));
    s = next_slot(s);
  } while (s != slot);
}

// The slot's load goes to the expert's slot on the lightest rank; settle() corrects that later.
void ShareFlow::give_away(int slot) {
  int lightest = next_slot(slot);
  for (int s = lightest; s != slot; s = next_slot(s)) {
    if (rank_load(rank_of(s)) < rank_load(rank_of(lightest))) lightest = s;
  }
  amount_[at(lightest)] += amount(slot);
  rank_load_[at(rank_of(lightest))] += amount(slot);
  rank_load_[at(rank_of(slot))] -= amount(slot);
  amount_[at(slot)] = 0.0;
}

void ShareFlow::leave_circle(int slot) {
  give_away(slot);
  int before = next_slot(slot);
  while (next_slot(before) != slot) before = next_slot(before);
  next_[at(before)] = next_[at(slot)];
  next_[at(slot)] = slot;
  list_spread_slots_of_circle(before);
}

void ShareFlow::join_circle(int slot, int expert) {
  const auto same = std::find(expert_.begin(), expert_.end(), expert) - expert_.begin();
  next_[at(slot)] = next_[static_cast<size_t>(same)];
  next_[static_cast<size_t>(same)] = slot;
}

void ShareFlow::retarget(int slot, int expert) {
  if (used(slot)) leave_circle(slot);
  if (expert != kUnusedSlot) join_circle(slot, expert);
  expert_[at(slot)] = expert;
  list_spread_slots_of_circle(slot);
}

// Single slots have no circle to change: both experts take their whole load along.
void ShareFlow::exchange(int slot_a, int slot_b) {
  const double moved = amount(slot_a) - amount(slot_b);
  rank_load_[at(rank_of(slot_a))] -= moved;
  rank_load_[at(rank_of(slot_b))] += moved;
  std::swap(amount_[at(slot_a)], amount_[at(slot_b)]);
  std::swap(expert_[at(slot_a)], expert_[at(slot_b)]);
}

void ShareFlow::save() {
  std::copy(amount_.begin(), amount_.end(), saved_amount_.begin());
  std::copy(rank_load_.begin(), rank_load_.end(), saved_rank_load_.begin());
}

void ShareFlow::restore() {
  std::copy(saved_amount_.begin(), saved_amount_.end(), amount_.begin());
  std::copy(saved_rank_load_.begin(), saved_rank_load_.end(), rank_load_.begin());
}

}  // namespace wideep::balance
