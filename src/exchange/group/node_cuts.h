// SPDX-License-Identifier: Apache-2.0
//
// Pairs of nodes that cannot reach each other, though both reach node 0 (docs/faults.md), and which
// nodes are left out therefore: those that are in most pairs; of equal ones, those with fewer
// ranks, then with higher numbers; node 0 never. Who is left out stays so while that is enough:
// nodes that serve are not ended for those that could come back in their place. Where it is not,
// they stay out, too, and others beside them, unless another choice has fewer nodes.
//
// Pure: no clock. Thread safety: plain values.
#pragma once

#include <chrono>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "transport/node_map.h"

namespace wideep::transport {

class NodeCuts {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Until a pair is asked whether they reach each other again: the first, doubled with each cut.
  static constexpr std::chrono::milliseconds kFirstPause{500}, kLongestPause{60'000};

  // ranks: [nodes] how many each has.
  explicit NodeCuts(std::vector<int> ranks) : ranks_(std::move(ranks)) {}
  explicit NodeCuts(const NodeMap& nodes);

  // No effect if it is known. REQUIRES: different nodes.
  void cut(int a, int b, Time now);
  void mend(int a, int b);
  // The node is gone, and with it what was known of it.
  void forget(int node);

  bool is_empty() const { return cuts_.empty(); }
  // Ascending. No two of the other nodes are cut from each other.
  const std::vector<int>& left_out() const { return left_out_; }

  struct Ask {
    int from = 0;  // is left out
    int to = 0;
  };
  // Pairs whose time has come to be asked, each once in kFirstPause.
  std::vector<Ask> due(Time now);
  // REQUIRES: not empty.
  Time next_due() const;

 private:
  using Pair = std::pair<int, int>;  // the smaller one first
  static Pair pair_of(int a, int b) { return {a < b ? a : b, a < b ? b : a}; }
  void choose();
  std::vector<int> cover(std::vector<int> out) const;
  static bool is_out(const std::vector<int>& out, const Pair& pair);
  bool is_enough(const std::vector<int>& out) const;
  void drop_needless(std::vector<int>* out) const;

  std::vector<int> ranks_;
  std::map<Pair, Time> cuts_;  // when each is asked next
  std::map<Pair, int> times_;  // that it was cut
  std::vector<int> left_out_;  // ascending
};

}  // namespace wideep::transport
