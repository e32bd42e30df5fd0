// SPDX-License-Identifier: Apache-2.0
//
// How many messages between nodes a placement saves, while a search exchanges slots: the state
// beside Affinity, with nodes in place of ranks.
//
// A token's row crosses to each other node that it needs once. From its own node n it needs the
// nodes of those of its k experts that have no replica on n, where an expert with replicas takes
// the local one, and else any, as engines that prefer replicas on the own node do. So messages are
// saved in two ways: by replicas on distinct nodes, and by experts of a token that meet on a node
// that it goes to. Messages per token, averaged over n, are k · (1 − saved()) with
//
//   saved() = Σ_e f_e · |N_e| / N + Σ_{a,b} p_ab · |N_a ∩ N_b| · c_ab
//   c_ab = max(0, N − r_a − r_b + 1) / (N · r_a · r_b)
//
// f_e: the expert's part of all (token, expert) pairs; p_ab: tokens that choose both, relative to
// the same; N_e: its r_e nodes. The second sum counts that the two meet once instead of twice. It
// is exact where every token has two experts of one replica each; three that meet are counted as
// three pairs, and nodes that two replicated experts share beyond one are taken as such a one.
//
// Thread safety: none; each planner has its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "wideep/balancer.h"

namespace wideep::balance {

class NodeAffinity {
 public:
  explicit NodeAffinity(const PlanShape& shape);

  // Starts with a layer's load and pairs and a valid placement of the shape. Its replica counts
  // hold until the next reset.
  void reset(const LayerLoad& load, const Placement& placement);
  // Changes to another placement with the same replica counts.
  void place(std::span<const int32_t> slot_to_expert);

  double saved() const;
  // The change of saved() by an exchange of the experts of two slots. 0 on one node.
  double gain(int slot_a, int slot_b) const;
  void exchange(int slot_a, int slot_b);

 private:
  size_t at(int row, int expert) const {
    return static_cast<size_t>(row) * static_cast<size_t>(num_experts_) +
           static_cast<size_t>(expert);
  }
  int expert_of(int slot) const { return slot_to_expert_[static_cast<size_t>(slot)]; }
  int node_of(int slot) const { return slot / slots_per_node_; }
  void enter(int node, int expert);
  void leave(int node, int expert);
  void add_to_pull(int node, int expert, double sign);

  int num_experts_;
  int num_nodes_;
  int slots_per_node_;
  std::vector<int32_t> slot_to_expert_;  // [S]
  std::vector<double> local_;            // [E] saved by each further node of the expert
  std::vector<double> pairs_;            // [E, E] saved where both are on a node
  std::vector<double> pull_;             // [N, E] pairs_ of the expert with all on the node
  std::vector<int> holds_;               // [N, E] replicas
};

}  // namespace wideep::balance
