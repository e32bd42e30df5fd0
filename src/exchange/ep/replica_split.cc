// SPDX-License-Identifier: Apache-2.0
//
// Greedy in three rounds: tokens that can stay on their rank, then on their node, then the rest in
// the order of ranks and replicas. Each round is one pass, and each rank computes only its own
// row: it goes through the ranks before itself and stops. The order is the same everywhere, so all
// rows together meet the quotas without any message. Credits are integers, because their sum must
// stay exactly 0 over any number of calls.
#include "ep/replica_split.h"

#include <algorithm>

#include "base/check.h"

namespace wideep::ep {

// ---- quotas ----

void round_shares(int64_t total, std::span<const double> shares,
                  std::span<const int32_t> replica_ranks, std::span<double> rank_excess,
                  std::span<int64_t> quotas) {
  const double tokens = static_cast<double>(total);
  int64_t left = total;
  for (size_t i = 0; i < shares.size(); ++i) {
    quotas[i] = static_cast<int64_t>(shares[i] * tokens);
    left -= quotas[i];
    rank_excess[replica_ranks[i]] -= shares[i] * tokens - static_cast<double>(quotas[i]);
  }
  WIDEEP_CHECK_GE(left, 0);
  for (; left > 0; --left) {
    size_t best = shares.size();
    for (size_t i = 0; i < shares.size(); ++i) {
      if (static_cast<double>(quotas[i]) >= shares[i] * tokens) continue;  // not rounded down
      if (best == shares.size() ||
          rank_excess[replica_ranks[i]] < rank_excess[replica_ranks[best]]) {
        best = i;
      }
    }
    WIDEEP_CHECK_LT(best, shares.size());
    ++quotas[best];
    rank_excess[replica_ranks[best]] += 1.0;
  }
}

void round_with_credit(int64_t total, std::span<const int64_t> parts, std::span<int64_t> credit,
                       std::span<int64_t> quotas) {
  // Invariant: the credits' sum is 0 before and after. Integers keep that exact over any number of
  // calls.
  int64_t left = total;
  for (size_t i = 0; i < parts.size(); ++i) {
    credit[i] += total * parts[i];
    quotas[i] = std::max<int64_t>(credit[i], 0) / kWholeToken;
    credit[i] -= quotas[i] * kWholeToken;
    left -= quotas[i];
  }
  for (; left > 0; --left) {
    const auto max = std::max_element(credit.begin(), credit.end());
    ++quotas[static_cast<size_t>(max - credit.begin())];
    *max -= kWholeToken;
  }
  // If some credits are negative, the whole tokens of the others may exceed `total`. Then the
  // replicas with the least credit give tokens back.
  for (; left < 0; ++left) {
    size_t min = parts.size();
    for (size_t i = 0; i < parts.size(); ++i) {
      if (quotas[i] > 0 && (min == parts.size() || credit[i] < credit[min])) min = i;
    }
    --quotas[min];
    credit[min] += kWholeToken;
  }
}

// ---- sources ----

namespace {

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// Fills the quotas of `replicas` with the tokens of `ranks`, both in their order (the north-west
// corner rule of transport problems). Adds the tokens of row_rank to row.
void match(Range ranks, Range replicas, size_t row_rank, std::span<int64_t> counts,
           std::span<int64_t> quotas, std::span<int64_t> row) {
  size_t rank = ranks.begin, i = replicas.begin;
  while (rank < ranks.end && i < replicas.end) {
    const int64_t tokens = std::min(counts[rank], quotas[i]);
    counts[rank] -= tokens;
    quotas[i] -= tokens;
    if (rank == row_rank) row[i] += tokens;
    if (counts[rank] == 0) {
      ++rank;
    } else {
      ++i;
    }
  }
}

void match_within_ranks(std::span<const int32_t> replica_ranks, int row_rank,
                        std::span<int64_t> counts, std::span<int64_t> quotas,
                        std::span<int64_t> row) {
  for (size_t i = 0; i < replica_ranks.size(); ++i) {
    const int32_t rank = replica_ranks[i];
    const int64_t tokens = std::min(counts[rank], quotas[i]);
    counts[rank] -= tokens;
    quotas[i] -= tokens;
    row[i] = rank == row_rank ? tokens : 0;
  }
}

// Calls match on every node that has replicas, with the ranks of that node.
void match_within_nodes(size_t ranks_per_node, std::span<const int32_t> replica_ranks,
                        size_t row_rank, std::span<int64_t> counts, std::span<int64_t> quotas,
                        std::span<int64_t> row) {
  const auto node_of = [&](size_t i) {
    return static_cast<size_t>(replica_ranks[i]) / ranks_per_node;
  };
  for (size_t begin = 0; begin < replica_ranks.size();) {
    const size_t node = node_of(begin);
    size_t end = begin + 1;
    while (end < replica_ranks.size() && node_of(end) == node) ++end;
    match({node * ranks_per_node, (node + 1) * ranks_per_node}, {begin, end}, row_rank, counts,
          quotas, row);
    begin = end;
  }
}

}  // namespace

void split_by_source(std::span<const int32_t> replica_ranks, const Source& source,
                     std::span<int64_t> counts, std::span<int64_t> quotas, std::span<int64_t> row) {
  const size_t rank = static_cast<size_t>(source.rank);
  const size_t ranks_per_node = static_cast<size_t>(source.ranks_per_node);
  match_within_ranks(replica_ranks, source.rank, counts, quotas, row);
  if (counts[rank] == 0) return;
  if (ranks_per_node > 1 && ranks_per_node < counts.size()) {
    match_within_nodes(ranks_per_node, replica_ranks, rank, counts, quotas, row);
  }
  // Ranks after this one take only what this one leaves, so its row does not depend on them.
  match({0, rank + 1}, {0, quotas.size()}, rank, counts, quotas, row);
}

}  // namespace wideep::ep
