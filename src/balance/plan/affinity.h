// SPDX-License-Identifier: Apache-2.0
//
// The state of a placement while a search exchanges slots between ranks: for each rank its load,
// and the pairs of experts that are together on it. Every exchange updates it, so that the gain of
// the next exchange is a sum of a few table entries.
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

  // Starts with a layer's load and pairs and a valid placement of the shape that has no two
  // replicas of an expert on one rank. Its replica counts hold until the next reset.
  void reset(const LayerLoad& load, const Placement& placement);
  // Changes to another placement with the same replica counts.
  void place(std::span<const int32_t> slot_to_expert);

  std::span<const int32_t> slot_to_expert() const { return slot_to_expert_; }
  int num_slots() const { return static_cast<int>(slot_to_expert_.size()); }
  int rank_of(int slot) const { return rank_of_[static_cast<size_t>(slot)]; }
  // True if the slots are on different ranks and their exchange would not put two replicas of an
  // expert on one rank.
  bool may_exchange(int slot_a, int slot_b) const;
  // The change of within_rank_ratio() by the exchange. REQUIRES: may_exchange.
  double gain(int slot_a, int slot_b) const;
  void exchange(int slot_a, int slot_b);

  // The part of all pairs of a token's experts that are together on a rank; each replica gets an
  // equal part of its expert's tokens.
  double within_rank_ratio() const;
  // Tokens of a slot or a rank, relative to the mean rank load.
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
