// SPDX-License-Identifier: Apache-2.0
//
// Which ranks share a node, hence memory. Every rank has a proxy on each other node: one of the
// ranks there, which does in that node's memory what the rank itself would do. It is the rank with
// the same place on its node, modulo the number of ranks there, so that ranks are proxies of about
// equally many others.
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
  // As many consecutive ranks on each node; the first nodes have one more where ranks are left
  // over.
  static NodeMap even(int num_ranks, int num_nodes);

  int num_ranks() const { return static_cast<int>(node_of_rank_.size()); }
  int num_nodes() const { return static_cast<int>(ranks_of_node_.size()); }
  int node_of(int rank) const { return node_of_rank_[static_cast<size_t>(rank)]; }
  std::span<const int> ranks_of(int node) const {
    return ranks_of_node_[static_cast<size_t>(node)];
  }
  // The rank's index among the ranks of its node.
  int place_of(int rank) const { return place_of_rank_[static_cast<size_t>(rank)]; }
  // Of a rank on a node; on its own node that is the rank itself.
  int proxy(int rank, int node) const;
  // Whether every node has equally many ranks, and consecutive ones.
  bool is_even() const;

 private:
  std::vector<int> node_of_rank_;
  std::vector<int> place_of_rank_;
  std::vector<std::vector<int>> ranks_of_node_;
};

}  // namespace wideep::transport
