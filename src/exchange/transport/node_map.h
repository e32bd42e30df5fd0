// SPDX-License-Identifier: Apache-2.0
//
// Maps ranks to nodes. Ranks of one node share memory. On each other node a rank has a proxy: a
// rank there that acts for it in that node's memory (bridge.h). The proxy is the rank with the same
// index on its node, modulo the number of ranks there, so every rank is the proxy of about equally
// many.
//
// Thread safety: immutable.
#pragma once

#include <span>
#include <vector>

namespace wideep::transport {

class NodeMap {
 public:
  static constexpr int kAbsent = -1;

  // node_of_rank: [num_ranks]. REQUIRES: nodes are numbered from 0 without gaps.
  explicit NodeMap(std::vector<int> node_of_rank);
  // Consecutive ranks on each node, as evenly as possible: the first nodes have one more where
  // num_nodes does not divide num_ranks.
  static NodeMap even(int num_ranks, int num_nodes);

  // The same ranks of the world, of which only these are there (members.h); node_of the others is
  // kAbsent. Nodes without any are left out, and the rest numbered anew; name() keeps their number.
  NodeMap of_members(std::span<const int> ranks) const;

  int num_ranks() const { return static_cast<int>(node_of_rank_.size()); }
  int num_nodes() const { return static_cast<int>(ranks_of_node_.size()); }
  int node_of(int rank) const { return node_of_rank_[static_cast<size_t>(rank)]; }
  std::span<const int> ranks_of(int node) const {
    return ranks_of_node_[static_cast<size_t>(node)];
  }
  // The rank's index among the ranks of its node.
  int index_on_node(int rank) const { return index_on_node_[static_cast<size_t>(rank)]; }
  // The proxy of `rank` on `node`; on its own node the rank itself.
  int proxy(int rank, int node) const;
  // Whether every node has the same number of ranks, and its ranks are consecutive.
  bool is_even() const;
  // For people: the node's number before any was left out.
  int name(int node) const { return names_[static_cast<size_t>(node)]; }

 private:
  std::vector<int> node_of_rank_;
  std::vector<int> index_on_node_;
  std::vector<std::vector<int>> ranks_of_node_;
  std::vector<int> names_;  // [num_nodes]
};

}  // namespace wideep::transport
