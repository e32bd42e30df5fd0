// SPDX-License-Identifier: Apache-2.0
#include "balance/replica_graph.h"

#include <algorithm>
#include <numeric>

#include "balance/plan.h"

namespace wideep::balance {
namespace {

// Groups the indices 0 .. keys.size() − 1 by key.
IntLists group_by(std::span<const int32_t> keys, int num_lists) {
  IntLists lists;
  lists.start.assign(static_cast<size_t>(num_lists) + 1, 0);
  for (int32_t key : keys) ++lists.start[static_cast<size_t>(key) + 1];
  std::partial_sum(lists.start.begin(), lists.start.end(), lists.start.begin());
  std::vector<int32_t> next(lists.start.begin(), lists.start.end() - 1);
  lists.values.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    lists.values[static_cast<size_t>(next[static_cast<size_t>(keys[i])]++)] =
        static_cast<int32_t>(i);
  }
  return lists;
}

bool on_one_rank(const Placement& placement, std::span<const int32_t> slots) {
  return placement.rank_of_slot(slots.front()) == placement.rank_of_slot(slots.back());
}

// The links and link slots of one spread expert; its slots ascend, so do their ranks.
void add_spread_expert(const Placement& placement, int expert, std::span<const int32_t> slots,
                       ReplicaGraph& graph) {
  const auto idx = static_cast<int32_t>(graph.spread.size());
  graph.spread.push_back(expert);
  for (size_t i = 0; i < slots.size();) {
    const int rank = placement.rank_of_slot(slots[i]);
    size_t end = i;
    while (end < slots.size() && placement.rank_of_slot(slots[end]) == rank) ++end;
    const auto link = static_cast<int32_t>(graph.links.size());
    const auto here = static_cast<double>(end - i);
    graph.links.push_back({idx, rank});
    graph.equal.push_back(here / static_cast<double>(slots.size()));
    for (; i < end; ++i) graph.link_slots.push_back({slots[i], link, 1.0 / here});
  }
  graph.link_start.push_back(static_cast<int32_t>(graph.links.size()));
}

void add_experts(const Placement& placement, ReplicaGraph& graph) {
  const RoutingTable table = make_routing_table(placement);
  graph.link_start.push_back(0);
  std::vector<int32_t> single_experts, single_ranks;
  for (int expert = 0; expert < placement.num_experts; ++expert) {
    const std::span<const int32_t> slots = table.replicas(expert);
    if (on_one_rank(placement, slots)) {
      single_experts.push_back(expert);
      single_ranks.push_back(placement.rank_of_slot(slots.front()));
    } else {
      add_spread_expert(placement, expert, slots, graph);
    }
  }
  graph.rank_experts = group_by(single_ranks, graph.num_ranks);
  for (int32_t& i : graph.rank_experts.values) i = single_experts[static_cast<size_t>(i)];
}

void add_rank_links(ReplicaGraph& graph) {
  std::vector<int32_t> ranks;
  ranks.reserve(graph.links.size());
  for (const ReplicaGraph::Link& link : graph.links) ranks.push_back(link.rank);
  graph.rank_links = group_by(ranks, graph.num_ranks);
}

// Finds the order of peeling. Nodes: ranks are 0 .. R − 1, spread expert i is R + i.
class Peeler {
 public:
  explicit Peeler(ReplicaGraph& graph)
      : graph_(graph),
        num_nodes_(static_cast<size_t>(graph.num_ranks) + graph.spread.size()),
        open_(graph.links.size(), true),
        in_tree_(graph.links.size(), false),
        degree_(num_nodes_, 0) {}

  void run() {
    std::vector<bool> seen(num_nodes_, false);
    for (int rank = 0; rank < graph_.num_ranks; ++rank) {
      if (!seen[static_cast<size_t>(rank)]) open_component(rank, seen);
    }
    peel();
    graph_.cycle_start.push_back(0);
    for (int rank = 0; rank < graph_.num_ranks; ++rank) {
      if (degree_[static_cast<size_t>(rank)] > 0) walk_cycle(rank);
    }
  }

 private:
  int32_t node_of(int32_t spread) const { return graph_.num_ranks + spread; }
  bool is_rank(int32_t node) const { return node < graph_.num_ranks; }
  const ReplicaGraph::Link& link_at(int32_t link) const {
    return graph_.links[static_cast<size_t>(link)];
  }

  // Calls visit(link, node at its other end) for each link of a node.
  template <typename Visit>
  void for_links(int32_t node, Visit visit) const {
    if (is_rank(node)) {
      for (int32_t link : graph_.rank_links[node]) visit(link, node_of(link_at(link).spread));
      return;
    }
    const auto spread = static_cast<size_t>(node - graph_.num_ranks);
    for (int32_t l = graph_.link_start[spread]; l < graph_.link_start[spread + 1]; ++l) {
      visit(l, link_at(l).rank);
    }
  }

  // Breadth first from a rank. A component with more than one cycle keeps its spanning tree only.
  void open_component(int32_t root, std::vector<bool>& seen) {
    std::vector<int32_t> nodes = {root};
    seen[static_cast<size_t>(root)] = true;
    size_t num_links = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      for_links(nodes[i], [&](int32_t link, int32_t other) {
        ++num_links;  // counted from both ends
        if (seen[static_cast<size_t>(other)]) return;
        seen[static_cast<size_t>(other)] = true;
        in_tree_[static_cast<size_t>(link)] = true;
        nodes.push_back(other);
      });
    }
    const bool tree_only = num_links / 2 > nodes.size();
    for (int32_t node : nodes) {
      for_links(node, [&](int32_t link, int32_t) { settle_link(node, link, tree_only); });
    }
  }

  void settle_link(int32_t node, int32_t link, bool tree_only) {
    if (!tree_only || in_tree_[static_cast<size_t>(link)]) {
      ++degree_[static_cast<size_t>(node)];
    } else if (is_rank(node)) {
      open_[static_cast<size_t>(link)] = false;
      graph_.extra_links.push_back(link);
    }
  }

  // The last open link of a node; −1: none.
  int32_t open_link(int32_t node) const {
    int32_t found = -1;
    for_links(node, [&](int32_t link, int32_t) {
      if (open_[static_cast<size_t>(link)]) found = link;
    });
    return found;
  }

  void peel() {
    std::vector<int32_t> leaves;
    for (size_t node = 0; node < num_nodes_; ++node) {
      if (degree_[node] <= 1) leaves.push_back(static_cast<int32_t>(node));
    }
    for (size_t i = 0; i < leaves.size(); ++i) {
      const int32_t node = leaves[i];
      const int32_t link = open_link(node);
      if (link >= 0) close(node, link, leaves);
      if (is_rank(node) && (link < 0 || last_kind() == Step::kGive)) {
        graph_.steps.push_back({Step::kDone, node, -1});
      }
    }
  }

  using Step = ReplicaGraph::Step;
  Step::Kind last_kind() const { return graph_.steps.back().kind; }

  // Closes the only open link of a leaf. Where it is the only one at both ends, the expert has to
  // give all it has left.
  void close(int32_t leaf, int32_t link, std::vector<int32_t>& leaves) {
    const ReplicaGraph::Link& ends = link_at(link);
    const int32_t other = is_rank(leaf) ? node_of(ends.spread) : ends.rank;
    const bool take = is_rank(leaf) && degree_[static_cast<size_t>(other)] > 1;
    graph_.steps.push_back({take ? Step::kTake : Step::kGive, ends.rank, link});
    open_[static_cast<size_t>(link)] = false;
    degree_[static_cast<size_t>(leaf)] = 0;
    // A node of degree 1 is among the leaves already.
    if (--degree_[static_cast<size_t>(other)] == 1) leaves.push_back(other);
  }

  // All nodes left have two open links.
  void walk_cycle(int32_t first_rank) {
    int32_t rank = first_rank;
    do {
      const int32_t near = open_link(rank);
      open_[static_cast<size_t>(near)] = false;
      const int32_t far = open_link(node_of(link_at(near).spread));
      open_[static_cast<size_t>(far)] = false;
      degree_[static_cast<size_t>(rank)] = 0;
      graph_.cycles.push_back({rank, near, far});
      rank = link_at(far).rank;
    } while (rank != first_rank);
    graph_.cycle_start.push_back(static_cast<int32_t>(graph_.cycles.size()));
  }

  ReplicaGraph& graph_;
  size_t num_nodes_;
  std::vector<bool> open_;       // by link: not peeled yet
  std::vector<bool> in_tree_;    // by link: in the spanning tree of its component
  std::vector<int32_t> degree_;  // by node: open links
};

}  // namespace

ReplicaGraph make_replica_graph(const Placement& placement) {
  ReplicaGraph graph;
  graph.num_ranks = placement.ep_size;
  graph.constant_shares = equal_shares(placement);
  add_experts(placement, graph);
  add_rank_links(graph);
  Peeler(graph).run();
  return graph;
}

}  // namespace wideep::balance
