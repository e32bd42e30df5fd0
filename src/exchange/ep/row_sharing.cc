// SPDX-License-Identifier: Apache-2.0
#include "ep/row_sharing.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace wideep::ep {

RowSharing::RowSharing(const DispatchShape& shape) : shape_(shape) {
  const auto num_ranks = static_cast<size_t>(shape.ep_size);
  loads_.resize(num_ranks);
  parts_.resize(num_ranks);
  num_borrowed_.resize(num_ranks);
  is_settled_.resize(num_ranks);
}

std::span<const Loan> RowSharing::share(std::span<const RankRows> rows) {
  WIDEEP_CHECK_EQ(shape_.num_slices, 1);
  std::ranges::fill(loads_, 0);
  for (std::vector<Part>& parts : parts_) parts.clear();
  for (const RankRows& each : rows) {
    if (each.rows == 0) continue;
    loads_[static_cast<size_t>(each.rank)] += each.rows;
    parts_[static_cast<size_t>(each.rank)].push_back({each.expert, each.rows});
  }
  std::ranges::fill(num_borrowed_, 0);
  std::ranges::fill(is_settled_, char{0});
  loans_.clear();
  const int ranks_per_node = shape_.ep_size / shape_.num_nodes;
  for (int first = 0; first < shape_.ep_size; first += ranks_per_node) {
    share_node(first, first + ranks_per_node);
  }
  return loans_;
}

// From the rank with the most rows to the one with the fewest, until all are near the mean.
void RowSharing::share_node(int first, int end) {
  const auto loads =
      std::span(loads_).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
  const int64_t all = std::accumulate(loads.begin(), loads.end(), int64_t{0});
  const auto num_ranks = static_cast<int64_t>(loads.size());
  const int64_t mean = (all + num_ranks - 1) / num_ranks;
  const int64_t limit = mean + mean / kSlackPart;
  for (;;) {
    int max = -1, min = -1;
    for (int rank = first; rank < end; ++rank) {
      const auto i = static_cast<size_t>(rank);
      const bool may_lend = !is_settled_[i] && loads_[i] > limit;
      if (may_lend && (max < 0 || loads_[i] > loads_[static_cast<size_t>(max)])) max = rank;
      const bool may_borrow = num_borrowed_[i] < shape_.borrowed_slots;
      if (may_borrow && (min < 0 || loads_[i] < loads_[static_cast<size_t>(min)])) min = rank;
    }
    if (max < 0 || min < 0 || max == min) return;
    if (!lend(max, min, limit, mean)) is_settled_[static_cast<size_t>(max)] = 1;
  }
}

// The rank with the fewest rows gets as many as bring one of the two to the mean, of the expert
// with the most rows: so few loans are enough.
bool RowSharing::lend(int from, int to, int64_t limit, int64_t mean) {
  const auto lender = static_cast<size_t>(from), borrower = static_cast<size_t>(to);
  Part* best = nullptr;
  for (Part& part : parts_[lender]) {
    const bool is_better = best == nullptr || part.rows > best->rows;
    if (is_better && !has(to, part.expert)) best = &part;
  }
  if (best == nullptr) return false;
  const int64_t surplus = loads_[lender] - mean;
  const int64_t room = std::max(mean - loads_[borrower], limit - loads_[borrower]);
  int64_t rows = std::min({surplus, mean - loads_[borrower], best->rows});
  // A remainder too small for a loan of its own goes along.
  if (surplus - rows < kMinRows) rows = std::min({surplus, room, best->rows});
  rows = std::max(rows, std::min({kMinRows, room, best->rows}));
  if (rows < kMinRows) return false;
  best->rows -= rows;
  loads_[lender] -= rows;
  loads_[borrower] += rows;
  ++num_borrowed_[borrower];
  parts_[borrower].push_back({best->expert, rows});
  loans_.push_back({.expert = best->expert, .from = from, .to = to, .rows = rows});
  return true;
}

bool RowSharing::has(int rank, int32_t expert) const {
  return std::ranges::any_of(parts_[static_cast<size_t>(rank)],
                             [&](const Part& part) { return part.expert == expert; });
}

}  // namespace wideep::ep
