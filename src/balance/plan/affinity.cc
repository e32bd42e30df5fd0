// SPDX-License-Identifier: Apache-2.0
//
// The table pull_[rank, expert] holds, for every expert, the pairs that it forms with all experts
// on a rank. The gain of an exchange is then five entries of tables, and an exchange costs four
// rows of E additions. A search asks for many gains per exchange, so the work lies where it is
// rarer.
#include "plan/affinity.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace wideep::balance {
namespace {

size_t size(int count) { return static_cast<size_t>(count); }

}  // namespace

Affinity::Affinity(const PlanShape& shape)
    : num_experts_(shape.num_experts),
      num_ranks_(shape.ep_size),
      rank_of_(size(shape.num_slots)),
      slot_to_expert_(size(shape.num_slots)),
      replicas_(size(num_experts_)),
      part_(size(num_experts_)),
      pairs_(size(num_experts_) * size(num_experts_)),
      pull_(size(num_ranks_) * size(num_experts_)),
      holds_(pull_.size()),
      rank_load_(size(num_ranks_)) {
  for (int slot = 0; slot < shape.num_slots; ++slot) {
    rank_of_[size(slot)] = slot / shape.slots_per_rank();
  }
}

void Affinity::reset(const LayerLoad& load, const Placement& placement) {
  WIDEEP_CHECK_EQ(load.pair_counts.size(), pairs_.size());
  set_parts(load.tokens, placement);
  set_pairs(load.pair_counts);
  place(placement.slot_to_expert);
}

// Scaled to a mean rank load of 1, so that the search's limits do not depend on the unit.
void Affinity::set_parts(std::span<const double> tokens, const Placement& placement) {
  std::fill(replicas_.begin(), replicas_.end(), 0.0);
  for (const int32_t expert : placement.slot_to_expert) replicas_[size(expert)] += 1.0;
  const double total = std::accumulate(tokens.begin(), tokens.end(), 0.0);
  const double scale = total > 0.0 ? num_ranks_ / total : 0.0;
  for (size_t e = 0; e < part_.size(); ++e) part_[e] = tokens[e] * scale / replicas_[e];
}

// Each replica gets an equal, independent part of its expert's tokens, so a pair of replicas gets
// count / (replicas of a · replicas of b). `counts` is symmetric, so `total` counts each pair
// twice.
void Affinity::set_pairs(std::span<const int64_t> counts) {
  double total = 0.0;
  for (int a = 0; a < num_experts_; ++a) {
    for (int b = 0; b < num_experts_; ++b) {
      const double count = a == b ? 0.0 : static_cast<double>(counts[at(a, b)]);
      total += count;
      pairs_[at(a, b)] = count / (replicas_[size(a)] * replicas_[size(b)]);
    }
  }
  if (total <= 0.0) return;
  for (double& pairs : pairs_) pairs /= total / 2.0;
}

void Affinity::place(std::span<const int32_t> slot_to_expert) {
  std::copy(slot_to_expert.begin(), slot_to_expert.end(), slot_to_expert_.begin());
  std::fill(pull_.begin(), pull_.end(), 0.0);
  std::fill(holds_.begin(), holds_.end(), 0);
  std::fill(rank_load_.begin(), rank_load_.end(), 0.0);
  for (int slot = 0; slot < num_slots(); ++slot) {
    const int rank = rank_of(slot);
    holds_[at(rank, expert_of(slot))] = 1;
    rank_load_[size(rank)] += slot_load(slot);
    add_to_pull(rank, expert_of(slot), 1.0);
  }
}

void Affinity::add_to_pull(int rank, int expert, double sign) {
  double* pull = pull_.data() + at(rank, 0);
  const double* pairs = pairs_.data() + at(expert, 0);
  for (int e = 0; e < num_experts_; ++e) pull[e] += sign * pairs[e];
}

bool Affinity::may_exchange(int slot_a, int slot_b) const {
  const int rank_a = rank_of(slot_a), rank_b = rank_of(slot_b);
  return rank_a != rank_b && holds_[at(rank_b, expert_of(slot_a))] == 0 &&
         holds_[at(rank_a, expert_of(slot_b))] == 0;
}

// pull_[rank, e] includes the pair (a, b) for both b on rank_b and a on rank_a, but after the
// exchange the two experts are still on different ranks: their pair is subtracted twice.
double Affinity::gain(int slot_a, int slot_b) const {
  const int rank_a = rank_of(slot_a), rank_b = rank_of(slot_b);
  const int a = expert_of(slot_a), b = expert_of(slot_b);
  return pull_[at(rank_b, a)] - pull_[at(rank_a, a)] + pull_[at(rank_a, b)] - pull_[at(rank_b, b)] -
         2.0 * pairs_[at(a, b)];
}

void Affinity::exchange(int slot_a, int slot_b) {
  const int rank_a = rank_of(slot_a), rank_b = rank_of(slot_b);
  const int a = expert_of(slot_a), b = expert_of(slot_b);
  const double moved = slot_load(slot_a) - slot_load(slot_b);
  rank_load_[size(rank_a)] -= moved;
  rank_load_[size(rank_b)] += moved;
  holds_[at(rank_a, a)] = holds_[at(rank_b, b)] = 0;
  holds_[at(rank_a, b)] = holds_[at(rank_b, a)] = 1;
  add_to_pull(rank_a, a, -1.0);
  add_to_pull(rank_a, b, 1.0);
  add_to_pull(rank_b, b, -1.0);
  add_to_pull(rank_b, a, 1.0);
  std::swap(slot_to_expert_[size(slot_a)], slot_to_expert_[size(slot_b)]);
}

// Every pair on a rank is seen from both of its slots.
double Affinity::within_rank_ratio() const {
  double sum = 0.0;
  for (int slot = 0; slot < num_slots(); ++slot) sum += pull_[at(rank_of(slot), expert_of(slot))];
  return sum / 2.0;
}

void Affinity::equal_shares(Shares* shares) const {
  shares->resize(slot_to_expert_.size());
  std::ranges::transform(slot_to_expert_, shares->begin(),
                         [&](int32_t expert) { return 1.0 / replicas_[size(expert)]; });
}

double Affinity::max_rank_load() const {
  return *std::max_element(rank_load_.begin(), rank_load_.end());
}

}  // namespace wideep::balance
