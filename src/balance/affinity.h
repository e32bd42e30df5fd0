// SPDX-License-Identifier: Apache-2.0
//
// A placement under exchange of slots between ranks: which pairs of experts meet, and what ranks
// carry. Everything that an exchange changes is kept up to date, so that its gain is a few sums.
//
// Thread safety: none; each planner has its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

class Affinity {
 public:
  explicit Affinity(const PlanShape& shape);

  // Of the layer: its load and pairs, and a valid placement of the shape without two replicas of an
  // expert on a rank, whose replica counts hold until the next call.
  void reset(const LayerLoad& load, const Placement& placement);
  // Another placement with the same replica counts.
  void place(std::span<const int32_t> slot_to_expert);

  std::span<const int32_t> slot_to_expert() const { return slot_to_expert_; }
  int num_slots() const { return static_cast<int>(slot_to_expert_.size()); }
  int rank_of(int slot) const { return rank_of_[static_cast<size_t>(slot)]; }
  // On other ranks, that may change places: no rank would hold an expert twice.
  bool may_exchange(int slot_a, int slot_b) const;
  // What the exchange adds to meeting(). REQUIRES: may_exchange.
  double gain(int slot_a, int slot_b) const;
  void exchange(int slot_a, int slot_b);

  // Of all pairs of experts of tokens, the part that meets on a rank; each replica gets an equal
  // part of its expert's tokens.
  double meeting() const;
  // Tokens of a slot or a rank as a part of the mean rank's.
  double slot_load(int slot) const { return part_[static_cast<size_t>(expert_of(slot))]; }
  double rank_load(int rank) const { return rank_load_[static_cast<size_t>(rank)]; }
  double max_rank_load() const;
  void equal_shares(Shares* shares) const;  // [S]

 private:
  int expert_of(int slot) const { return slot_to_expert_[static_cast<size_t>(slot)]; }
  size_t at(int row, int expert) const {
    return static_cast<size_t>(row) * static_cast<size_t>(num_experts_) +
           static_cast<size_t>(expert);
  }
  void set_parts(std::span<const double> tokens, const Placement& placement);
  void set_pairs(std::span<const int64_t> counts);
  void add_to_pull(int rank, int expert, double sign);

  int num_experts_;
  int num_ranks_;
  std::vector<int> rank_of_;             // [S]
  std::vector<int32_t> slot_to_expert_;  // [S]
  std::vector<double> replicas_;         // [E]
  std::vector<double> part_;             // [E] load of one replica, mean rank 1
  std::vector<double> pairs_;      // [E, E] of one replica of each; the two halves sum to at most 1
  std::vector<double> pull_;       // [R, E] pairs of the expert with all on the rank
  std::vector<char> holds_;        // [R, E]
  std::vector<double> rank_load_;  // [R]
};

}  // namespace wideep::balance
