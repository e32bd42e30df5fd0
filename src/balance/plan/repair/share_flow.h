// SPDX-License-Identifier: Apache-2.0
//
// The best shares of a placement that changes slot by slot, for the search of repair.
//
// Resplitter (balancer.h) prepares a fixed placement for many loads. Here the load is fixed and the
// placement changes, and an answer is needed after each change. So the flow of tokens from experts
// to ranks is kept, and after a change only the part that no longer fits is sent along new paths.
//
// At a level L, settle() moves load along augmenting paths until no rank above L can reach one
// below it. The rest above L is the excess: the tokens that no shares can bring below L. The ranks
// that they can still reach are *stuck*: a minimum cut, and all replicas of its experts are on
// stuck ranks too. To lower the excess, one of these experts must get a slot outside.
//
// Thread safety: none. Deterministic. Allocates in the constructor only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

class ShareFlow {
 public:
  ShareFlow(int num_experts, int num_ranks, int slots_per_rank);

  // Starts with equal shares. slot_to_expert: [S], a valid placement (an unused slot is single and
  // carries nothing); load: [E].
  void assign(std::span<const int32_t> slot_to_expert, std::span<const double> load);

  // Returns the excess at a level. Starts from the present shares.
  double settle(double level);
  bool stuck(int rank) const { return stuck_[at(rank)] != 0; }

  // Gives the slot another expert, or none (kUnusedSlot). REQUIRES: its present expert, if any, has
  // other slots; the one of them on the lightest rank receives the load of this slot.
  void retarget(int slot, int expert);
  // Exchanges the experts of two slots. REQUIRES: both are single.
  void exchange(int slot_a, int slot_b);

  // To try a change: save, change, settle, undo the change, restore. save() keeps the shares, not
  // the placement.
  void save();
  void restore();

  double rank_load(int rank) const { return rank_load_[at(rank)]; }
  double expert_load(int expert) const { return load_[at(expert)]; }
  std::span<const int32_t> slot_to_expert() const { return expert_; }
  int num_ranks() const { return num_ranks_; }
  int slots_per_rank() const { return slots_per_rank_; }
  double amount(int slot) const { return amount_[at(slot)]; }
  int expert(int slot) const { return expert_[at(slot)]; }
  bool used(int slot) const { return expert(slot) != kUnusedSlot; }
  int rank_of(int slot) const { return rank_of_[at(slot)]; }
  // The slots of an expert form a circle; a single slot is its own next one.
  int next_slot(int slot) const { return next_[at(slot)]; }
  bool single(int slot) const { return next_[at(slot)] == slot; }
  bool first_of_expert(int slot) const;  // no lower slot holds its expert
  bool holds(int rank, int expert) const;

 private:
  // Relative to the level: far above the rounding of sums over 1024 ranks.
  static constexpr double kTolerance = 1e-12;

  static size_t at(int i) { return static_cast<size_t>(i); }
  double tolerance() const { return kTolerance * level_; }
  void link_slots();
  void list_spread_slots(int rank);
  void list_spread_slots_of_circle(int slot);
  void give_away(int slot);
  void leave_circle(int slot);
  void join_circle(int slot, int expert);
  int replicas(int slot) const;
  bool drain(int rank);
  bool search(int hot_rank);
  bool reach(int rank, int from_slot, int to_slot);
  bool push_along_path(int hot_rank, int cold_rank);

  int num_ranks_;
  int slots_per_rank_;
  double level_ = 0.0;

  std::vector<int32_t> rank_of_;  // [S]
  std::vector<double> load_;      // [E]

  // The placement:
  std::vector<int32_t> expert_;        // [S]
  std::vector<int32_t> next_;          // [S] circles
  std::vector<int32_t> last_;          // [E] scratch of link_slots
  std::vector<int32_t> spread_slots_;  // [R, K] of each rank, slots of experts with several
  std::vector<int32_t> spread_count_;  // [R]

  // The shares, and those that restore() brings back:
  std::vector<double> amount_;     // [S] tokens
  std::vector<double> rank_load_;  // [R]
  std::vector<double> saved_amount_;
  std::vector<double> saved_rank_load_;

  std::vector<char> stuck_;  // [R] by the last settle()

  // Search from a hot rank, breadth first:
  std::vector<int32_t> reached_;
  std::vector<int32_t> from_slot_;     // [R] slot by which load leaves the rank before
  std::vector<int32_t> to_slot_;       // [R] slot by which it arrives
  std::vector<uint32_t> rank_mark_;    // [R] == search_: reached
  std::vector<uint32_t> expert_mark_;  // [E]
  uint32_t search_ = 0;
};

}  // namespace wideep::balance
