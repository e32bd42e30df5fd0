// SPDX-License-Identifier: Apache-2.0
//
// Accumulates token by token, with arrays by rank that are cleared only where the token touched
// them: a token visits few of many ranks. By shares it is the exact expectation, not a draw. By
// cover it is the greedy set cover, where a start that depends on the token spreads ties over the
// ranks.
#include "placement/token_spread.h"

#include <algorithm>

#include "base/check.h"
#include "wideep/balancer.h"

namespace wideep::balance {
namespace {

size_t idx(int i) { return static_cast<size_t>(i); }

}  // namespace

LayerSpread::LayerSpread(const Placement& placement, std::span<const double> shares, int num_nodes)
    : num_ranks_(placement.ep_size),
      absent_(idx(placement.ep_size), 1.0),
      meeting_(idx(placement.ep_size), 0.0),
      visited_(idx(placement.ep_size), 0),
      num_nodes_(idx(num_nodes)),
      crossings_from_(idx(num_nodes)),
      received_(idx(placement.ep_size), 0.0) {
  WIDEEP_CHECK_EQ(shares.size(), placement.slot_to_expert.size());
  const RoutingTable table = make_routing_table(placement);
  for (int expert = 0; expert < placement.num_experts; ++expert) {
    start_.push_back(parts_.size());
    for (const int32_t slot : table.replicas(expert)) {
      const int rank = placement.rank_of_slot(slot);
      // The slots of an expert ascend, so two on one rank follow each other.
      const bool doubled = parts_.size() > start_.back() && parts_.back().rank == rank;
      if (!doubled) parts_.push_back({rank, 0.0});
      parts_.back().share += shares[idx(slot)];
    }
  }
  start_.push_back(parts_.size());
  if (num_nodes > 1) set_crossing(placement, num_nodes);
}

// Each node has 1 / N of an expert's tokens. A node whose share is s serves min(s, 1 / N) of its
// own, and max(0, s − 1 / N) of the others'.
void LayerSpread::set_crossing(const Placement& placement, int num_nodes) {
  WIDEEP_CHECK_EQ(placement.ep_size % num_nodes, 0);
  const int ranks_per_node = placement.ep_size / num_nodes;
  const double own = 1.0 / num_nodes;
  std::vector<double> shares(num_nodes_);
  for (int expert = 0; expert < placement.num_experts; ++expert) {
    std::ranges::fill(shares, 0.0);
    for (const Part& part : parts(static_cast<uint16_t>(expert))) {
      shares[idx(part.rank / ranks_per_node)] += part.share;
    }
    double surplus = 0.0;
    for (const double share : shares) surplus += std::max(0.0, share - own);
    for (size_t from = 0; from < num_nodes_; ++from) {
      const double leaves = 1.0 - std::min(1.0, shares[from] / own);
      for (size_t to = 0; to < num_nodes_; ++to) {
        const double part = surplus > 0.0 ? std::max(0.0, shares[to] - own) / surplus : 0.0;
        stays_away_.push_back(from == to ? 1.0 : 1.0 - leaves * part);
      }
    }
  }
}

void LayerSpread::add_crossings(std::span<const uint16_t> experts) {
  for (size_t from = 0; from < num_nodes_; ++from) {
    std::ranges::fill(crossings_from_, 1.0);
    for (const uint16_t expert : experts) {
      const double* away = stays_away_.data() + (expert * num_nodes_ + from) * num_nodes_;
      for (size_t to = 0; to < num_nodes_; ++to) crossings_from_[to] *= away[to];
    }
    for (const double away : crossings_from_) crossings_ += 1.0 - away;
  }
}

std::span<const LayerSpread::Part> LayerSpread::parts(uint16_t expert) const {
  const size_t begin = start_[expert];
  return std::span(parts_).subspan(begin, start_[expert + size_t{1}] - begin);
}

void LayerSpread::add(int64_t token, std::span<const uint16_t> experts) {
  ++num_tokens_;
  add_by_shares(experts);
  if (num_nodes_ > 1) add_crossings(experts);
  add_by_cover(token, experts);
}

// Experts choose replicas independently, so two of them meet on a rank with the probability share ·
// share. meeting_ sums the shares of the earlier experts: each pair is added once.
void LayerSpread::add_by_shares(std::span<const uint16_t> experts) {
  touched_.clear();
  for (const uint16_t expert : experts) {
    for (const auto& [rank, share] : parts(expert)) {
      if (share <= 0.0) continue;
      // Only touched ranks are reset below: a token visits few of many ranks.
      if (meeting_[idx(rank)] == 0.0) touched_.push_back(rank);
      pairs_within_ += meeting_[idx(rank)] * share;
      meeting_[idx(rank)] += share;
      absent_[idx(rank)] *= 1.0 - share;
    }
  }
  for (const int rank : touched_) {
    ranks_by_shares_ += 1.0 - absent_[idx(rank)];
    absent_[idx(rank)] = 1.0;
    meeting_[idx(rank)] = 0.0;
  }
  const auto top_k = static_cast<double>(experts.size());
  num_pairs_ += top_k * (top_k - 1.0) / 2.0;
}

void LayerSpread::visit(int rank) {
  if (visited_[idx(rank)] != 0) return;
  visited_[idx(rank)] = 1;
  visits_.push_back(rank);
}

// True if a visited rank holds the expert.
bool LayerSpread::is_visited(uint16_t expert) const {
  return std::ranges::any_of(parts(expert),
                             [&](const Part& part) { return visited_[idx(part.rank)] != 0; });
}

// Greedy set cover: the rank that holds most of the unserved experts. Starting at a rank that
// depends on the token spreads ties over the ranks.
int LayerSpread::next_rank(int64_t token) const {
  const auto serves = [&](int rank) {
    return std::ranges::count_if(rest_, [&](uint16_t expert) {
      return std::ranges::any_of(parts(expert), [&](const Part& p) { return p.rank == rank; });
    });
  };
  const int first = static_cast<int>(token % num_ranks_);
  int best = -1;
  std::ptrdiff_t max = 0;
  for (int i = 0; i < num_ranks_; ++i) {
    const int rank = (first + i) % num_ranks_;
    const std::ptrdiff_t served = serves(rank);
    if (served > max) {
      max = served;
      best = rank;
    }
  }
  return best;
}

// Experts on one rank leave no choice: their ranks are visited first, and every other expert that
// is there too costs nothing more.
void LayerSpread::add_by_cover(int64_t token, std::span<const uint16_t> experts) {
  visits_.clear();
  for (const uint16_t expert : experts) {
    if (parts(expert).size() == 1) visit(parts(expert)[0].rank);
  }
  rest_.assign(experts.begin(), experts.end());
  std::erase_if(rest_, [&](uint16_t expert) { return is_visited(expert); });
  while (!rest_.empty()) {
    visit(next_rank(token));
    std::erase_if(rest_, [&](uint16_t expert) { return is_visited(expert); });
  }
  for (const uint16_t expert : experts) {
    const auto at = std::ranges::find_if(
        parts(expert), [&](const Part& part) { return visited_[idx(part.rank)] != 0; });
    received_[idx(at->rank)] += 1.0;
  }
  ranks_by_cover_ += static_cast<int64_t>(visits_.size());
  for (const int rank : visits_) visited_[idx(rank)] = 0;
}

// Only ranks that hold an expert: dead ranks must not lower the mean.
std::vector<double> LayerSpread::received_by_live_ranks() const {
  std::vector<char> live(received_.size(), 0);
  for (const Part& part : parts_) live[idx(part.rank)] = 1;
  std::vector<double> received;
  for (size_t rank = 0; rank < live.size(); ++rank) {
    if (live[rank] != 0) received.push_back(received_[rank]);
  }
  return received;
}

Spread LayerSpread::spread() const {
  if (num_tokens_ == 0) return {};
  const auto tokens = static_cast<double>(num_tokens_);
  return {.ranks_by_shares = ranks_by_shares_ / tokens,
          .ranks_by_cover = static_cast<double>(ranks_by_cover_) / tokens,
          .within_rank_ratio = num_pairs_ > 0.0 ? pairs_within_ / num_pairs_ : 0.0,
          .imbalance_by_cover = imbalance_ratio(received_by_live_ranks()),
          .crossings = crossings_ / (tokens * static_cast<double>(num_nodes_))};
}

Spread mean_spread(std::span<const Spread> spreads) {
  const double weight = 1.0 / static_cast<double>(spreads.size());
  Spread mean;
  for (const Spread& spread : spreads) {
    mean.ranks_by_shares += weight * spread.ranks_by_shares;
    mean.ranks_by_cover += weight * spread.ranks_by_cover;
    mean.within_rank_ratio += weight * spread.within_rank_ratio;
    mean.crossings += weight * spread.crossings;
    mean.imbalance_by_cover += weight * spread.imbalance_by_cover;
  }
  return mean;
}

}  // namespace wideep::balance
