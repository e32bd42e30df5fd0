// SPDX-License-Identifier: Apache-2.0
//
// Whole tokens of one expert for its replicas: one source for the CPU (ep/replica_split.h, which
// says what each function is for) and for GPUs (cuda/choose_slots.h, cuda/choose_by_counts.h), so
// that both choose the same slots.
//
// Memory is base::PlainMemory or a lane. RankOf: rank_of(replica). Replicas are 0 … num_replicas
// − 1.
//
// Thread safety: pure functions; one thread per expert.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace wideep::ep {

// One token, in the fixed-point unit of parts and credit.
inline constexpr int64_t kWholeToken = int64_t{1} << 20;

template <typename Memory>
WIDEEP_DEVICE void give(Memory& memory, int64_t tokens, int64_t* quota, int64_t* credit) {
  memory.store(quota, memory.load(quota) + tokens);
  memory.store(credit, memory.load(credit) - tokens * kWholeToken);
}

// The first of [begin, end) with the largest credit. REQUIRES: begin < end.
template <typename Memory>
WIDEEP_DEVICE int largest_credit(Memory& memory, const int64_t* credit, int begin, int end) {
  int largest = begin;
  if constexpr (Memory::kHasManyRegisters) {
    int64_t found = memory.load(credit + begin);
    for (int i = begin + 1; i < end; ++i) {
      const int64_t each = memory.load(credit + i);
      if (each > found) largest = i;
      if (each > found) found = each;
    }
  } else {
    for (int i = begin + 1; i < end; ++i) {
      if (memory.load(credit + i) > memory.load(credit + largest)) largest = i;
    }
  }
  return largest;
}

// For replicas [begin, end) of the lists. Invariant: the credits' sum is 0 before and after.
// Integers keep that exact over any number of calls.
template <typename Memory>
WIDEEP_DEVICE void round_with_credit(Memory& memory, int64_t total, int begin, int end,
                                     const int64_t* parts, int64_t* credit, int64_t* quotas) {
  int64_t left = total;
  for (int i = begin; i < end; ++i) {
    const int64_t due = memory.load(credit + i) + total * memory.load(parts + i);
    const int64_t quota = (due > 0 ? due : 0) / kWholeToken;
    memory.store(quotas + i, quota);
    memory.store(credit + i, due - quota * kWholeToken);
    left -= quota;
  }
  for (; left > 0; --left) {
    const int largest = largest_credit(memory, credit, begin, end);
    give(memory, 1, quotas + largest, credit + largest);
  }
  // If some credits are negative, the whole tokens of the others may exceed `total`. Then the
  // replicas with the least credit give tokens back.
  for (; left < 0; ++left) {
    int min = end;  // the first of the smallest that has a token
    for (int i = begin; i < end; ++i) {
      if (memory.load(quotas + i) == 0) continue;
      if (min == end || memory.load(credit + i) < memory.load(credit + min)) min = i;
    }
    give(memory, -1, quotas + min, credit + min);
  }
}

// False: the shares do not sum to 1, so that no replica is left to be rounded up, or too many were.
template <typename Memory, typename RankOf>
WIDEEP_DEVICE bool round_shares(Memory& memory, int64_t total, int num_replicas,
                                const double* shares, RankOf rank_of, double* rank_excess,
                                int64_t* quotas) {
  const auto tokens = static_cast<double>(total);
  int64_t left = total;
  for (int i = 0; i < num_replicas; ++i) {
    const double wanted = memory.load(shares + i) * tokens;
    const auto quota = static_cast<int64_t>(wanted);
    memory.store(quotas + i, quota);
    left -= quota;
    double* excess = rank_excess + rank_of(i);
    memory.store(excess, memory.load(excess) - (wanted - static_cast<double>(quota)));
  }
  for (; left > 0; --left) {
    int best = -1;
    double min = 0.0;  // excess of its rank
    for (int i = 0; i < num_replicas; ++i) {
      const auto quota = static_cast<double>(memory.load(quotas + i));
      if (quota >= memory.load(shares + i) * tokens) continue;  // not rounded down
      const double of_rank = memory.load(rank_excess + rank_of(i));
      if (best >= 0 && of_rank >= min) continue;
      best = i;
      min = of_rank;
    }
    if (best < 0) return false;
    memory.store(quotas + best, memory.load(quotas + best) + 1);
    memory.store(rank_excess + rank_of(best), min + 1.0);
  }
  return left == 0;
}

// The row of one rank of the split by source.
template <typename Memory, typename RankOf>
class SourceRow {
 public:
  struct Problem {
    int rank;  // whose row it is
    int ranks_per_node;
    int num_ranks;
    int num_replicas;
    int64_t* counts;  // [num_ranks] tokens that are not matched yet
    int64_t* quotas;  // [num_replicas] the same
    int64_t* row;     // [num_replicas] the result
  };

  WIDEEP_DEVICE SourceRow(Memory& memory, const RankOf& rank_of, const Problem& problem)
      : memory_(memory), rank_of_(rank_of), p_(problem) {}

  WIDEEP_DEVICE void split() {
    match_within_ranks();
    if (memory_.load(p_.counts + p_.rank) == 0) return;
    if (p_.ranks_per_node > 1 && p_.ranks_per_node < p_.num_ranks) match_within_nodes();
    // Ranks after this one take only what this one leaves, so its row does not depend on them.
    match(0, p_.rank + 1, 0, p_.num_replicas);
  }

 private:
  WIDEEP_DEVICE void match_within_ranks() {
    for (int i = 0; i < p_.num_replicas; ++i) {
      const int rank = rank_of_(i);
      const int64_t tokens = take(rank, i);
      memory_.store(p_.row + i, rank == p_.rank ? tokens : int64_t{0});
    }
  }

  // Calls match on every node that has replicas, with the ranks of that node.
  WIDEEP_DEVICE void match_within_nodes() {
    for (int first = 0; first < p_.num_replicas;) {
      const int node = rank_of_(first) / p_.ranks_per_node;
      int last = first + 1;
      while (last < p_.num_replicas && rank_of_(last) / p_.ranks_per_node == node) ++last;
      match(node * p_.ranks_per_node, (node + 1) * p_.ranks_per_node, first, last);
      first = last;
    }
  }

  // Fills replicas [i, end) with the tokens of ranks [rank, last_rank), both in their order (the
  // north-west corner rule of transport problems).
  WIDEEP_DEVICE void match(int rank, int last_rank, int i, int end) {
    while (rank < last_rank && i < end) {
      const int64_t tokens = take(rank, i);
      if (rank == p_.rank) memory_.store(p_.row + i, memory_.load(p_.row + i) + tokens);
      if (memory_.load(p_.counts + rank) == 0) {
        ++rank;
      } else {
        ++i;
      }
    }
  }

  // The most tokens that a rank still has and a replica still lacks.
  WIDEEP_DEVICE int64_t take(int rank, int replica) {
    const int64_t has = memory_.load(p_.counts + rank), lacks = memory_.load(p_.quotas + replica);
    const int64_t tokens = has < lacks ? has : lacks;
    memory_.store(p_.counts + rank, has - tokens);
    memory_.store(p_.quotas + replica, lacks - tokens);
    return tokens;
  }

  Memory& memory_;
  const RankOf& rank_of_;
  const Problem& p_;
};

}  // namespace wideep::ep
