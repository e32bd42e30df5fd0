// SPDX-License-Identifier: Apache-2.0
//
// The shares that minimise the largest load of a rank, on the device: what balance::Resplitter
// computes, with the same operations in the same order, so that all ranks and the CPU get the same
// bits. placement/resplit.cc explains the algorithm, placement/replica_graph.h the graph.
//
// It is serial, and small: a step for each replica of an expert that has several, one to three
// times. Work space is the block's shared memory.
//
// Thread safety: prepare by all threads of a block, solve by one of them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "cuda/lane.h"

namespace wideep::cuda {

// balance::ReplicaGraph on the device.
struct DeviceReplicaGraph {
  int32_t num_ranks = 0;
  int32_t num_spread = 0;
  int32_t num_links = 0;
  int32_t num_steps = 0;
  int32_t num_cycles = 0;
  int32_t num_extra = 0;                  // links; 0: one pass is exact
  const int32_t* spread = nullptr;        // [num_spread] expert ids
  const int32_t* link_spread = nullptr;   // [num_links]
  const int32_t* link_rank = nullptr;     // [num_links]
  const int32_t* rank_start = nullptr;    // [num_ranks + 1] into links
  const int32_t* spread_links = nullptr;  // by spread expert
  const int32_t* spread_start = nullptr;  // [num_spread + 1] into spread_links
  const int32_t* alone = nullptr;         // by rank
  const int32_t* alone_start = nullptr;   // [num_ranks + 1] into alone
  const int32_t* steps = nullptr;         // [num_steps, 3] kind, rank, link
  const int32_t* cycles = nullptr;        // [steps of cycles, 3] rank, near, far
  const int32_t* cycle_start = nullptr;   // [num_cycles + 1] into cycles
  const int32_t* extra_links = nullptr;   // [num_extra]
  const double* equal = nullptr;          // [num_links]

  // Of the solver's work space.
  WIDEEP_HOST_DEVICE size_t work_bytes() const {
    const auto ranks = static_cast<size_t>(num_ranks), experts = static_cast<size_t>(num_spread);
    return (2 * ranks + 2 * experts + static_cast<size_t>(num_links)) * sizeof(double) +
           4 * ranks * sizeof(int32_t);
  }
};

template <typename Lane>
class ShareSolver {
 public:
  // work: 8-byte aligned, DeviceReplicaGraph::work_bytes.
  WIDEEP_DEVICE ShareSolver(Lane& lane, const DeviceReplicaGraph& graph, std::byte* work)
      : lane_(lane), graph_(graph) {
    base_load_ = reinterpret_cast<double*>(work);
    load_ = base_load_ + graph.num_ranks;
    spread_load_ = load_ + graph.num_ranks;
    left_ = spread_load_ + graph.num_spread;
    amount_ = left_ + graph.num_spread;
    from_link_ = reinterpret_cast<int32_t*>(amount_ + graph.num_links);
    to_link_ = from_link_ + graph.num_ranks;
    reached_ = to_link_ + graph.num_ranks;
    rank_mark_ = reached_ + graph.num_ranks;
  }

  // tokens: [num_experts] of all ranks for each expert. A barrier has to follow.
  WIDEEP_DEVICE void prepare(const int32_t* tokens) {
    for (int i = lane_.thread(); i < graph_.num_spread; i += lane_.num_threads()) {
      lane_.store(spread_load_ + i,
                  static_cast<double>(lane_.load(tokens + lane_.load(graph_.spread + i))));
    }
    for (int rank = lane_.thread(); rank < graph_.num_ranks; rank += lane_.num_threads()) {
      double load = 0.0;
      const int end = lane_.load(graph_.alone_start + rank + 1);
      for (int i = lane_.load(graph_.alone_start + rank); i < end; ++i) {
        load += static_cast<double>(lane_.load(tokens + lane_.load(graph_.alone + i)));
      }
      lane_.store(base_load_ + rank, load);
      lane_.store(rank_mark_ + rank, 0);
    }
  }

  // A barrier before others call load_of_spread and amount.
  WIDEEP_DEVICE void solve() {
    double total = 0.0;
    for (int i = 0; i < graph_.num_spread; ++i) total += lane_.load(spread_load_ + i);
    for (int rank = 0; rank < graph_.num_ranks; ++rank) total += lane_.load(base_load_ + rank);
    level_ = total / graph_.num_ranks;
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

  // Of the expert of a link: its tokens, and those that go to the link's rank.
  WIDEEP_DEVICE double load_of(int link) {
    return lane_.load(spread_load_ + lane_.load(graph_.link_spread + link));
  }
  WIDEEP_DEVICE double amount(int link) { return lane_.load(amount_ + link); }

 private:
  static constexpr double kTolerance = 1e-12;  // as placement/resplit.cc
  // Kinds of steps, as balance::ReplicaGraph::Step.
  static constexpr int32_t kGive = 1;
  static constexpr int32_t kDone = 2;

  WIDEEP_DEVICE static double min(double a, double b) { return b < a ? b : a; }
  WIDEEP_DEVICE static double clamp(double value, double low, double high) {
    return value < low ? low : high < value ? high : value;
  }

  WIDEEP_DEVICE bool is_exact() const { return graph_.num_extra == 0; }
  WIDEEP_DEVICE double tolerance() const { return kTolerance * level_; }
  WIDEEP_DEVICE int spread_of(int link) { return lane_.load(graph_.link_spread + link); }
  WIDEEP_DEVICE int rank_of(int link) { return lane_.load(graph_.link_rank + link); }

  // The first rank that cannot get down to the level, −1 if all do or one pass is not exact.
  // Amounts need no zeros at the start: a search looks only at links that the pass has come to. For
  // if it ends early, the hot rank's load came from experts whose links have all been decided, and
  // so on from their ranks; and around a cycle the search ends at the far link of its first step,
  // which is 0 in the first lap.
  WIDEEP_DEVICE int settle() {
    for (int rank = 0; rank < graph_.num_ranks; ++rank)
      lane_.store(load_ + rank, lane_.load(base_load_ + rank));
    for (int i = 0; i < graph_.num_spread; ++i)
      lane_.store(left_ + i, lane_.load(spread_load_ + i));
    start_extra_links();
    for (int i = 0; i < graph_.num_steps; ++i) {
      const int32_t* step = graph_.steps + 3 * i;
      const int rank = lane_.load(step + 1);
      if (!settle_step(lane_.load(step), rank, lane_.load(step + 2)) && is_exact()) return rank;
    }
    for (int i = 0; i < graph_.num_cycles; ++i) {
      const int hot_rank =
          settle_cycle(lane_.load(graph_.cycle_start + i), lane_.load(graph_.cycle_start + i + 1));
      if (hot_rank >= 0) return hot_rank;
    }
    return -1;
  }

  WIDEEP_DEVICE void start_extra_links() {
    for (int i = 0; i < graph_.num_extra; ++i) {
      const int link = lane_.load(graph_.extra_links + i);
      const int spread = spread_of(link), rank = rank_of(link);
      const double amount = lane_.load(spread_load_ + spread) * lane_.load(graph_.equal + link);
      lane_.store(amount_ + link, amount);
      lane_.store(left_ + spread, lane_.load(left_ + spread) - amount);
      lane_.store(load_ + rank, lane_.load(load_ + rank) + amount);
    }
  }

  // False: the rank stays above the level.
  WIDEEP_DEVICE bool settle_step(int kind, int rank, int link) {
    double load = lane_.load(load_ + rank);
    if (kind != kDone) {
      const int spread = spread_of(link);
      const double left = lane_.load(left_ + spread);
      const double taken = kind == kGive ? left : clamp(level_ - load, 0.0, left);
      load += taken;
      lane_.store(amount_ + link, taken);
      lane_.store(load_ + rank, load);
      lane_.store(left_ + spread, kind == kGive ? 0.0 : left - taken);
      if (kind == kGive) return true;
    }
    return load <= level_ + tolerance();
  }

  // Of steps of cycles.
  WIDEEP_DEVICE int cycle_rank(int i) { return lane_.load(graph_.cycles + 3 * i); }
  WIDEEP_DEVICE int near_link(int i) { return lane_.load(graph_.cycles + 3 * i + 1); }
  WIDEEP_DEVICE int far_link(int i) { return lane_.load(graph_.cycles + 3 * i + 2); }
  WIDEEP_DEVICE double left_of(int i) { return lane_.load(left_ + spread_of(near_link(i))); }

  WIDEEP_DEVICE int settle_cycle(int begin, int end) {
    double near = left_of(begin), first_near = near;
    for (int lap = 0; lap < 2; ++lap) {
      first_near = near;
      for (int i = begin; i < end; ++i) {
        const int next = i + 1 == end ? begin : i + 1;
        lane_.store(amount_ + near_link(i), near);
        lane_.store(amount_ + far_link(i), left_of(i) - near);
        near += level_ - lane_.load(load_ + cycle_rank(next)) - left_of(i);
        if (near < -tolerance() && is_exact()) {
          lane_.store(amount_ + near_link(next), 0.0);
          return cycle_rank(next);
        }
        near = clamp(near, 0.0, left_of(next));
      }
    }
    if (near < first_near - tolerance() && is_exact()) return cycle_rank(begin);
    finish_cycle(begin, end);
    return -1;
  }

  WIDEEP_DEVICE void finish_cycle(int begin, int end) {
    double max = lane_.load(amount_ + near_link(begin));
    for (int i = begin + 1; i < end; ++i) max = min(max, lane_.load(amount_ + near_link(i)));
    for (int i = begin; i < end; ++i) {
      const double near = lane_.load(amount_ + near_link(i)) - max / 2;
      const double far = lane_.load(amount_ + far_link(i)) + max / 2;
      lane_.store(amount_ + near_link(i), near);
      lane_.store(amount_ + far_link(i), far);
      const int rank = cycle_rank(i);
      lane_.store(load_ + rank, lane_.load(load_ + rank) + near);
      const int next = rank_of(far_link(i));
      lane_.store(load_ + next, lane_.load(load_ + next) + far);
    }
  }

  WIDEEP_DEVICE void push_down() {
    for (int rank = 0; rank < graph_.num_ranks; ++rank) {
      while (is_above_level(rank)) {
        if (search(rank, level_) && is_above_level(rank)) raise_level_to_reached();
      }
    }
  }
  WIDEEP_DEVICE bool is_above_level(int rank) {
    return lane_.load(load_ + rank) > level_ + tolerance();
  }

  WIDEEP_DEVICE bool reach(int rank, int from_link, int to_link) {
    if (lane_.load(rank_mark_ + rank) == search_) return false;
    lane_.store(rank_mark_ + rank, search_);
    lane_.store(from_link_ + rank, from_link);
    lane_.store(to_link_ + rank, to_link);
    lane_.store(reached_ + num_reached_++, rank);
    return true;
  }

  // True: all ranks that can be reached are, none of them below fill_below.
  WIDEEP_DEVICE bool search(int hot_rank, double fill_below) {
    ++search_;
    num_reached_ = 0;
    reach(hot_rank, -1, -1);
    for (int i = 0; i < num_reached_; ++i) {
      const int from_rank = lane_.load(reached_ + i);
      const int end = lane_.load(graph_.rank_start + from_rank + 1);
      for (int from = lane_.load(graph_.rank_start + from_rank); from < end; ++from) {
        if (lane_.load(amount_ + from) <= 0.0) continue;
        if (!reach_all(hot_rank, from, fill_below)) return false;
      }
    }
    return true;
  }

  WIDEEP_DEVICE bool reach_all(int hot_rank, int from, double fill_below) {
    const int spread = spread_of(from);
    const int end = lane_.load(graph_.spread_start + spread + 1);
    for (int k = lane_.load(graph_.spread_start + spread); k < end; ++k) {
      const int to = lane_.load(graph_.spread_links + k);
      const int rank = rank_of(to);
      if (!reach(rank, from, to) || lane_.load(load_ + rank) >= fill_below) continue;
      if (!push_along_path(hot_rank, rank)) return false;
    }
    return true;
  }

  // False: a link of the path has nothing left, or the hot rank is at the level.
  WIDEEP_DEVICE bool push_along_path(int hot_rank, int cold_rank) {
    double max = lane_.load(load_ + hot_rank) - level_;
    for (int rank = cold_rank; rank != hot_rank; rank = rank_before(rank)) {
      max = min(max, lane_.load(amount_ + lane_.load(from_link_ + rank)));
    }
    const double lack = level_ - lane_.load(load_ + cold_rank);
    const double amount = min(max, lack);
    for (int rank = cold_rank; rank != hot_rank; rank = rank_before(rank)) {
      const int from = lane_.load(from_link_ + rank), to = lane_.load(to_link_ + rank);
      lane_.store(amount_ + from, lane_.load(amount_ + from) - amount);
      lane_.store(amount_ + to, lane_.load(amount_ + to) + amount);
    }
    lane_.store(load_ + hot_rank, lane_.load(load_ + hot_rank) - amount);
    // Exactly the level, so that no rounding is left to be filled.
    lane_.store(load_ + cold_rank,
                amount == lack ? level_ : lane_.load(load_ + cold_rank) + amount);
    return amount < max;
  }
  WIDEEP_DEVICE int rank_before(int rank) { return rank_of(lane_.load(from_link_ + rank)); }

  WIDEEP_DEVICE void raise_level_to_reached() {
    // The next number: levels are not negative.
    const double next = std::bit_cast<double>(std::bit_cast<uint64_t>(level_) + 1);
    double level = forced_mean();
    if (level_ + tolerance() > level) level = level_ + tolerance();
    level_ = next > level ? next : level;
  }

  WIDEEP_DEVICE double forced_mean() {
    double forced = 0.0;
    for (int i = 0; i < num_reached_; ++i)
      forced += lane_.load(base_load_ + lane_.load(reached_ + i));
    for (int spread = 0; spread < graph_.num_spread; ++spread) {
      bool is_inside = true;
      const int end = lane_.load(graph_.spread_start + spread + 1);
      for (int k = lane_.load(graph_.spread_start + spread); k < end && is_inside; ++k) {
        is_inside =
            lane_.load(rank_mark_ + rank_of(lane_.load(graph_.spread_links + k))) == search_;
      }
      if (is_inside) forced += lane_.load(spread_load_ + spread);
    }
    return forced / static_cast<double>(num_reached_);
  }

  Lane& lane_;
  const DeviceReplicaGraph& graph_;
  double* base_load_;    // [num_ranks] of the experts that are on one rank only
  double* load_;         // [num_ranks]
  double* spread_load_;  // [num_spread]
  double* left_;         // [num_spread] load that has no rank yet
  double* amount_;       // [num_links] load of the expert that goes to the rank
  int32_t* from_link_;   // [num_ranks] by which load leaves the rank before
  int32_t* to_link_;     // [num_ranks] by which it arrives
  int32_t* reached_;     // [num_ranks] in the order of the search
  int32_t* rank_mark_;   // [num_ranks] == search_: reached
  double level_ = 0.0;
  int32_t search_ = 0;
  int num_reached_ = 0;
};

}  // namespace wideep::cuda
