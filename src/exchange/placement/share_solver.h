// SPDX-License-Identifier: Apache-2.0
//
// The shares that minimise the largest load of a rank: one source for the CPU
// (placement/resplit.cc) and for GPUs (cuda/resplit_shares.h), so that both get the same bits.
//
// The minimum is L* = max over sets U of ranks of forced(U) / |U|, where forced(U) is the load of
// the experts whose replicas all lie in U: that load cannot leave U (so no shares do better), and
// by max-flow min-cut some shares reach it. For the set of all ranks this is the mean T = total /
// R.
//
// Algorithm: Newton's method on the level L, from L = T. At each level the shares are chosen such
// that no rank exceeds L: in one pass over the graph where that is exact (see replica_graph.h), and
// along augmenting paths from hot to cold ranks where it is not. If a rank r cannot get down to L,
// the ranks that its load can still reach are a minimum cut U; its mean forced(U) / |U| > L is the
// next level, and U is the reason. The levels grow along sets of shrinking size, so they end at L*,
// usually after one to three.
//
// Memory has load(p) and store(p, value): base::PlainMemory, or a lane (cuda/lane.h). Graph is a
// ReplicaGraph, wherever it lies, and what is told of the work:
//
//   num_ranks(), num_spread(), num_links(), num_steps(), num_cycles(), num_extra()
//   spread(i), alone(i), alone_start(rank), rank_start(rank), spread_links(k), spread_start(i),
//   link_spread(link), link_rank(link), equal(link), extra_link(i), step_kind(i), step_rank(i),
//   step_link(i), cycle_start(i), cycle_rank(i), cycle_near(i), cycle_far(i)
//   is_first_visit(spread, search)  may be false for an expert of which this search has been told
//   count(n), count_pass()          visits of links; a pass over the whole graph
//   found_bottleneck(reached, n)    the ranks that have raised the level
//
// Thread safety: prepare by all threads, solve by one of them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace wideep::balance {

// Of the solver's work space.
WIDEEP_HOST_DEVICE size_t share_work_bytes(size_t num_ranks, size_t num_spread, size_t num_links) {
  return (2 * num_ranks + 2 * num_spread + num_links) * sizeof(double) +
         4 * num_ranks * sizeof(int32_t);
}

template <typename Memory, typename Graph>
class ShareSolver {
 public:
  // work: 8-byte aligned, share_work_bytes().
  WIDEEP_DEVICE ShareSolver(Memory& memory, const Graph& graph, std::byte* work)
      : memory_(memory), graph_(graph) {
    base_load_ = reinterpret_cast<double*>(work);
    load_ = base_load_ + graph_.num_ranks();
    spread_load_ = load_ + graph_.num_ranks();
    left_ = spread_load_ + graph_.num_spread();
    amount_ = left_ + graph_.num_spread();
    from_link_ = reinterpret_cast<int32_t*>(amount_ + graph_.num_links());
    to_link_ = from_link_ + graph_.num_ranks();
    reached_ = to_link_ + graph_.num_ranks();
    rank_mark_ = reached_ + graph_.num_ranks();
  }

  // expert_load: [num_experts] of all ranks. A barrier has to follow.
  template <typename Load>
  WIDEEP_DEVICE void prepare(const Load* expert_load, int thread = 0, int num_threads = 1) {
    for (int i = thread; i < graph_.num_spread(); i += num_threads) {
      memory_.store(spread_load_ + i,
                    static_cast<double>(memory_.load(expert_load + graph_.spread(i))));
    }
    for (int rank = thread; rank < graph_.num_ranks(); rank += num_threads) {
      double sum = 0.0;
      const int end = graph_.alone_start(rank + 1);
      for (int i = graph_.alone_start(rank); i < end; ++i) {
        sum += static_cast<double>(memory_.load(expert_load + graph_.alone(i)));
      }
      memory_.store(base_load_ + rank, sum);
      memory_.store(rank_mark_ + rank, 0);
    }
  }

  // A barrier before others read the results.
  WIDEEP_DEVICE void solve() {
    double total = 0.0;
    for (int i = 0; i < graph_.num_spread(); ++i) total += memory_.load(spread_load_ + i);
    for (int rank = 0; rank < graph_.num_ranks(); ++rank) total += memory_.load(base_load_ + rank);
    level_ = total / graph_.num_ranks();
    if (!is_exact()) {
      settle();
      push_down();
      return;
    }
    for (int hot_rank = settle(); hot_rank >= 0; hot_rank = settle()) {
      search(hot_rank, 0.0);
      raise_level_to_reached();
    }
  }

  // Of the expert of a link: its load, and what of it goes to the link's rank.
  WIDEEP_DEVICE double load_of(int link) {
    return memory_.load(spread_load_ + graph_.link_spread(link));
  }
  WIDEEP_DEVICE double amount(int link) { return memory_.load(amount_ + link); }
  WIDEEP_DEVICE double load_of_rank(int rank) { return memory_.load(load_ + rank); }

 private:
  // Relative to the level: far above the rounding of sums over 1024 ranks.
  static constexpr double kTolerance = 1e-12;
  // Kinds of steps, as ReplicaGraph::Step.
  static constexpr int32_t kGive = 1;
  static constexpr int32_t kDone = 2;

  WIDEEP_DEVICE static double min(double a, double b) { return b < a ? b : a; }
  WIDEEP_DEVICE static double clamp(double value, double low, double high) {
    return value < low ? low : high < value ? high : value;
  }

  WIDEEP_DEVICE bool is_exact() { return graph_.num_extra() == 0; }
  // How far above the level a rank load may be.
  WIDEEP_DEVICE double tolerance() const { return kTolerance * level_; }
  WIDEEP_DEVICE int spread_of(int link) { return graph_.link_spread(link); }
  WIDEEP_DEVICE int rank_of(int link) { return graph_.link_rank(link); }

  // Chooses shares in one pass. The first rank that cannot get down to the level; −1 if all do, or
  // if one pass is not exact: then it goes on to the end.
  //
  // Amounts need no zeros at the start: a search looks only at links that the pass has come to. For
  // if it ends early, the hot rank's load came from experts whose links have all been decided, and
  // so on from their ranks; and around a cycle the search ends at the far link of its first step,
  // which is 0 in the first lap.
  WIDEEP_DEVICE int settle() {
    graph_.count_pass();
    for (int rank = 0; rank < graph_.num_ranks(); ++rank) {
      memory_.store(load_ + rank, memory_.load(base_load_ + rank));
    }
    for (int i = 0; i < graph_.num_spread(); ++i)
      memory_.store(left_ + i, memory_.load(spread_load_ + i));
    start_extra_links();
    for (int i = 0; i < graph_.num_steps(); ++i) {
      const int rank = graph_.step_rank(i);
      if (!settle_step(graph_.step_kind(i), rank, graph_.step_link(i)) && is_exact()) return rank;
    }
    for (int i = 0; i < graph_.num_cycles(); ++i) {
      const int hot_rank = settle_cycle(graph_.cycle_start(i), graph_.cycle_start(i + 1));
      if (hot_rank >= 0) return hot_rank;
    }
    return -1;
  }

  // Extra links break the peeling order. Their equal shares are only a start, which push_down()
  // corrects.
  WIDEEP_DEVICE void start_extra_links() {
    for (int i = 0; i < graph_.num_extra(); ++i) {
      const int link = graph_.extra_link(i);
      const int spread = spread_of(link), rank = rank_of(link);
      const double amount = memory_.load(spread_load_ + spread) * graph_.equal(link);
      memory_.store(amount_ + link, amount);
      memory_.store(left_ + spread, memory_.load(left_ + spread) - amount);
      memory_.store(load_ + rank, memory_.load(load_ + rank) + amount);
    }
  }

  // False: the rank stays above the level. Its last link is decided here, so no later step can help
  // it.
  WIDEEP_DEVICE bool settle_step(int kind, int rank, int link) {
    double sum = memory_.load(load_ + rank);
    if (kind != kDone) {
      const int spread = spread_of(link);
      const double left = memory_.load(left_ + spread);
      const double taken = kind == kGive ? left : clamp(level_ - sum, 0.0, left);
      sum += taken;
      memory_.store(amount_ + link, taken);
      memory_.store(load_ + rank, sum);
      memory_.store(left_ + spread, kind == kGive ? 0.0 : left - taken);
      if (kind == kGive) return true;
    }
    return sum <= level_ + tolerance();
  }

  // Of the expert near a step of a cycle.
  WIDEEP_DEVICE double left_of(int i) {
    return memory_.load(left_ + spread_of(graph_.cycle_near(i)));
  }

  // Let x be the load that an expert gives to its near rank. The next rank stays at or below the
  // level if its own expert gives it x' ≤ x + room, room = level − (peeled load of the next rank) −
  // (load of this expert). One lap from the largest possible x gives an upper bound of all x, which
  // is a fixed point if there is one; the second lap starts there.
  WIDEEP_DEVICE int settle_cycle(int begin, int end) {
    double near = left_of(begin), first_near = near;
    for (int lap = 0; lap < 2; ++lap) {
      first_near = near;
      for (int i = begin; i < end; ++i) {
        const int next = i + 1 == end ? begin : i + 1;
        memory_.store(amount_ + graph_.cycle_near(i), near);
        memory_.store(amount_ + graph_.cycle_far(i), left_of(i) - near);
        near += level_ - memory_.load(load_ + graph_.cycle_rank(next)) - left_of(i);
        if (near < -tolerance() && is_exact()) {
          memory_.store(amount_ + graph_.cycle_near(next),
                        0.0);  // nothing of it is on the next rank
          return graph_.cycle_rank(next);
        }
        near = clamp(near, 0.0, left_of(next));
      }
    }
    if (near < first_near - tolerance() && is_exact()) return graph_.cycle_rank(begin);
    finish_cycle(begin, end);
    return -1;
  }

  // Load can go around the cycle without a change for any rank. settle_cycle sent as much as
  // possible to the near ranks; half of what can go back keeps all replicas in use.
  WIDEEP_DEVICE void finish_cycle(int begin, int end) {
    double max = memory_.load(amount_ + graph_.cycle_near(begin));
    for (int i = begin + 1; i < end; ++i)
      max = min(max, memory_.load(amount_ + graph_.cycle_near(i)));
    for (int i = begin; i < end; ++i) {
      const double near = memory_.load(amount_ + graph_.cycle_near(i)) - max / 2;
      const double far = memory_.load(amount_ + graph_.cycle_far(i)) + max / 2;
      memory_.store(amount_ + graph_.cycle_near(i), near);
      memory_.store(amount_ + graph_.cycle_far(i), far);
      const int rank = graph_.cycle_rank(i);
      memory_.store(load_ + rank, memory_.load(load_ + rank) + near);
      const int next = rank_of(graph_.cycle_far(i));
      memory_.store(load_ + next, memory_.load(load_ + next) + far);
    }
  }

  // Moves load from ranks above the level to ranks below it; raises the level where that cannot be.
  WIDEEP_DEVICE void push_down() {
    for (int rank = 0; rank < graph_.num_ranks(); ++rank) {
      while (is_above_level(rank)) {
        if (search(rank, level_) && is_above_level(rank)) raise_level_to_reached();
      }
    }
  }
  WIDEEP_DEVICE bool is_above_level(int rank) {
    return memory_.load(load_ + rank) > level_ + tolerance();
  }

  WIDEEP_DEVICE bool reach(int rank, int from_link, int to_link) {
    if (memory_.load(rank_mark_ + rank) == search_) return false;
    memory_.store(rank_mark_ + rank, search_);
    memory_.store(from_link_ + rank, from_link);
    memory_.store(to_link_ + rank, to_link);
    memory_.store(reached_ + num_reached_++, rank);
    return true;
  }

  // Visits the ranks that load of the hot rank can reach, nearest first, and fills those below the
  // level on the way. A path stays usable after a push until one of its links has nothing left, so
  // one search serves many cold ranks. True: reached_ holds all ranks that can be reached, none of
  // them below fill_below. Marks compare with a counter, so that a search need not clear them.
  WIDEEP_DEVICE bool search(int hot_rank, double fill_below) {
    ++search_;
    num_reached_ = 0;
    reach(hot_rank, -1, -1);
    for (int i = 0; i < num_reached_; ++i) {
      const int from_rank = memory_.load(reached_ + i);
      const int begin = graph_.rank_start(from_rank), end = graph_.rank_start(from_rank + 1);
      graph_.count(end - begin);
      for (int from = begin; from < end; ++from) {
        if (memory_.load(amount_ + from) <= 0.0) continue;
        if (!graph_.is_first_visit(spread_of(from), search_)) continue;
        if (!reach_all(hot_rank, from, fill_below)) return false;
      }
    }
    return true;
  }

  WIDEEP_DEVICE bool reach_all(int hot_rank, int from, double fill_below) {
    const int spread = spread_of(from);
    const int begin = graph_.spread_start(spread), end = graph_.spread_start(spread + 1);
    graph_.count(end - begin);
    for (int k = begin; k < end; ++k) {
      const int to = graph_.spread_links(k);
      const int rank = rank_of(to);
      if (!reach(rank, from, to) || memory_.load(load_ + rank) >= fill_below) continue;
      if (!push_along_path(hot_rank, rank)) return false;
    }
    return true;
  }

  // False: a link of the path has nothing left, or the hot rank is at the level.
  WIDEEP_DEVICE bool push_along_path(int hot_rank, int cold_rank) {
    double max = memory_.load(load_ + hot_rank) - level_;
    for (int rank = cold_rank; rank != hot_rank; rank = rank_before(rank)) {
      max = min(max, memory_.load(amount_ + memory_.load(from_link_ + rank)));
    }
    const double lack = level_ - memory_.load(load_ + cold_rank);
    const double amount = min(max, lack);
    int length = 0;
    for (int rank = cold_rank; rank != hot_rank; rank = rank_before(rank)) {
      const int from = memory_.load(from_link_ + rank), to = memory_.load(to_link_ + rank);
      memory_.store(amount_ + from, memory_.load(amount_ + from) - amount);
      memory_.store(amount_ + to, memory_.load(amount_ + to) + amount);
      ++length;
    }
    graph_.count(2 * length);
    memory_.store(load_ + hot_rank, memory_.load(load_ + hot_rank) - amount);
    // Exactly the level, so that no rounding is left to be filled.
    memory_.store(load_ + cold_rank,
                  amount == lack ? level_ : memory_.load(load_ + cold_rank) + amount);
    return amount < max;
  }
  WIDEEP_DEVICE int rank_before(int rank) { return rank_of(memory_.load(from_link_ + rank)); }

  // No load can leave the reached ranks: their mean is a level that cannot be avoided. Rounding may
  // hide that it is higher than the present level; then the level still grows, by the tolerance or,
  // if that rounds to nothing, to the next number, so that the loop ends.
  WIDEEP_DEVICE void raise_level_to_reached() {
    // The next number: levels are not negative.
    const double next = std::bit_cast<double>(std::bit_cast<uint64_t>(level_) + 1);
    double level = forced_mean();
    if (level_ + tolerance() > level) level = level_ + tolerance();
    level_ = next > level ? next : level;
    graph_.found_bottleneck(reached_, num_reached_);
  }

  // forced(U) / |U| of the ranks reached.
  WIDEEP_DEVICE double forced_mean() {
    graph_.count(num_reached_ + graph_.num_links());
    double forced = 0.0;
    for (int i = 0; i < num_reached_; ++i)
      forced += memory_.load(base_load_ + memory_.load(reached_ + i));
    for (int spread = 0; spread < graph_.num_spread(); ++spread) {
      bool is_inside = true;
      const int end = graph_.spread_start(spread + 1);
      for (int k = graph_.spread_start(spread); k < end && is_inside; ++k) {
        is_inside = memory_.load(rank_mark_ + rank_of(graph_.spread_links(k))) == search_;
      }
      if (is_inside) forced += memory_.load(spread_load_ + spread);
    }
    return forced / static_cast<double>(num_reached_);
  }

  Memory& memory_;
  Graph graph_;
  double* base_load_;    // [num_ranks] of the experts that are on one rank only
  double* load_;         // [num_ranks]
  double* spread_load_;  // [num_spread]
  double* left_;         // [num_spread] load that has no rank yet
  double* amount_;       // [num_links] load of the expert that goes to the rank
  int32_t* from_link_;   // [num_ranks] by which load leaves the rank before
  int32_t* to_link_;     // [num_ranks] by which it arrives
  int32_t* reached_;     // [num_ranks] in the order of the search
  int32_t* rank_mark_;   // [num_ranks] == search_: reached
  double level_ = 0.0;   // the highest proven bound so far
  int32_t search_ = 0;
  int num_reached_ = 0;
};

}  // namespace wideep::balance
