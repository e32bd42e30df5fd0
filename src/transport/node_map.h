// SPDX-License-Identifier: Apache-2.0
//
// Which ranks share a node, hence memory. Every rank has a deputy on each other node: one of the
// ranks there, which does in that node's memory what the rank itself would do. Duties are dealt out
// evenly: the deputy is the rank with the same place on its node, modulo the ranks there.
//
// Thread safety: constant.
#pragma once

#include <span>
#include <vector>

namespace wideep::transport {

class NodeMap {
 public:
  // node_of_rank: of every rank of the world. REQUIRES: nodes are numbered from 0 without a gap.
  explicit NodeMap(std::vector<int> node_of_rank);
  // As many ranks in a row on each node; the first nodes have one more where that leaves a rest.
  static NodeMap even(int num_ranks, int num_nodes);

  int num_ranks() const { return static_cast<int>(node_of_rank_.size()); }
  int num_nodes() const { return static_cast<int>(ranks_of_node_.size()); }
  int node_of(int rank) const { return node_of_rank_[static_cast<size_t>(rank)]; }
  std::span<const int> ranks_of(int node) const {
    return ranks_of_node_[static_cast<size_t>(node)];
  }
  // Among the ranks of its node.
  int place_of(int rank) const { return place_of_rank_[static_cast<size_t>(rank)]; }
  int deputy(int rank, int node) const;
  // Whether every node owns as many ranks in a row as every other.
  bool is_even() const;

 private:
  std::vector<int> node_of_rank_;
  std::vector<int> place_of_rank_;
  std::vector<std::vector<int>> ranks_of_node_;
};

}  // namespace wideep::transport
