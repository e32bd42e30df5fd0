// SPDX-License-Identifier: Apache-2.0
//
// Chooses the replica, and so the slot, for each (token, expert).
//
// An expert's tokens are divided among its replicas by shares, in whole tokens (replica_split.h).
// As many tokens as possible stay on their rank, then on their node. There are two ways to get
// shares:
//
//   split_by_counts        From the token counts of all ranks in this call. Every rank computes the
//                          same shares, which balance the load of the ranks (balance::Resplitter).
//                          Each replica gets its share, rounded down or up. Where ranks have
//                          borrowed slots, they also share out what still is too much for a rank
//                          (row_sharing.h).
//   split_by_given_shares  From the placement. A rank does not know the other ranks' counts, and
//                          assumes that they equal its own. Remainders of rounding are carried to
//                          the next call. Ranks start with different remainders, so that they do
//                          not all round up the same replica.
//
// The choice changes no result row. Experts with one replica cost one decrement per token.
//
// Thread safety: one thread. Allocates nothing after the first calls.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "ep/buffer_layout.h"
#include "ep/replica_split.h"
#include "ep/row_sharing.h"
#include "wideep/balancer.h"
#include "wideep/placement.h"

namespace wideep::ep {

class SlotChooser {
 public:
  // Chooses for the tokens of one rank, in all layers.
  SlotChooser(const DispatchShape& shape, int rank);

  // Sets the layer's placement, for the next split on. shares: [S] of each slot's expert; empty:
  // equal shares. Resets the remainders of rounding. REQUIRES: placement and shares are valid and
  // fit the shape.
  void set_placement(int layer, const balance::Placement& placement,
                     std::span<const double> shares);

  // Whether an expert of the layer has several replicas. If not, no split is needed.
  bool has_replicas(int layer) const { return !layers_.at(layer).spread.empty(); }

  // counts: [ep_size, num_experts] tokens of each rank.
  void split_by_counts(int layer, std::span<const int32_t> counts);
  // [borrowed_slots] the experts that this rank borrows in the last split_by_counts; −1: none.
  std::span<const int32_t> borrowed_experts() const { return borrowed_; }
  // counts: [num_experts] tokens of this rank.
  void split_by_given_shares(int layer, std::span<const int32_t> counts);

  // What split_by_given_shares and choose go by, for devices that do the same
  // (cuda/choose_slots.h).
  struct ReplicaTable {
    std::vector<int32_t> first;   // [num_experts + 1] where each expert's replicas begin below
    std::vector<int32_t> slots;   // [replicas] global slot ids
    std::vector<int64_t> parts;   // [replicas] of this rank's tokens, in kWholeToken
    std::vector<int64_t> credit;  // [replicas] now
  };
  ReplicaTable replica_table(int layer) const;

  // experts: [num_tokens × top_k] expert ids. slots: the chosen global slot ids, same shape.
  // REQUIRES: a split before; between two splits, each expert occurs at most as often as its count.
  void choose(int layer, std::span<const int32_t> experts, std::span<int32_t> slots);

 private:
  // An expert with several replicas: replicas [begin, end) of the layer's list.
  struct SpreadExpert {
    int32_t expert;
    int32_t begin, end;
  };
  // The next `left` tokens of an expert go to `slot`, then to the replicas after it in the list.
  struct Run {
    int64_t left;     // the maximum if the expert has one replica
    int32_t slot;     // global slot id
    int32_t replica;  // index of the slot in the layer's list of replicas
  };
  struct Layer {
    std::vector<SpreadExpert> spread;
    std::vector<char> has_one;  // [num_experts] whether the expert has one replica
    std::vector<Run> runs;      // [num_experts]
    // The layer's list of replicas, of all experts that have several; then, for the time of a call,
    // of those experts of which a rank borrows one, with the borrowed slots.
    std::vector<int32_t> replica_slots;
    std::vector<int32_t> replica_ranks;
    std::vector<int64_t> quotas;  // split_by_counts: tokens of all ranks for each replica
    std::vector<int64_t> row;     // number of this rank's tokens for each replica in this call
    // The runs of experts with one replica, of which a rank borrows one in this call.
    std::vector<std::pair<int32_t, Run>> lent;
    std::vector<int64_t> parts;  // split_by_given_shares: share of this rank's tokens (kWholeToken)
    std::vector<int64_t> credit;  // split_by_given_shares: carried from call to call
    balance::Resplitter resplitter;
  };

  // The slot as the placement numbers it, without borrowed ones.
  size_t placed_slot(int32_t slot) const {
    return static_cast<size_t>(slot / shape_.local_slots() * shape_.slots_per_rank +
                               slot % shape_.local_slots());
  }
  void list_replicas(const balance::Placement& placement, Layer* layer);
  void set_parts(std::span<const double> shares, Layer* layer);
  void parts_of_equal_ranks(std::span<const int32_t> replica_ranks, std::span<int64_t> parts);
  void sum_counts(std::span<const int32_t> counts);
  void set_quotas(Layer& layer);
  void split_expert(const SpreadExpert& spread, std::span<const int32_t> counts, Layer& layer);
  void return_loans(Layer& layer);
  void lend(Layer& layer);
  void list_rows(const Layer& layer);
  void apply_loans(std::span<const std::pair<Loan, int32_t>> loans, Layer& layer);
  static void start_run(const SpreadExpert& spread, Layer& layer);
  static void next_run(Layer& layer, Run& run);

  DispatchShape shape_;
  Source me_;
  std::map<int, Layer> layers_;
  RowSharing sharing_;
  std::vector<int32_t> borrowed_;  // see borrowed_experts()

  // Work space of a split.
  std::vector<int32_t> totals_;      // [num_experts] of all ranks
  std::vector<double> load_;         // the same
  std::vector<double> slot_shares_;  // [S]
  std::vector<double> shares_;       // [replicas of one expert]
  std::vector<int64_t> quotas_;      // the same
  std::vector<int64_t> counts_;      // [ep_size]
  std::vector<double> rank_excess_;  // [ep_size]
  std::vector<SpreadExpert> split_;  // the experts to split in this call
  std::vector<RankRows> rows_;
  std::vector<std::pair<Loan, int32_t>> loans_;  // with the borrowed slot
  struct Replica {
    int32_t slot, rank;
    int64_t quota;
  };
  std::vector<Replica> replicas_;  // of one expert
};

}  // namespace wideep::ep
