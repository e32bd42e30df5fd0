// SPDX-License-Identifier: Apache-2.0
#include "transport/node_map.h"

#include <algorithm>

#include "base/check.h"

namespace wideep::transport {

NodeMap::NodeMap(std::vector<int> node_of_rank) : node_of_rank_(std::move(node_of_rank)) {
  WIDEEP_CHECK(!node_of_rank_.empty());
  const int last = *std::max_element(node_of_rank_.begin(), node_of_rank_.end());
  ranks_of_node_.resize(static_cast<size_t>(last) + 1);
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (node_of(rank) == kAbsent) {
      index_on_node_.push_back(kAbsent);
      continue;
    }
    std::vector<int>& ranks = ranks_of_node_[static_cast<size_t>(node_of(rank))];
    index_on_node_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(rank);
  }
  for (const std::vector<int>& ranks : ranks_of_node_) WIDEEP_CHECK(!ranks.empty());
  for (int node = 0; node < num_nodes(); ++node) names_.push_back(node);
}

NodeMap NodeMap::of_members(std::span<const int> ranks) const {
  std::vector<int> node_of_member(node_of_rank_.size(), kAbsent);
  std::vector<int> names;
  for (int node = 0; node < num_nodes(); ++node) {
    bool is_there = false;
    for (const int rank : ranks) {
      if (node_of(rank) != node) continue;
      node_of_member[static_cast<size_t>(rank)] = static_cast<int>(names.size());
      is_there = true;
    }
    if (is_there) names.push_back(name(node));
  }
  NodeMap members(std::move(node_of_member));
  members.names_ = std::move(names);
  return members;
}

NodeMap NodeMap::even(int num_ranks, int num_nodes) {
  std::vector<int> node_of_rank;
  for (int node = 0; node < num_nodes; ++node) {
    const int count = num_ranks / num_nodes + (node < num_ranks % num_nodes ? 1 : 0);
    node_of_rank.insert(node_of_rank.end(), static_cast<size_t>(count), node);
  }
  return NodeMap(std::move(node_of_rank));
}

int NodeMap::proxy(int rank, int node) const {
  const std::span<const int> ranks = ranks_of(node);
  return ranks[static_cast<size_t>(index_on_node(rank)) % ranks.size()];
}

bool NodeMap::is_even() const {
  const int each = num_ranks() / num_nodes();
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (each * num_nodes() != num_ranks() || node_of(rank) != rank / each) return false;
  }
  return true;
}

}  // namespace wideep::transport
