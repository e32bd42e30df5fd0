// SPDX-License-Identifier: Apache-2.0
#include "model/parts/perfect_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace wideep::model {
namespace {

constexpr float kChosen = 10.0f;

}  // namespace

Status PerfectRouter::check(const RoutingConfig& routing, int ep_size) {
  if (routing.num_experts % ep_size == 0) return {};
  return invalid_input(
      fmt::format("perfect router: expected a number of ranks that divides the {} experts, found "
                  "{}; choose another number of ranks",
                  routing.num_experts, ep_size));
}

PerfectRouter::PerfectRouter(const RoutingConfig& routing, int ep_size, int rank)
    : routing_(routing),
      group_size_(routing.num_experts / routing.num_groups),
      rank_experts_(routing.num_experts / ep_size),
      num_ranks_(ep_size),
      rank_(rank),
      ranks_taken_(ep_size, 0),
      taken_(routing.num_experts, 0),
      zero_bias_(routing.num_experts, 0.0f) {}

const float* PerfectRouter::logits(int num_tokens) {
  while (num_tokens_ < num_tokens) add_token();
  return logits_.data();
}

void PerfectRouter::add_token() {
  logits_.resize(logits_.size() + routing_.num_experts, -kChosen);
  float* chosen = logits_.data() + static_cast<size_t>(num_tokens_) * routing_.num_experts;
  // With a group for each choice the groups forbid nothing.
  const bool any_group = routing_.num_groups == 1 || routing_.top_k <= routing_.top_k_groups;
  // The groups that the token may choose from: all, until it has as many as it may.
  std::vector<bool> open(routing_.num_groups, true), used(routing_.num_groups, false);
  int num_used = 0;
  for (int k = 0; k < routing_.top_k; ++k, ++num_choices_) {
    const int32_t expert = any_group ? next_in_turn() : next_of_groups(open, chosen);
    chosen[expert] = kChosen;
    ++taken_[expert];
    ++ranks_taken_[expert / rank_experts_];
    const int32_t group = expert / group_size_;
    if (!used[group]) ++num_used;
    used[group] = true;
    if (num_used == routing_.top_k_groups) open = used;
  }
  ++num_tokens_;
}

// Ranks take turns, and so do the experts of a rank.
int32_t PerfectRouter::next_in_turn() {
  const int64_t i = (num_choices_ + rank_) % routing_.num_experts;
  return static_cast<int32_t>(i % num_ranks_ * rank_experts_ + i / num_ranks_);
}

// Where this rank begins. A token takes `opened` groups, or of the ranks that have several the
// groups of so many ranks. If its choices go into them evenly, neighbouring ranks begin with what
// the others leave out; else each begins with another one, its own.
int PerfectRouter::first_expert() const {
  const int units = std::min(num_ranks_, routing_.num_groups);
  const bool fit = num_ranks_ % units == 0 && routing_.num_groups % units == 0;
  if (!fit) return rank_ * rank_experts_;
  const int opened = std::min({routing_.top_k_groups, routing_.top_k, units});
  const bool even = routing_.top_k % opened == 0 && units % opened == 0;
  const int unit = (even ? rank_ * opened : rank_) % units;
  return unit * (routing_.num_experts / units) + rank_ / units * rank_experts_;
}

// The least chosen in the open groups, of those that the token has not chosen yet. Equal ones are
// taken in the order of groups, and of experts within a group, from first_expert() on: where ranks
// and groups fit into each other, all ranks together then choose every rank equally often.
int32_t PerfectRouter::next_of_groups(const std::vector<bool>& open, const float* chosen) {
  const int first = first_expert();
  const auto taken = [&](int32_t expert) {
    return std::pair(ranks_taken_[expert / rank_experts_], taken_[expert]);
  };
  int32_t best = -1;
  for (int i = 0; i < routing_.num_groups; ++i) {
    const int group = (first / group_size_ + i) % routing_.num_groups;
    if (!open[group]) continue;
    for (int j = 0; j < group_size_; ++j) {
      const int32_t expert = group * group_size_ + (first + j) % group_size_;
      if (chosen[expert] == kChosen) continue;
      if (best < 0 || taken(expert) < taken(best)) best = expert;
    }
  }
  return best;
}

}  // namespace wideep::model
