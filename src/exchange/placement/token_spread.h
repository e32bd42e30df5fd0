// SPDX-License-Identifier: Apache-2.0
//
// The number of ranks that a token is sent to: the cost of dispatch and combine, beside the balance
// of the load. Measured on the tokens of a trace, not estimated from pairs of experts.
//
// An expert with replicas leaves a choice of ranks. Two choices are measured:
//   by shares  each of a token's experts takes a replica by its shares, independently of the
//              others, as in an engine that takes replicas in turn. The mean is the exact
//              expectation, Σ over ranks of 1 − Π over the token's experts of (1 − share of the
//              rank), which is also TensorRT-LLM's report_send_ranks_per_token.
//   by cover   a token prefers ranks that it goes to anyway: first the ranks of its experts that
//              live on one rank only; then, until all its experts are served, the rank that serves
//              most of the rest (of equals the next one from rank token % R on).
//
// On several nodes a token's row also crosses once to each other node that holds an expert it needs
// (dispatch, and combine back). `crossings` is the mean number of such nodes over all source nodes:
// of an expert's tokens as many as its shares allow stay on their node, as ep/slot_choice.h does;
// the others go, independently of each other, to nodes whose share is above their own tokens'.
//
//   LayerSpread layer(plan.placement, plan.shares);
//   for (...) layer.add(token, experts_of_token);
//   layer.spread().ranks_by_shares;
//
// Thread safety: plain values; one thread at a time per LayerSpread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/placement.h"

namespace wideep::balance {

struct Spread {
  double ranks_by_shares = 0;  // mean number of ranks of a token
  double ranks_by_cover = 0;
  double within_rank_ratio = 0;  // of the pairs of a token's experts, those that meet on a rank, by
                                 // shares; 0 for top-1
  double imbalance_by_cover = 0;  // max / mean − 1 of the tokens that ranks receive by cover
  double crossings = 0;           // mean number of other nodes that a token goes to; 0 on one node

  bool operator==(const Spread&) const = default;
};

// Accumulates the spread of one layer, token by token.
class LayerSpread {
 public:
  // shares: [S] of the placement's slots. num_nodes: a divisor of its ep_size.
  LayerSpread(const Placement& placement, std::span<const double> shares, int num_nodes = 1);

  // token: any number that differs between tokens. experts: distinct, < num_experts.
  void add(int64_t token, std::span<const uint16_t> experts);

  Spread spread() const;

 private:
  struct Part {
    int rank;
    double share;
  };
  std::span<const Part> parts(uint16_t expert) const;
  void add_by_shares(std::span<const uint16_t> experts);
  void set_crossing(const Placement& placement, int num_nodes);
  void add_crossings(std::span<const uint16_t> experts);
  void add_by_cover(int64_t token, std::span<const uint16_t> experts);
  bool is_visited(uint16_t expert) const;
  int next_rank(int64_t token) const;
  void visit(int rank);
  std::vector<double> received_by_live_ranks() const;

  int num_ranks_;
  std::vector<Part> parts_;      // by expert; a rank once per expert
  std::vector<size_t> start_;    // [E + 1] into parts_
  std::vector<int> touched_;     // ranks of the token by shares
  std::vector<double> absent_;   // [R] probability that the token does not go there
  std::vector<double> meeting_;  // [R] share sums
  std::vector<char> visited_;    // [R] by cover
  std::vector<int> visits_;      // ranks by cover
  std::vector<uint16_t> rest_;   // experts not served yet
  int64_t num_tokens_ = 0;
  double ranks_by_shares_ = 0;
  int64_t ranks_by_cover_ = 0;
  size_t num_nodes_;
  std::vector<double> stays_away_;  // [E, N, N] probability: from the first not to the second node
  std::vector<double> crossings_from_;  // [N] scratch: not to a node, from the present source
  double crossings_ = 0;                // summed over tokens and source nodes
  double pairs_within_ = 0;
  double num_pairs_ = 0;
  std::vector<double> received_;  // [R] by cover
};

// The mean of each figure; spreads is not empty.
Spread mean_spread(std::span<const Spread> spreads);

}  // namespace wideep::balance
