// SPDX-License-Identifier: Apache-2.0
//
// Re-split: for a placement that stays as it is, the shares that minimise the maximum rank load.
// No weights move, so an engine can do this every iteration.
//
// The minimum is L* = max over sets U of ranks of forced(U) / |U|, where forced(U) is the load of
// the experts whose replicas all lie in U: that load cannot leave U (so no shares do better), and
// by max-flow min-cut some shares do as well. The sets of the form "all ranks" give the mean
// T = total / R.
//
// Algorithm: Newton's method on the level L, from L = T. At each level the shares are chosen such
// that no rank exceeds L: in one pass over the graph where that is exact (see replica_graph.h), and
// along augmenting paths from hot to cold ranks where it is not. If a rank r cannot get down to L,
// the ranks that its load can still reach are a minimum cut U, its mean forced(U) / |U| > L is the
// next level, and U says why (bottleneck_ranks). The levels grow along sets of shrinking size, so
// they end at L*, usually after one to three.
//
//   Resplitter resplitter(placement);
//   const double max_load = resplitter.resplit(expert_load, shares);  // each iteration
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balance/replica_graph.h"
#include "wideep/balancer.h"
#include "wideep/placement.h"

namespace wideep::balance {

// Holds the structure of one placement and work space: resplit() allocates nothing.
//
// Thread safety: one thread at a time. Copies are independent.
class Resplitter {
 public:
  Resplitter() = default;  // reset() before use
  // REQUIRES: check_placement(placement).ok().
  explicit Resplitter(const Placement& placement);

  // As new, for another placement; allocates nothing when it has the sizes of an earlier one.
  void reset(const Placement& placement);

  // expert_load: [E], finite and ≥ 0, any unit. Writes shares: [S], ≥ 0, summing to 1 (within
  // 1e-12) over each expert's slots; replicas that share a rank get equal parts, and the replicas
  // of an expert without load too. Returns the maximum rank load under these shares, L* within
  // 1e-11 relative. Depends on the arguments only, never on earlier calls.
  double resplit(std::span<const double> expert_load, std::span<double> shares);

  // After resplit(): the ranks U, ascending, whose experts have no replica elsewhere and whose mean
  // load is the maximum. To get below it, an expert of U must get a replica outside or leave.
  // Empty when the ranks are perfectly balanced.
  std::span<const int> bottleneck_ranks() const { return bottleneck_; }

 private:
  double tolerance() const;
  void load_ranks(std::span<const double> expert_load);
  int settle();
  bool settle_step(const ReplicaGraph::Step& step);
  int settle_cycle(size_t begin, size_t end);
  void finish_cycle(size_t begin, size_t end);
  void start_extra_links();
  void push_down();
  void start_search();
  bool search(int hot_rank, double fill_below);
  bool reach(int32_t rank, int32_t from_link, int32_t to_link);
  bool push_along_path(int hot_rank, int cold_rank);
  void raise_level(int hot_rank);
  void raise_level_to_reached();
  double forced_mean() const;
  void write_shares(std::span<double> shares) const;

  ReplicaGraph graph_;
  ReplicaGraphBuilder builder_;

  // Set by load_ranks():
  std::vector<double> base_load_;    // [R] load of the experts that are on one rank only
  std::vector<double> spread_load_;  // [spread]
  double total_ = 0.0;

  double level_ = 0.0;  // the highest proven bound so far

  // The current shares:
  std::vector<double> amount_;  // [links] load of the expert that goes to the rank
  std::vector<double> left_;    // [spread] load that has no rank yet
  std::vector<double> load_;    // [R]

  // Search from a hot rank, breadth first:
  std::vector<int32_t> reached_;       // ranks, in the order of the search
  std::vector<int32_t> from_link_;     // [R] link by which load leaves the rank before
  std::vector<int32_t> to_link_;       // [R] link by which it arrives
  std::vector<uint32_t> rank_mark_;    // [R] == search_: reached
  std::vector<uint32_t> spread_mark_;  // [spread]
  uint32_t search_ = 0;

  std::vector<int> bottleneck_;
};

}  // namespace wideep::balance
