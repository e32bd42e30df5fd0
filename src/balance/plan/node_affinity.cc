// SPDX-License-Identifier: Apache-2.0
//
// Like affinity.cc: a table of what each expert would find on each node, so that a gain is a few
// look-ups and only an exchange touches rows. The difference is that replicas count once per node:
// an expert enters a node with its first replica there and leaves it with its last.
#include "plan/node_affinity.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace wideep::balance {
namespace {

size_t size(int count) { return static_cast<size_t>(count); }

}  // namespace

NodeAffinity::NodeAffinity(const PlanShape& shape)
    : num_experts_(shape.num_experts),
      num_nodes_(shape.num_nodes),
      slots_per_node_(shape.num_slots / shape.num_nodes),
      slot_to_expert_(size(shape.num_slots)),
      local_(size(num_experts_)),
      pairs_(size(num_experts_) * size(num_experts_)),
      pull_(size(num_nodes_) * size(num_experts_)),
      holds_(pull_.size()) {}

void NodeAffinity::reset(const LayerLoad& load, const Placement& placement) {
  WIDEEP_CHECK_EQ(load.pair_counts.size(), pairs_.size());
  std::vector<int> replicas(size(num_experts_));
  for (const int32_t expert : placement.slot_to_expert) ++replicas[size(expert)];
  const double total = std::accumulate(load.tokens.begin(), load.tokens.end(), 0.0);
  const double scale = total > 0.0 ? 1.0 / total : 0.0;
  for (int a = 0; a < num_experts_; ++a) {
    local_[size(a)] = load.tokens[size(a)] * scale / num_nodes_;
    for (int b = 0; b < num_experts_; ++b) {
      const int nodes_a = std::min(replicas[size(a)], num_nodes_);
      const int nodes_b = std::min(replicas[size(b)], num_nodes_);
      const double remote = std::max(0, num_nodes_ - nodes_a - nodes_b + 1);
      const double count = a == b ? 0.0 : static_cast<double>(load.pair_counts[at(a, b)]);
      pairs_[at(a, b)] = count * scale * remote / (num_nodes_ * nodes_a * nodes_b);
    }
  }
  place(placement.slot_to_expert);
}

void NodeAffinity::place(std::span<const int32_t> slot_to_expert) {
  std::copy(slot_to_expert.begin(), slot_to_expert.end(), slot_to_expert_.begin());
  std::fill(pull_.begin(), pull_.end(), 0.0);
  std::fill(holds_.begin(), holds_.end(), 0);
  for (int slot = 0; slot < static_cast<int>(slot_to_expert_.size()); ++slot) {
    enter(node_of(slot), expert_of(slot));
  }
}

void NodeAffinity::enter(int node, int expert) {
  if (holds_[at(node, expert)]++ == 0) add_to_pull(node, expert, 1.0);
}

void NodeAffinity::leave(int node, int expert) {
  if (--holds_[at(node, expert)] == 0) add_to_pull(node, expert, -1.0);
}

void NodeAffinity::add_to_pull(int node, int expert, double sign) {
  double* pull = pull_.data() + at(node, 0);
  const double* pairs = pairs_.data() + at(expert, 0);
  for (int e = 0; e < num_experts_; ++e) pull[e] += sign * pairs[e];
}

// Every pair on a node is seen from both of its experts.
double NodeAffinity::saved() const {
  double sum = 0.0;
  for (int node = 0; node < num_nodes_; ++node) {
    for (int expert = 0; expert < num_experts_; ++expert) {
      if (holds_[at(node, expert)] == 0) continue;
      sum += local_[size(expert)] + pull_[at(node, expert)] / 2.0;
    }
  }
  return sum;
}

// An expert that comes to a node where it is already brings nothing, one that leaves another
// replica there takes nothing away. pull_ still has the experts of before: where one comes and the
// other leaves, their pair does not meet afterwards.
double NodeAffinity::gain(int slot_a, int slot_b) const {
  const int node_a = node_of(slot_a), node_b = node_of(slot_b);
  if (node_a == node_b) return 0.0;
  const int a = expert_of(slot_a), b = expert_of(slot_b);
  if (a == b) return 0.0;
  const bool a_leaves = holds_[at(node_a, a)] == 1, a_comes = holds_[at(node_b, a)] == 0;
  const bool b_leaves = holds_[at(node_b, b)] == 1, b_comes = holds_[at(node_a, b)] == 0;
  double gain = 0.0;
  if (a_leaves) gain -= local_[size(a)] + pull_[at(node_a, a)];
  if (a_comes) gain += local_[size(a)] + pull_[at(node_b, a)];
  if (b_leaves) gain -= local_[size(b)] + pull_[at(node_b, b)];
  if (b_comes) gain += local_[size(b)] + pull_[at(node_a, b)];
  if (a_comes && b_leaves) gain -= pairs_[at(a, b)];
  if (b_comes && a_leaves) gain -= pairs_[at(a, b)];
  return gain;
}

void NodeAffinity::exchange(int slot_a, int slot_b) {
  const int node_a = node_of(slot_a), node_b = node_of(slot_b);
  const int a = expert_of(slot_a), b = expert_of(slot_b);
  std::swap(slot_to_expert_[size(slot_a)], slot_to_expert_[size(slot_b)]);
  if (node_a == node_b || a == b) return;
  leave(node_a, a);
  leave(node_b, b);
  enter(node_a, b);
  enter(node_b, a);
}

}  // namespace wideep::balance
