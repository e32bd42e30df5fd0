// SPDX-License-Identifier: Apache-2.0
//
// Which replica of its expert a token goes to.
//
// An expert's tokens are divided among its replicas by shares, in whole tokens (replica_split.h),
// and each rank keeps as many of its own as it can on its own replicas, then on its node. The
// shares come from
//
//   split_by_counts        the tokens of all ranks in this very call: the shares that make the
//   ranks
//                          as even as they can be (balance::Resplitter), which every rank computes
//                          alike. Each replica gets its share, rounded down or up.
//   split_by_given_shares  the placement, without knowing what the others do: each rank assumes
//                          that they have as many tokens of the expert as it has. What rounding
//                          leaves is carried on to the next call; ranks start at different places,
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
  // Of one rank, for all layers.
  SlotChooser(const DispatchShape& shape, int rank);

  // From the next split on. shares: [S]; empty: equal ones. Forgets what rounding has left.
  // REQUIRES: a valid placement of the shape, and valid shares.
  void set_placement(int layer, const balance::Placement& placement,
                     std::span<const double> shares);

  // Has any expert of the layer more than one replica? Without, no split is needed.
  bool has_replicas(int layer) const { return !layers_.at(layer).spread.empty(); }

  // counts: [ep_size, num_experts] tokens of each rank.
  void split_by_counts(int layer, std::span<const int32_t> counts);
  // counts: [num_experts] tokens of this rank.
  void split_by_given_shares(int layer, std::span<const int32_t> counts);

  // experts: [num_tokens × top_k] expert ids. slots: the chosen global slot ids, same shape.
  // REQUIRES: as many tokens of each expert as the split before was told.
  void choose(int layer, std::span<const int32_t> experts, std::span<int32_t> slots);

 private:
  // An expert with several replicas: those at [begin, end) of the layer's.
  struct SpreadExpert {
    int32_t expert;
    int32_t begin, end;
  };
  // Where the next tokens of an expert go.
  struct Run {
    int64_t left;     // so many; as good as infinite where there is only one replica
    int32_t slot;     // to this one
    int32_t replica;  // of the layer's; those behind it come next
  };
  struct Layer {
    std::vector<SpreadExpert> spread;
    std::vector<Run> runs;               // [num_experts]
    std::vector<int32_t> replica_slots;  // [replicas] of all spread experts, as the following
    std::vector<int32_t> replica_ranks;
    std::vector<int64_t> row;     // tokens of this rank in this call
    std::vector<int64_t> parts;   // of this rank's tokens, of kWholeToken: by the given shares
    std::vector<int64_t> credit;  // carried from call to call
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
