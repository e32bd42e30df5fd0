// SPDX-License-Identifier: Apache-2.0
//
// The least maximum of rank loads that shares can reach, by Newton's method on a level: choose
// shares for the level, and if a rank stays above it, take the mean of the ranks that its load
// cannot leave as the next level. The theory stands below, before the class. A bisection would
// need some forty passes to be exact; here one to three are usual, and the last one also gives the
// reason, the bottleneck. Steps are counted for those who budget their time by them.
#include "wideep/balancer.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/plain_memory.h"
#include "placement/replica_graph.h"
#include "placement/resplit_work.h"
#include "placement/share_solver.h"

namespace wideep::balance {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// One sum for each thread instead of one in each Resplitter: who plans uses several.
thread_local int64_t steps_of_thread = 0;

void count_steps(size_t steps) { steps_of_thread += static_cast<int64_t>(steps); }

}  // namespace

int64_t resplit_steps() { return steps_of_thread; }

namespace {

// The graph as ShareSolver reads it.
class GraphInMemory {
 public:
  GraphInMemory(const ReplicaGraph& graph, std::vector<int32_t>* spread_mark,
                std::vector<int>* bottleneck)
      : graph_(&graph), spread_mark_(spread_mark), bottleneck_(bottleneck) {}

  int num_ranks() const { return graph_->num_ranks(); }
  int num_spread() const { return static_cast<int>(graph_->spread.size()); }
  int num_links() const { return static_cast<int>(graph_->links.size()); }
  int num_steps() const { return static_cast<int>(graph_->steps.size()); }
  int num_cycles() const { return static_cast<int>(graph_->cycle_start.size()) - 1; }
  int num_extra() const { return static_cast<int>(graph_->extra_links.size()); }
  int spread(int i) const { return graph_->spread[at(i)]; }
  int alone(int i) const { return graph_->alone[at(i)]; }
  int alone_start(int rank) const { return graph_->alone_start[at(rank)]; }
  int rank_start(int rank) const { return graph_->rank_start[at(rank)]; }
  int spread_links(int k) const { return graph_->spread_links[at(k)]; }
  int spread_start(int spread) const { return graph_->spread_start[at(spread)]; }
  int link_spread(int link) const { return graph_->links[at(link)].spread; }
  int link_rank(int link) const { return graph_->links[at(link)].rank; }
  double equal(int link) const { return graph_->equal[at(link)]; }
  int extra_link(int i) const { return graph_->extra_links[at(i)]; }
  int step_kind(int i) const { return graph_->steps[at(i)].kind; }
  int step_rank(int i) const { return graph_->steps[at(i)].rank; }
  int step_link(int i) const { return graph_->steps[at(i)].link; }
  int cycle_start(int i) const { return graph_->cycle_start[at(i)]; }
  int cycle_rank(int i) const { return graph_->cycles[at(i)].rank; }
  int cycle_near(int i) const { return graph_->cycles[at(i)].near; }
  int cycle_far(int i) const { return graph_->cycles[at(i)].far; }

  // All ranks of an expert have been reached when it is visited again.
  bool is_first_visit(int spread, int32_t search) {
    return std::exchange((*spread_mark_)[at(spread)], search) != search;
  }
  static void count(int steps) { count_steps(at(steps)); }
  void count_pass() const {
    count_steps(graph_->steps.size() + 2 * graph_->cycles.size() + at(num_ranks()));
  }
  void found_bottleneck(const int32_t* reached, int num_reached) {
    bottleneck_->assign(reached, reached + num_reached);
    std::sort(bottleneck_->begin(), bottleneck_->end());
  }

 private:
  const ReplicaGraph* graph_;
  std::vector<int32_t>* spread_mark_;  // [spread] the last search that has visited the expert
  std::vector<int>* bottleneck_;
};

using Solver = ShareSolver<base::PlainMemory, GraphInMemory>;

}  // namespace

class Resplitter::Impl {
 public:
  void reset(const Placement& placement);
  double resplit(std::span<const double> expert_load, std::span<double> shares);
  std::span<const int> bottleneck_ranks() const { return bottleneck_; }

 private:
  void write_shares(Solver& solver, std::span<double> shares) const;

  ReplicaGraph graph_;
  ReplicaGraphBuilder builder_;
  std::vector<double> work_;  // of the solver
  std::vector<int32_t> spread_mark_;
  std::vector<int> bottleneck_;
};

void Resplitter::Impl::reset(const Placement& placement) {
  builder_.build(placement, &graph_);
  const size_t num_ranks = at(graph_.num_ranks()), num_slots = placement.slot_to_expert.size();
  // Slots are read to count, to sort and to link, and links are peeled off one by one, with hardly
  // predictable branches: so much was measured for 40 to 432 slots on 4 to 144 ranks.
  count_steps(14 * num_slots + 14 * graph_.links.size() + 4 * num_ranks);
  // For all placements of this size, so that only the first allocates.
  work_.resize(share_work_bytes(num_ranks, num_slots / 2, num_slots) / sizeof(double));
  spread_mark_.reserve(num_slots / 2);
  bottleneck_.reserve(num_ranks);
  bottleneck_.clear();
}

double Resplitter::Impl::resplit(std::span<const double> expert_load, std::span<double> shares) {
  WIDEEP_CHECK_EQ(shares.size(), graph_.constant_shares.size());
  count_steps(2 * shares.size() + graph_.link_slots.size() + at(graph_.num_ranks()));
  bottleneck_.clear();
  spread_mark_.assign(graph_.spread.size(), 0);
  base::PlainMemory memory;
  Solver solver(memory, {graph_, &spread_mark_, &bottleneck_},
                reinterpret_cast<std::byte*>(work_.data()));
  solver.prepare(expert_load.data());
  solver.solve();
  write_shares(solver, shares);
  double largest = solver.load_of_rank(0);
  for (int rank = 1; rank < graph_.num_ranks(); ++rank) {
    largest = std::max(largest, solver.load_of_rank(rank));
  }
  return largest;
}

void Resplitter::Impl::write_shares(Solver& solver, std::span<double> shares) const {
  std::copy(graph_.constant_shares.begin(), graph_.constant_shares.end(), shares.begin());
  for (const ReplicaGraph::LinkSlot& slot : graph_.link_slots) {
    const double load = solver.load_of(slot.link);
    // amount / load is not accurate for subnormal loads; equal shares are, and cost nothing.
    if (load < std::numeric_limits<double>::min()) continue;
    shares[at(slot.slot)] = solver.amount(slot.link) * slot.fraction / load;
  }
}

Resplitter::Resplitter() : impl_(std::make_unique<Impl>()) {}

Resplitter::Resplitter(const Placement& placement) : Resplitter() { reset(placement); }

Resplitter::~Resplitter() = default;
Resplitter::Resplitter(Resplitter&&) noexcept = default;
Resplitter& Resplitter::operator=(Resplitter&&) noexcept = default;

void Resplitter::reset(const Placement& placement) { impl_->reset(placement); }

double Resplitter::resplit(std::span<const double> expert_load, std::span<double> shares) {
  return impl_->resplit(expert_load, shares);
}

std::span<const int> Resplitter::bottleneck_ranks() const { return impl_->bottleneck_ranks(); }

Shares resplit(const Placement& placement, std::span<const double> expert_load) {
  Shares shares(placement.slot_to_expert.size());
  Resplitter(placement).resplit(expert_load, shares);
  return shares;
}

}  // namespace wideep::balance
