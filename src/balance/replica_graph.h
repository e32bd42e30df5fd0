// SPDX-License-Identifier: Apache-2.0
//
// A placement as a graph: which ranks can hand load to each other because they hold replicas of one
// expert, and the order in which shares can be chosen one after the other.
//
// The nodes are the R ranks and the *spread* experts, those with replicas on two ranks or more. A
// *link* joins a spread expert and a rank that holds it; two replicas on one rank are one link. All
// other experts have no choice: their load stays on their rank.
//
// Shares can be chosen in one pass by peeling leaves off the graph. A rank with one link left takes
// from that expert what it lacks; an expert with one link left gives the rest to that rank. What
// no peeling reaches are cycles. That is exact where every component of the graph has at most one
// cycle (replicas laid around a ring of ranks); a component with more is peeled along a spanning
// tree, its other links keep an equal share, and the result is only a good start.
//
// Thread safety: plain value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "balance/placement.h"

namespace wideep::balance {

// Lists of integers behind each other: list i is values[start[i] .. start[i + 1]).
struct IntLists {
  std::vector<int32_t> start;
  std::vector<int32_t> values;

  std::span<const int32_t> operator[](int i) const {
    const auto first = static_cast<size_t>(start[static_cast<size_t>(i)]);
    const auto last = static_cast<size_t>(start[static_cast<size_t>(i) + 1]);
    return {values.data() + first, last - first};
  }
};

struct ReplicaGraph {
  struct Link {
    int32_t spread;  // index of the spread expert
    int32_t rank;
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
  struct LinkSlot {
    int32_t slot;
    int32_t link;
    double fraction;  // of the link's share: 1 / replicas of the expert on this rank
  };

  int num_ranks = 0;
  std::vector<int32_t> spread;          // spread experts: expert ids, ascending
  std::vector<Link> links;              // by spread expert, then by rank
  std::vector<double> equal;            // [links] the link's part of its expert's replicas
  std::vector<int32_t> link_start;      // [spread + 1] into links
  IntLists rank_links;                  // rank → links
  IntLists rank_experts;                // rank → experts that are nowhere else
  std::vector<LinkSlot> link_slots;     // the slots of spread experts
  std::vector<double> constant_shares;  // [S] equal shares: final for all other slots

  std::vector<Step> steps;        // peeling
  std::vector<CycleStep> cycles;  // what is left, one cycle behind the other
  std::vector<int32_t> cycle_start;
  std::vector<int32_t> extra_links;  // outside the spanning trees
  bool exact() const { return extra_links.empty(); }
};

// REQUIRES: check_placement(placement).ok().
ReplicaGraph make_replica_graph(const Placement& placement);

}  // namespace wideep::balance
