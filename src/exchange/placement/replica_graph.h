// SPDX-License-Identifier: Apache-2.0
//
// A placement as a graph: which ranks can pass load to each other because they hold replicas of one
// expert, and an order in which shares can be chosen one after the other.
//
// The nodes are the R ranks and the *spread* experts, which have replicas on two ranks or more. A
// *link* joins a spread expert and a rank that holds it; two replicas on one rank are one link. All
// other experts leave no choice: their load stays on their rank.
//
// Shares can be chosen in one pass by peeling leaves off the graph. A rank with one link left takes
// from that expert the load that it lacks; an expert with one link left gives the rest of its load
// to that rank. Cycles remain that have no leaves. This is exact where every component of the graph
// has at most one cycle (replicas on a ring of ranks); a component with more is peeled along a
// spanning tree, its other links keep an equal share, and the result is only a good start.
//
// Thread safety: plain values; one thread at a time per builder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/placement.h"

namespace wideep::balance {

struct ReplicaGraph {
  struct Link {
    int32_t spread;  // index of the spread expert
    int32_t rank;
  };
  struct LinkSlot {
    int32_t slot;
    int32_t link;
    double fraction;  // of the link's share: 1 / replicas of the expert on this rank
  };
  struct Step {
    enum Kind : int32_t {
      kTake,  // the rank's only link left: it takes what it lacks
      kGive,  // the expert's only link left: the rank takes the rest
      kDone,  // the rank has no link left
    };
    Kind kind;
    int32_t rank;
    int32_t link;  // −1 for kDone
  };
  // Rank → expert → next rank around a cycle; the last expert's next rank is the first rank.
  struct CycleStep {
    int32_t rank;
    int32_t near;  // link of the expert and this rank
    int32_t far;   // link of the expert and the next rank
  };

  int num_ranks() const { return static_cast<int>(rank_start.size()) - 1; }

  // Nodes and links. xs_start[i] .. xs_start[i + 1] is the part of xs that belongs to i.
  std::vector<int32_t> spread;        // spread experts: expert ids
  std::vector<Link> links;            // by rank
  std::vector<int32_t> rank_start;    // [R + 1] into links
  std::vector<int32_t> spread_links;  // by spread expert: its links
  std::vector<int32_t> spread_start;  // [spread + 1] into spread_links
  std::vector<int32_t> alone;         // by rank: the experts on this rank only
  std::vector<int32_t> alone_start;   // [R + 1] into alone

  // Shares.
  std::vector<double> equal;            // [links] replicas here / replicas of the expert
  std::vector<LinkSlot> link_slots;     // the slots of spread experts
  std::vector<double> constant_shares;  // [S] equal shares: final for all other slots; unused: 0

  // The order.
  std::vector<Step> steps;           // peeling
  std::vector<CycleStep> cycles;     // the links that peeling leaves
  std::vector<int32_t> cycle_start;  // [cycles + 1] into cycles
  std::vector<int32_t> extra_links;  // outside the spanning trees
  bool exact() const { return extra_links.empty(); }
};

// Builds graphs one after the other. For placements of one size only the first build allocates.
class ReplicaGraphBuilder {
 public:
  // REQUIRES: check_placement(placement).ok().
  void build(const Placement& placement, ReplicaGraph* graph);

 private:
  struct Expert {
    int32_t num_replicas = 0;
    int32_t first_rank = -1;
    bool on_many_ranks = false;
    int32_t spread = -1;     // index, once it has one
    int32_t last_rank = -1;  // seen by add_slots
    int32_t last_link = -1;
  };

  void reserve(const Placement& placement, ReplicaGraph* graph);
  void count_replicas(const Placement& placement);
  void add_slots(const Placement& placement);
  void add_slot(int32_t expert, int32_t slot, int32_t rank);
  void share_links();
  void list_spread_links();

  int32_t node_of(int32_t spread) const { return graph_->num_ranks() + spread; }
  bool is_rank(int32_t node) const { return node < graph_->num_ranks(); }
  template <typename Visit>
  void for_links(int32_t node, Visit visit) const;
  int32_t open_link(int32_t node) const;
  void open_component(int32_t root);
  void peel();
  void close(int32_t leaf, int32_t link);
  void walk_cycle(int32_t first_rank);

  ReplicaGraph* graph_ = nullptr;
  std::vector<Expert> experts_;
  std::vector<int32_t> replicas_here_;  // by link
  std::vector<int32_t> next_;           // by spread expert: where its next link goes

  // Nodes: ranks are 0 .. R − 1, spread expert i is R + i.
  std::vector<char> seen_;       // by node
  std::vector<char> in_tree_;    // by link: in the spanning tree of its component
  std::vector<char> open_;       // by link: not peeled yet
  std::vector<int32_t> degree_;  // by node: open links
  std::vector<int32_t> nodes_;   // of a component; then the leaves
};

}  // namespace wideep::balance
