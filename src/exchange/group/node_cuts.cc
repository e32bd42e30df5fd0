// SPDX-License-Identifier: Apache-2.0
//
// To leave out the fewest nodes is a vertex cover. Greedy, the node with most cuts first, is right
// for the few nodes that there are; afterwards nodes that are only cut from others which are out
// are taken back. The present choice stays while it is enough, since a better one would end ranks
// that serve.
#include "group/node_cuts.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/check.h"

namespace wideep::transport {

NodeCuts::NodeCuts(const NodeMap& nodes) {
  for (int node = 0; node < nodes.num_nodes(); ++node) {
    ranks_.push_back(static_cast<int>(nodes.ranks_of(node).size()));
  }
}

void NodeCuts::cut(int a, int b, Time now) {
  WIDEEP_CHECK(a != b);
  const Pair pair = pair_of(a, b);
  if (cuts_.contains(pair)) return;
  constexpr int kMaxDoublings = 10;
  const int doublings = std::min(times_[pair]++, kMaxDoublings);
  cuts_[pair] = now + std::min(kFirstPause * (1 << doublings), kLongestPause);
  choose();
}

void NodeCuts::mend(int a, int b) {
  cuts_.erase(pair_of(a, b));
  choose();
}

void NodeCuts::forget(int node) {
  const auto has_it = [&](const auto& each) {
    return each.first.first == node || each.first.second == node;
  };
  std::erase_if(cuts_, has_it);
  std::erase_if(times_, has_it);
  choose();
}

void NodeCuts::choose() {
  if (is_enough(left_out_)) return drop_needless(&left_out_);
  std::vector<int> anew = cover({}), more = cover(left_out_);
  left_out_ = more.size() <= anew.size() ? std::move(more) : std::move(anew);
}

// Those of `out` that are needed, and who has to be out beside them.
std::vector<int> NodeCuts::cover(std::vector<int> out) const {
  std::set<Pair> cuts;
  for (const auto& [pair, asked] : cuts_) {
    if (!is_out(out, pair)) cuts.insert(pair);
  }
  while (!cuts.empty()) {
    std::map<int, int> count;  // cuts of each node
    for (const auto& [a, b] : cuts) ++count[a], ++count[b];
    count.erase(0);
    const auto last = std::ranges::max_element(count, [&](const auto& a, const auto& b) {
      const int more = ranks_[static_cast<size_t>(b.first)] - ranks_[static_cast<size_t>(a.first)];
      return std::tuple(a.second, more, a.first) < std::tuple(b.second, 0, b.first);
    });
    const int node = last->first;
    out.push_back(node);
    std::erase_if(cuts,
                  [&](const Pair& each) { return each.first == node || each.second == node; });
  }
  // The choice above looks at one node at a time: one may be left out for others that are, too.
  std::ranges::sort(out);
  drop_needless(&out);
  return out;
}

// out: ascending.
bool NodeCuts::is_out(const std::vector<int>& out, const Pair& pair) {
  return std::ranges::binary_search(out, pair.first) ||
         std::ranges::binary_search(out, pair.second);
}

bool NodeCuts::is_enough(const std::vector<int>& out) const {
  return std::ranges::all_of(cuts_, [&](const auto& each) { return is_out(out, each.first); });
}

void NodeCuts::drop_needless(std::vector<int>* out) const {
  for (const int node : std::vector<int>(*out)) {
    const bool is_needless = std::ranges::none_of(cuts_, [&](const auto& each) {
      const auto [a, b] = each.first;
      return (a == node && !std::ranges::binary_search(*out, b)) ||
             (b == node && !std::ranges::binary_search(*out, a));
    });
    if (is_needless) std::erase(*out, node);
  }
}

std::vector<NodeCuts::Ask> NodeCuts::due(Time now) {
  std::vector<Ask> asks;
  const std::vector<int>& out = left_out();
  for (auto& [pair, ask_at] : cuts_) {
    if (now < ask_at) continue;
    ask_at = now + kFirstPause;
    const bool second_is_out = std::ranges::binary_search(out, pair.second);
    asks.push_back(second_is_out ? Ask{pair.second, pair.first} : Ask{pair.first, pair.second});
  }
  return asks;
}

NodeCuts::Time NodeCuts::next_due() const {
  const auto first = std::ranges::min_element(
      cuts_, [](const auto& a, const auto& b) { return a.second < b.second; });
  return first->second;
}

}  // namespace wideep::transport
