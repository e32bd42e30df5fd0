// SPDX-License-Identifier: Apache-2.0
#include "model/parts/perfect_choices.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace wideep::model {

PerfectChoices::PerfectChoices(const RoutingConfig& routing, int ep_size, int rank)
    : num_experts_(routing.num_experts),
      top_k_(routing.top_k),
      num_groups_(routing.num_groups),
      taken_groups_(routing.top_k_groups),
      num_ranks_(ep_size),
      rank_(rank),
      rank_experts_(routing.num_experts / ep_size),
      group_experts_(routing.num_experts / routing.num_groups),
      block_(std::lcm(rank_experts_, group_experts_)),
      block_ranks_(block_ / rank_experts_),
      block_groups_(block_ / group_experts_),
      groups_step_(num_groups_ / std::gcd(num_groups_, taken_groups_)) {
  if (is_flat()) return;
  groups_ = order_of_groups();
  for (int group = 0; group < num_groups_; ++group) in_group_.push_back(order_in_group(group));
  turns_.assign(static_cast<size_t>(is_mixed() ? block_groups_ : num_groups_), 0);
}

// A token that may take all groups, or a group for each choice, may take any experts.
bool PerfectChoices::is_flat() const {
  return taken_groups_ == num_groups_ || top_k_ <= taken_groups_;
}

// Groups that follow each other in the turns, as those of a token, are on different ranks where
// that can be.
std::vector<int> PerfectChoices::order_of_groups() const {
  std::vector<int> order(static_cast<size_t>(num_groups_));
  int stride = std::max(1, static_cast<int>(std::lround(static_cast<double>(num_groups_) /
                                                        static_cast<double>(num_ranks_))));
  while (std::gcd(stride, num_groups_) != 1) ++stride;
  for (int i = 0; i < num_groups_; ++i) {
    order[static_cast<size_t>(i)] = block_ranks_ == 1
                                        ? i % num_ranks_ * block_groups_ + i / num_ranks_
                                        : i * stride % num_groups_;
  }
  return order;
}

// Always the rank that is furthest behind its share of the group's experts.
std::vector<int32_t> PerfectChoices::order_in_group(int group) const {
  const int begin = group * group_experts_, end = begin + group_experts_;
  const int first_rank = begin / rank_experts_;
  const int num_ranks = (end - 1) / rank_experts_ - first_rank + 1;
  const auto first_of = [&](int i) { return std::max(begin, (first_rank + i) * rank_experts_); };
  const auto size_of = [&](int i) {
    return std::min(end, (first_rank + i + 1) * rank_experts_) - first_of(i);
  };
  std::vector<int> taken(static_cast<size_t>(num_ranks), 0);
  std::vector<int32_t> order;
  for (int turn = 1; turn <= group_experts_; ++turn) {
    const auto behind = [&](int i) {
      return int64_t{turn} * size_of(i) - int64_t{taken[static_cast<size_t>(i)]} * group_experts_;
    };
    int best = -1;
    for (int i = 0; i < num_ranks; ++i) {
      if (taken[static_cast<size_t>(i)] == size_of(i)) continue;
      if (best < 0 || behind(i) > behind(best)) best = i;
    }
    order.push_back(first_of(best) + taken[static_cast<size_t>(best)]++);
  }
  return order;
}

const std::vector<int32_t>& PerfectChoices::next() {
  if (is_flat()) {
    next_flat();
    return chosen_;
  }
  if (is_mixed()) skip_to_own_turn();
  next_of_list();
  for (int32_t& expert : chosen_) expert = moved(expert);
  return chosen_;
}

// Ranks take turns, and so do the experts of a rank.
void PerfectChoices::next_flat() {
  chosen_.clear();
  for (int k = 0; k < top_k_; ++k, ++position_) {
    const int64_t j = (position_ + rank_) % num_experts_;
    chosen_.push_back(static_cast<int32_t>(j % num_ranks_ * rank_experts_ + j / num_ranks_));
  }
}

void PerfectChoices::next_of_list() {
  chosen_.clear();
  const int share = top_k_ / taken_groups_, rest = top_k_ % taken_groups_;
  const int64_t first = position_ * taken_groups_;
  const int64_t round = position_ / groups_step_;
  const auto first_rest = static_cast<int>(round * rest % taken_groups_);
  for (int i = 0; i < taken_groups_; ++i) {
    const int group = groups_[static_cast<size_t>((first + i) % num_groups_)];
    const int more = (i - first_rest + taken_groups_) % taken_groups_ < rest ? 1 : 0;
    int& turn = turns_[static_cast<size_t>(is_mixed() ? group % block_groups_ : group)];
    for (int k = 0; k < share + more; ++k) {
      chosen_.push_back(in_group_[static_cast<size_t>(group)][static_cast<size_t>(turn)]);
      turn = (turn + 1) % group_experts_;
    }
  }
  ++position_;
}

void PerfectChoices::skip_to_own_turn() {
  while (position_ % block_ranks_ != rank_ % block_ranks_) next_of_list();
}

// Whether the list's next token is its first again.
bool PerfectChoices::repeats() const {
  const int64_t round = position_ / groups_step_;
  return position_ % groups_step_ == 0 && round * (top_k_ % taken_groups_) % taken_groups_ == 0 &&
         std::ranges::all_of(turns_, [](int turn) { return turn == 0; });
}

int32_t PerfectChoices::moved(int32_t expert) const {
  const int group_ranks = block_groups_ == 1 ? block_ranks_ : 1;
  const int inside = rank_ % group_ranks * rank_experts_;
  const int group_begin = expert / group_experts_ * group_experts_;
  const int turned = group_begin + (expert - group_begin + inside) % group_experts_;
  return (turned + rank_ / block_ranks_ * block_) % num_experts_;
}

Evenness PerfectChoices::evenness(const RoutingConfig& routing, int ep_size) {
  PerfectChoices list(routing, ep_size, 0);
  if (list.is_flat() || !list.is_mixed()) return {};
  const int ranks = list.block_ranks_;
  std::vector<int64_t> rows(static_cast<size_t>(ranks), 0);
  Evenness evenness{.period = 0};
  do {
    for (int i = 0; i < ranks; ++i) {
      list.next_of_list();
      for (const int32_t expert : list.chosen_) {
        ++rows[static_cast<size_t>(expert / list.rank_experts_ % ranks)];
      }
    }
    ++evenness.period;
    const auto max = static_cast<double>(*std::ranges::max_element(rows));
    evenness.max_excess =
        std::max(evenness.max_excess, max - static_cast<double>(evenness.period * list.top_k_));
  } while (!list.repeats());
  return evenness;
}

}  // namespace wideep::model
