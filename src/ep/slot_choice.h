// SPDX-License-Identifier: Apache-2.0
//
// Which replica of its expert a token goes to.
//
// An expert's tokens are divided among its replicas by shares, in whole tokens (replica_split.h).
// Each rank keeps as many of its own tokens as it can on its own replicas, then on its node. The
// shares come from one of two sources:
//
//   split_by_counts        the tokens of all ranks in this very call. Every rank computes the same
//                          shares: those that make the load of the ranks as even as possible
//                          (balance::Resplitter). Each replica gets its share, rounded down or up.
//   split_by_given_shares  the placement. A rank does not know what the others do, and assumes that
//                          they have as many tokens of the expert as it has. Remainders of rounding
//                          are carried on to the next call; ranks start with different remainders,
//                          so that they do not all round up the same replica.
//
// Which replica computes a row does not change the row. Experts with one replica cost nothing.
//
// Thread safety: one thread. Allocates nothing after the first calls.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ep/buffer_layout.h"
#include "ep/replica_split.h"
#include "wideep/balancer.h"
#include "wideep/placement.h"

namespace wideep::ep {

class SlotChooser {
 public:
  // For the tokens of one rank, in all layers.
  SlotChooser(const DispatchShape& shape, int rank);

  // From the next split on. shares: [S]; empty: equal ones. Forgets remainders of rounding.
  // REQUIRES: a valid placement of the shape, and valid shares.
  void set_placement(int layer, const balance::Placement& placement,
                     std::span<const double> shares);

  // Whether any expert of the layer has more than one replica; if not, no split is needed.
  bool has_replicas(int layer) const { return !layers_.at(layer).spread.empty(); }

  // counts: [ep_size, num_experts] tokens of each rank.
  void split_by_counts(int layer, std::span<const int32_t> counts);
  // counts: [num_experts] tokens of this rank.
  void split_by_given_shares(int layer, std::span<const int32_t> counts);

  // experts: [num_tokens × top_k] expert ids. slots: the chosen global slot ids, same shape.
  // REQUIRES: as many tokens of each expert as the counts of the split before say.
  void choose(int layer, std::span<const int32_t> experts, std::span<int32_t> slots);

 private:
  // An expert with several replicas: replicas [begin, end) of the layer's list.
  struct SpreadExpert {
    int32_t expert;
    int32_t begin, end;
  };
  // Where the next tokens of an expert go.
  struct Run {
    int64_t left;     // so many tokens; practically infinite where there is only one replica
    int32_t slot;     // to this slot
    int32_t replica;  // its index in the layer's list; then come those behind it
  };
  struct Layer {
    std::vector<SpreadExpert> spread;
    std::vector<Run> runs;  // [num_experts]
    // The layer's list of replicas: of all experts that have several.
    std::vector<int32_t> replica_slots;
    std::vector<int32_t> replica_ranks;
    std::vector<int64_t> row;     // tokens of this rank for each replica in this call
    std::vector<int64_t> parts;   // by the given shares: of each token of this rank, in kWholeToken
    std::vector<int64_t> credit;  // by the given shares: carried from call to call
    balance::Resplitter resplitter;
  };

  void list_replicas(const balance::Placement& placement, Layer* layer);
  void set_parts(std::span<const double> shares, Layer* layer);
  void parts_of_equal_ranks(std::span<const int32_t> replica_ranks, std::span<int64_t> parts);
  void split_expert(const SpreadExpert& spread, std::span<const int32_t> counts, Layer& layer);
  static void start_run(const SpreadExpert& spread, Layer& layer);
  static void next_run(Layer& layer, Run& run);

  DispatchShape shape_;
  Source me_;
  std::map<int, Layer> layers_;

  // Work space of a split.
  std::vector<int32_t> totals_;      // [num_experts] of all ranks
  std::vector<double> load_;         // the same
  std::vector<double> slot_shares_;  // [S]
  std::vector<double> shares_;       // [replicas of one expert]
  std::vector<int64_t> quotas_;      // the same
  std::vector<int64_t> counts_;      // [ep_size]
  std::vector<double> rank_excess_;  // [ep_size]
};

}  // namespace wideep::ep
