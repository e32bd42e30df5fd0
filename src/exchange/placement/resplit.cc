// SPDX-License-Identifier: Apache-2.0
//
// The least maximum of rank loads that shares can reach, by Newton's method on a level: choose
// shares for the level, and if a rank stays above it, take the mean of the ranks that its load
// cannot leave as the next level. The theory stands below, before the class. A bisection would
// need some forty passes to be exact; here one to three are usual, and the last one also gives the
// reason, the bottleneck. Steps are counted for those who budget their time by them.
#include "wideep/balancer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "placement/replica_graph.h"
#include "placement/resplit_work.h"

namespace wideep::balance {
namespace {

// Relative to the level: far above the rounding of sums over 1024 ranks.
constexpr double kTolerance = 1e-12;

size_t at(int32_t index) { return static_cast<size_t>(index); }

// One sum for each thread instead of one in each Resplitter: who plans uses several.
thread_local int64_t steps_of_thread = 0;

void count_steps(size_t steps) { steps_of_thread += static_cast<int64_t>(steps); }

}  // namespace

int64_t resplit_steps() { return steps_of_thread; }

// The minimum is L* = max over sets U of ranks of forced(U) / |U|, where forced(U) is the load of
// the experts whose replicas all lie in U: that load cannot leave U (so no shares do better), and
// by max-flow min-cut some shares reach it. For the set of all ranks this is the mean T = total /
// R.
//
// Algorithm: Newton's method on the level L, from L = T. At each level the shares are chosen such
// that no rank exceeds L: in one pass over the graph where that is exact (see replica_graph.h), and
// along augmenting paths from hot to cold ranks where it is not. If a rank r cannot get down to L,
// the ranks that its load can still reach are a minimum cut U; its mean forced(U) / |U| > L is the
// next level, and U is the reason (bottleneck_ranks). The levels grow along sets of shrinking size,
// so they end at L*, usually after one to three.
class Resplitter::Impl {
 public:
  void reset(const Placement& placement);
  double resplit(std::span<const double> expert_load, std::span<double> shares);
  std::span<const int> bottleneck_ranks() const { return bottleneck_; }

 private:
  double tolerance() const;
  void load_ranks(std::span<const double> expert_load);
  int settle();
  bool settle_step(const ReplicaGraph::Step& step);
  int settle_cycle(size_t begin, size_t end);
  void finish_cycle(size_t begin, size_t end);
  void start_extra_links();
  void push_down();
  void start_search();
  bool search(int hot_rank, double fill_below);
  bool reach(int32_t rank, int32_t from_link, int32_t to_link);
  bool push_along_path(int hot_rank, int cold_rank);
  void raise_level(int hot_rank);
  void raise_level_to_reached();
  double forced_mean() const;
  void write_shares(std::span<double> shares) const;

  ReplicaGraph graph_;
  ReplicaGraphBuilder builder_;

  // Set by load_ranks():
  std::vector<double> base_load_;    // [R] load of the experts that are on one rank only
  std::vector<double> spread_load_;  // [spread]
  double total_ = 0.0;

  double level_ = 0.0;  // the highest proven bound so far

  // The current shares:
  std::vector<double> amount_;  // [links] load of the expert that goes to the rank
  std::vector<double> left_;    // [spread] load that has no rank yet
  std::vector<double> load_;    // [R]

  // Search from a hot rank, breadth first:
  std::vector<int32_t> reached_;       // ranks, in the order of the search
  std::vector<int32_t> from_link_;     // [R] link by which load leaves the rank before
  std::vector<int32_t> to_link_;       // [R] link by which it arrives
  std::vector<uint32_t> rank_mark_;    // [R] == search_: reached
  std::vector<uint32_t> spread_mark_;  // [spread]
  uint32_t search_ = 0;

  std::vector<int> bottleneck_;
};

void Resplitter::Impl::reset(const Placement& placement) {
  builder_.build(placement, &graph_);
  const size_t num_ranks = at(graph_.num_ranks()), num_slots = placement.slot_to_expert.size();
  // Slots are read to count, to sort and to link, and links are peeled off one by one, with hardly
  // predictable branches: so much was measured for 40 to 432 slots on 4 to 144 ranks.
  count_steps(14 * num_slots + 14 * graph_.links.size() + 4 * num_ranks);
  spread_load_.reserve(num_slots / 2);
  spread_mark_.reserve(num_slots / 2);
  left_.reserve(num_slots / 2);
  amount_.reserve(num_slots);
  base_load_.resize(num_ranks);
  spread_load_.resize(graph_.spread.size());
  amount_.resize(graph_.links.size());
  from_link_.resize(num_ranks);
  to_link_.resize(num_ranks);
  rank_mark_.assign(num_ranks, 0);
  spread_mark_.assign(graph_.spread.size(), 0);
  search_ = 0;
  load_.reserve(num_ranks);
  reached_.reserve(num_ranks);
  bottleneck_.reserve(num_ranks);
  bottleneck_.clear();
}

double Resplitter::Impl::resplit(std::span<const double> expert_load, std::span<double> shares) {
  WIDEEP_CHECK_EQ(shares.size(), graph_.constant_shares.size());
  load_ranks(expert_load);
  count_steps(2 * shares.size() + graph_.link_slots.size() + base_load_.size());
  bottleneck_.clear();
  level_ = total_ / graph_.num_ranks();
  if (graph_.exact()) {
    for (int hot_rank = settle(); hot_rank >= 0; hot_rank = settle()) raise_level(hot_rank);
  } else {
    settle();
    push_down();
  }
  write_shares(shares);
  return *std::max_element(load_.begin(), load_.end());
}

// How far above the level a rank load may be.
double Resplitter::Impl::tolerance() const { return kTolerance * level_; }

void Resplitter::Impl::load_ranks(std::span<const double> expert_load) {
  total_ = 0.0;
  for (size_t i = 0; i < spread_load_.size(); ++i) {
    spread_load_[i] = expert_load[at(graph_.spread[i])];
    total_ += spread_load_[i];
  }
  for (size_t rank = 0; rank < base_load_.size(); ++rank) {
    double load = 0.0;
    for (int32_t i = graph_.alone_start[rank]; i < graph_.alone_start[rank + 1]; ++i) {
      load += expert_load[at(graph_.alone[at(i)])];
    }
    base_load_[rank] = load;
    total_ += load;
  }
}

// Chooses shares in one pass. Returns the first rank that cannot get down to the level, −1 if all
// do. If one pass is not exact it goes on to the end and returns −1.
int Resplitter::Impl::settle() {
  count_steps(graph_.steps.size() + 2 * graph_.cycles.size() + load_.size());
  load_ = base_load_;
  left_ = spread_load_;
  std::fill(amount_.begin(), amount_.end(), 0.0);
  start_extra_links();
  for (const ReplicaGraph::Step& step : graph_.steps) {
    if (!settle_step(step) && graph_.exact()) return step.rank;
  }
  for (size_t i = 0; i + 1 < graph_.cycle_start.size(); ++i) {
    const int hot_rank = settle_cycle(at(graph_.cycle_start[i]), at(graph_.cycle_start[i + 1]));
    if (hot_rank >= 0) return hot_rank;
  }
  return -1;
}

// Extra links break the peeling order. Their equal shares are only a start, which push_down()
// corrects.
void Resplitter::Impl::start_extra_links() {
  for (int32_t link : graph_.extra_links) {
    const ReplicaGraph::Link& ends = graph_.links[at(link)];
    const double amount = spread_load_[at(ends.spread)] * graph_.equal[at(link)];
    amount_[at(link)] = amount;
    left_[at(ends.spread)] -= amount;
    load_[at(ends.rank)] += amount;
  }
}

// False: the rank stays above the level. Its last link is decided here, so no later step can help
// it.
bool Resplitter::Impl::settle_step(const ReplicaGraph::Step& step) {
  double& load = load_[at(step.rank)];
  if (step.kind != ReplicaGraph::Step::kDone) {
    double& left = left_[at(graph_.links[at(step.link)].spread)];
    if (step.kind == ReplicaGraph::Step::kGive) {
      amount_[at(step.link)] = left;
      load += left;
      left = 0.0;
      return true;
    }
    const double taken = std::clamp(level_ - load, 0.0, left);
    amount_[at(step.link)] = taken;
    load += taken;
    left -= taken;
  }
  return load <= level_ + tolerance();
}

// Let x be the load that an expert gives to its near rank. The next rank stays at or below the
// level if its own expert gives it x' ≤ x + room, room = level − (peeled load of the next rank) −
// (load of this expert). One lap from the largest possible x gives an upper bound of all x, which
// is a fixed point if there is one; the second lap starts there.
int Resplitter::Impl::settle_cycle(size_t begin, size_t end) {
  const auto left_of = [&](size_t i) {
    return left_[at(graph_.links[at(graph_.cycles[i].near)].spread)];
  };
  double near = left_of(begin), first_near = near;
  for (int lap = 0; lap < 2; ++lap) {
    first_near = near;
    for (size_t i = begin; i < end; ++i) {
      const ReplicaGraph::CycleStep& step = graph_.cycles[i];
      const ReplicaGraph::CycleStep& next = graph_.cycles[i + 1 == end ? begin : i + 1];
      amount_[at(step.near)] = near;
      amount_[at(step.far)] = left_of(i) - near;
      near += level_ - load_[at(next.rank)] - left_of(i);
      if (near < -tolerance() && graph_.exact()) {
        amount_[at(next.near)] = 0.0;  // nothing of that expert is on the next rank
        return next.rank;
      }
      near = std::clamp(near, 0.0, left_[at(graph_.links[at(next.near)].spread)]);
    }
  }
  if (near < first_near - tolerance() && graph_.exact()) return graph_.cycles[begin].rank;
  finish_cycle(begin, end);
  return -1;
}

// Load can go around the cycle without a change for any rank. settle_cycle sent as much as possible
// to the near ranks; half of what can go back keeps all replicas in use.
void Resplitter::Impl::finish_cycle(size_t begin, size_t end) {
  double max = std::numeric_limits<double>::infinity();
  for (size_t i = begin; i < end; ++i) {
    max = std::min(max, amount_[at(graph_.cycles[i].near)]);
  }
  for (size_t i = begin; i < end; ++i) {
    const ReplicaGraph::CycleStep& step = graph_.cycles[i];
    double& near = amount_[at(step.near)];
    double& far = amount_[at(step.far)];
    near -= max / 2;
    far += max / 2;
    load_[at(step.rank)] += near;
    load_[at(graph_.links[at(step.far)].rank)] += far;
  }
}

// Moves load from ranks above the level to ranks below it; raises the level where that cannot be.
void Resplitter::Impl::push_down() {
  for (int rank = 0; rank < graph_.num_ranks(); ++rank) {
    while (load_[at(rank)] > level_ + tolerance()) {
      const bool ended = search(rank, level_);
      if (ended && load_[at(rank)] > level_ + tolerance()) raise_level_to_reached();
    }
  }
}

// Marks compare with a counter, so that a search need not clear them.
void Resplitter::Impl::start_search() {
  if (++search_ == 0) {  // the counter wrapped: old marks would look new
    std::fill(rank_mark_.begin(), rank_mark_.end(), 0);
    std::fill(spread_mark_.begin(), spread_mark_.end(), 0);
    search_ = 1;
  }
  reached_.clear();
}

bool Resplitter::Impl::reach(int32_t rank, int32_t from_link, int32_t to_link) {
  if (rank_mark_[at(rank)] == search_) return false;
  rank_mark_[at(rank)] = search_;
  from_link_[at(rank)] = from_link;
  to_link_[at(rank)] = to_link;
  reached_.push_back(rank);
  return true;
}

// Visits the ranks that load of the hot rank can reach, nearest first, and fills those below the
// level on the way. A path stays usable after a push until one of its links has nothing left, so
// one search serves many cold ranks. True: reached_ holds all ranks that can be reached, none of
// them below the level.
bool Resplitter::Impl::search(int hot_rank, double fill_below) {
  start_search();
  reach(hot_rank, -1, -1);
  for (size_t i = 0; i < reached_.size(); ++i) {
    const size_t from_rank = at(reached_[i]);
    count_steps(at(graph_.rank_start[from_rank + 1] - graph_.rank_start[from_rank]));
    for (int32_t from = graph_.rank_start[from_rank]; from < graph_.rank_start[from_rank + 1];
         ++from) {
      const size_t spread = at(graph_.links[at(from)].spread);
      if (amount_[at(from)] <= 0.0 || spread_mark_[spread] == search_) continue;
      spread_mark_[spread] = search_;
      count_steps(at(graph_.spread_start[spread + 1] - graph_.spread_start[spread]));
      for (int32_t k = graph_.spread_start[spread]; k < graph_.spread_start[spread + 1]; ++k) {
        const int32_t to = graph_.spread_links[at(k)];
        const int32_t rank = graph_.links[at(to)].rank;
        if (!reach(rank, from, to) || load_[at(rank)] >= fill_below) continue;
        if (!push_along_path(hot_rank, rank)) return false;
      }
    }
  }
  return true;
}

// False: a link of the path has nothing left, or the hot rank is at the level.
bool Resplitter::Impl::push_along_path(int hot_rank, int cold_rank) {
  const auto rank_before = [&](int rank) { return graph_.links[at(from_link_[at(rank)])].rank; };
  double max = load_[at(hot_rank)] - level_;
  for (int rank = cold_rank; rank != hot_rank; rank = rank_before(rank)) {
    max = std::min(max, amount_[at(from_link_[at(rank)])]);
  }
  const double lack = level_ - load_[at(cold_rank)];
  const double amount = std::min(max, lack);
  size_t length = 0;
  for (int rank = cold_rank; rank != hot_rank; rank = rank_before(rank)) {
    amount_[at(from_link_[at(rank)])] -= amount;
    amount_[at(to_link_[at(rank)])] += amount;
    ++length;
  }
  count_steps(2 * length);
  load_[at(hot_rank)] -= amount;
  // Exactly the level, so that no rounding is left to be filled.
  load_[at(cold_rank)] = amount == lack ? level_ : load_[at(cold_rank)] + amount;
  return amount < max;
}

void Resplitter::Impl::raise_level(int hot_rank) {
  search(hot_rank, 0.0);
  raise_level_to_reached();
}

// No load can leave the reached ranks: their mean is a level that cannot be avoided. Rounding may
// hide that it is higher than the present level; then the level still grows, by the tolerance or,
// if that rounds to nothing, to the next number, so that the loop ends.
void Resplitter::Impl::raise_level_to_reached() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  level_ = std::max({forced_mean(), level_ + tolerance(), std::nextafter(level_, kInfinity)});
  bottleneck_.assign(reached_.begin(), reached_.end());
  std::sort(bottleneck_.begin(), bottleneck_.end());
}

// forced(U) / |U| of the ranks reached.
double Resplitter::Impl::forced_mean() const {
  count_steps(reached_.size() + graph_.spread_links.size());
  double forced = 0.0;
  for (int32_t rank : reached_) forced += base_load_[at(rank)];
  for (size_t spread = 0; spread < spread_load_.size(); ++spread) {
    const auto first = graph_.spread_links.begin() + graph_.spread_start[spread];
    const auto last = graph_.spread_links.begin() + graph_.spread_start[spread + 1];
    const bool inside = std::all_of(first, last, [&](int32_t link) {
      return rank_mark_[at(graph_.links[at(link)].rank)] == search_;
    });
    if (inside) forced += spread_load_[spread];
  }
  return forced / static_cast<double>(reached_.size());
}

void Resplitter::Impl::write_shares(std::span<double> shares) const {
  std::copy(graph_.constant_shares.begin(), graph_.constant_shares.end(), shares.begin());
  for (const ReplicaGraph::LinkSlot& slot : graph_.link_slots) {
    const double load = spread_load_[at(graph_.links[at(slot.link)].spread)];
    // amount / load is not accurate for subnormal loads; equal shares are, and cost nothing.
    if (load < std::numeric_limits<double>::min()) continue;
    shares[at(slot.slot)] = amount_[at(slot.link)] * slot.fraction / load;
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
