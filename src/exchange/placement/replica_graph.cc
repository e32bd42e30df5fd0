// SPDX-License-Identifier: Apache-2.0
//
// Built once for a placement so that each of many loads needs only a pass over `steps`. In order:
//
//   links        one for each spread expert and rank that has it
//   components   breadth first; one with more links than nodes keeps its spanning tree only
//   peeling      leaves, until no node has fewer than two open links
//   cycles       what is left: every node has exactly two
//
// Everything lies in flat arrays with the starts of each part, and is kept from build to build: a
// placement is changed while requests are served, where nothing may be allocated.
#include "placement/replica_graph.h"

#include <algorithm>
#include <numeric>

namespace wideep::balance {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

void clear(ReplicaGraph* graph) {
  graph->spread.clear();
  graph->links.clear();
  graph->rank_start.clear();
  graph->alone.clear();
  graph->alone_start.clear();
  graph->link_slots.clear();
  graph->constant_shares.clear();
  graph->steps.clear();
  graph->cycles.clear();
  graph->cycle_start.clear();
  graph->extra_links.clear();
}

}  // namespace

// Enough for any placement of these sizes: links are slots, and every spread expert has two.
void ReplicaGraphBuilder::reserve(const Placement& placement, ReplicaGraph* graph) {
  const size_t slots = placement.slot_to_expert.size(), ranks = at(placement.ep_size);
  const size_t spread = std::min(at(placement.num_experts), slots / 2);
  graph->spread.reserve(spread);
  graph->links.reserve(slots);
  graph->rank_start.reserve(ranks + 1);
  graph->spread_links.reserve(slots);
  graph->spread_start.reserve(spread + 1);
  graph->alone.reserve(slots);
  graph->alone_start.reserve(ranks + 1);
  graph->equal.reserve(slots);
  graph->link_slots.reserve(slots);
  graph->constant_shares.reserve(slots);
  graph->steps.reserve(slots + ranks);
  graph->cycles.reserve(ranks);
  graph->cycle_start.reserve(ranks + 1);
  graph->extra_links.reserve(slots);
  replicas_here_.reserve(slots);
  next_.reserve(spread + 1);
  seen_.reserve(ranks + spread);
  in_tree_.reserve(slots);
  open_.reserve(slots);
  degree_.reserve(ranks + spread);
  nodes_.reserve(ranks + spread);
}

// Order: links need the replica counts, the spanning trees need all links, and only a graph without
// extra links may be peeled. A node that peeling leaves has exactly two open links, so each
// remaining component is one cycle.
void ReplicaGraphBuilder::build(const Placement& placement, ReplicaGraph* graph) {
  graph_ = graph;
  clear(graph);
  reserve(placement, graph);
  count_replicas(placement);
  add_slots(placement);
  share_links();
  list_spread_links();

  const size_t num_nodes = at(graph->num_ranks()) + graph->spread.size();
  seen_.assign(num_nodes, 0);
  degree_.assign(num_nodes, 0);
  in_tree_.assign(graph->links.size(), 0);
  open_.assign(graph->links.size(), 1);
  for (int rank = 0; rank < graph->num_ranks(); ++rank) {
    if (seen_[at(rank)] == 0) open_component(rank);
  }
  peel();
  graph->cycle_start.push_back(0);
  for (int rank = 0; rank < graph->num_ranks(); ++rank) {
    if (degree_[at(rank)] > 0) walk_cycle(rank);
  }
}

void ReplicaGraphBuilder::count_replicas(const Placement& placement) {
  experts_.assign(at(placement.num_experts), {});
  for (int rank = 0; rank < placement.ep_size; ++rank) {
    for (int32_t id : placement.experts_of_rank(rank)) {
      if (id == kUnusedSlot) continue;
      Expert& expert = experts_[at(id)];
      if (expert.num_replicas++ == 0) expert.first_rank = rank;
      if (expert.first_rank != rank) expert.on_many_ranks = true;
    }
  }
}

void ReplicaGraphBuilder::add_slots(const Placement& placement) {
  replicas_here_.clear();
  int32_t slot = 0;
  for (int rank = 0; rank < placement.ep_size; ++rank) {
    graph_->rank_start.push_back(static_cast<int32_t>(graph_->links.size()));
    graph_->alone_start.push_back(static_cast<int32_t>(graph_->alone.size()));
    for (int32_t id : placement.experts_of_rank(rank)) add_slot(id, slot++, rank);
  }
  graph_->rank_start.push_back(static_cast<int32_t>(graph_->links.size()));
  graph_->alone_start.push_back(static_cast<int32_t>(graph_->alone.size()));
}

void ReplicaGraphBuilder::add_slot(int32_t id, int32_t slot, int32_t rank) {
  if (id == kUnusedSlot) {
    graph_->constant_shares.push_back(0.0);
    return;
  }
  Expert& expert = experts_[at(id)];
  graph_->constant_shares.push_back(1.0 / expert.num_replicas);
  const bool first_here = expert.last_rank != rank;
  expert.last_rank = rank;
  if (!expert.on_many_ranks) {
    if (first_here) graph_->alone.push_back(id);
    return;
  }
  if (expert.spread < 0) {
    expert.spread = static_cast<int32_t>(graph_->spread.size());
    graph_->spread.push_back(id);
  }
  if (first_here) {
    expert.last_link = static_cast<int32_t>(graph_->links.size());
    graph_->links.push_back({expert.spread, rank});
    replicas_here_.push_back(0);
  }
  ++replicas_here_[at(expert.last_link)];
  graph_->link_slots.push_back({slot, expert.last_link, 1.0});
}

// Replicas on one rank are one link and always get equal parts of its load: moving load between
// them changes no rank load.
void ReplicaGraphBuilder::share_links() {
  graph_->equal.resize(graph_->links.size());
  for (ReplicaGraph::LinkSlot& slot : graph_->link_slots) {
    const double here = replicas_here_[at(slot.link)];
    slot.fraction = 1.0 / here;
    graph_->equal[at(slot.link)] = here * graph_->constant_shares[at(slot.slot)];
  }
}

void ReplicaGraphBuilder::list_spread_links() {
  std::vector<int32_t>& start = graph_->spread_start;
  start.assign(graph_->spread.size() + 1, 0);
  for (const ReplicaGraph::Link& link : graph_->links) ++start[at(link.spread) + 1];
  std::partial_sum(start.begin(), start.end(), start.begin());
  next_.assign(start.begin(), start.end());
  graph_->spread_links.resize(graph_->links.size());
  for (size_t i = 0; i < graph_->links.size(); ++i) {
    graph_->spread_links[at(next_[at(graph_->links[i].spread)]++)] = static_cast<int32_t>(i);
  }
}

// Calls visit(link, node at its other end) for each link of a node.
template <typename Visit>
void ReplicaGraphBuilder::for_links(int32_t node, Visit visit) const {
  if (is_rank(node)) {
    const int32_t end = graph_->rank_start[at(node) + 1];
    for (int32_t link = graph_->rank_start[at(node)]; link < end; ++link) {
      visit(link, node_of(graph_->links[at(link)].spread));
    }
    return;
  }
  const size_t spread = at(node - graph_->num_ranks());
  for (int32_t i = graph_->spread_start[spread]; i < graph_->spread_start[spread + 1]; ++i) {
    const int32_t link = graph_->spread_links[at(i)];
    visit(link, graph_->links[at(link)].rank);
  }
}

// The last open link of a node; −1: none.
int32_t ReplicaGraphBuilder::open_link(int32_t node) const {
  int32_t found = -1;
  for_links(node, [&](int32_t link, int32_t) {
    if (open_[at(link)] != 0) found = link;
  });
  return found;
}

// Breadth first from a rank. A connected component with n nodes has a tree of n − 1 links, and n
// links make one cycle. With more than that it keeps its spanning tree only.
void ReplicaGraphBuilder::open_component(int32_t root) {
  nodes_.assign(1, root);
  seen_[at(root)] = 1;
  size_t num_link_ends = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const int32_t node = nodes_[i];
    for_links(node, [&](int32_t link, int32_t other) {
      ++num_link_ends;
      ++degree_[at(node)];
      if (seen_[at(other)] != 0) return;
      seen_[at(other)] = 1;
      in_tree_[at(link)] = 1;
      nodes_.push_back(other);
    });
  }
  if (num_link_ends / 2 <= nodes_.size()) return;
  for (int32_t node : nodes_) {
    for_links(node, [&](int32_t link, int32_t) {
      if (in_tree_[at(link)] != 0) return;
      --degree_[at(node)];
      open_[at(link)] = 0;
      if (is_rank(node)) graph_->extra_links.push_back(link);
    });
  }
}

void ReplicaGraphBuilder::peel() {
  nodes_.clear();
  for (size_t node = 0; node < degree_.size(); ++node) {
    if (degree_[node] <= 1) nodes_.push_back(static_cast<int32_t>(node));
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const int32_t node = nodes_[i];
    const int32_t link = open_link(node);
    if (link >= 0) close(node, link);
    const bool done = link < 0 || graph_->steps.back().kind == ReplicaGraph::Step::kGive;
    if (is_rank(node) && done) graph_->steps.push_back({ReplicaGraph::Step::kDone, node, -1});
  }
}

// Closes the only open link of a leaf. If it is the last link at both ends, the expert must give
// all it has left to the rank.
void ReplicaGraphBuilder::close(int32_t leaf, int32_t link) {
  using Step = ReplicaGraph::Step;
  const ReplicaGraph::Link& ends = graph_->links[at(link)];
  const int32_t other = is_rank(leaf) ? node_of(ends.spread) : ends.rank;
  const bool take = is_rank(leaf) && degree_[at(other)] > 1;
  graph_->steps.push_back({take ? Step::kTake : Step::kGive, ends.rank, link});
  open_[at(link)] = 0;
  degree_[at(leaf)] = 0;
  if (--degree_[at(other)] == 1) nodes_.push_back(other);  // degree 0: it is in the list already
}

// All nodes left have two open links.
void ReplicaGraphBuilder::walk_cycle(int32_t first_rank) {
  int32_t rank = first_rank;
  do {
    const int32_t near = open_link(rank);
    open_[at(near)] = 0;
    const int32_t far = open_link(node_of(graph_->links[at(near)].spread));
    open_[at(far)] = 0;
    degree_[at(rank)] = 0;
    graph_->cycles.push_back({rank, near, far});
    rank = graph_->links[at(far)].rank;
  } while (rank != first_rank);
  graph_->cycle_start.push_back(static_cast<int32_t>(graph_->cycles.size()));
}

}  // namespace wideep::balance
