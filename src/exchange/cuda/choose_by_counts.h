// SPDX-License-Identifier: Apache-2.0
//
// choose by counts: the replica, and so the slot, for each (token, expert), by the counts of all
// ranks in this call, which prepare has brought: what ep::SlotChooser does with split_by_counts,
// without borrowed slots, and the same slots. Every rank computes the same shares and quotas; of
// the split by source ranks each computes its own row.
//
// One block, four steps with a barrier between them: the shares that balance the ranks
// (resplit_shares.h, serial); whole tokens for every replica, where what one expert rounds up
// counts against its rank for the experts after it (serial); what each rank sends where, experts in
// parallel; the slots.
//
// Thread safety: a kernel.
#pragma once

#include "cuda/choose_slots.h"
#include "cuda/protocol.h"
#include "cuda/resplit_shares.h"

namespace wideep::cuda {

// A placement on the device, whose experts have one replica at least, and work space of a call.
struct CountedReplicas {
  DeviceReplicaGraph graph;
  int32_t ranks_per_node = 1;
  const int32_t* first = nullptr;           // [num_experts + 1] where each expert's replicas begin
  const int32_t* slots = nullptr;           // [replicas] by expert, then ascending
  const int32_t* links = nullptr;           // [replicas] of the graph; −1: its share is constant
  const double* fractions = nullptr;        // [replicas] of what goes over the link
  const double* constant_shares = nullptr;  // [replicas] without a link, or without tokens
  double* shares = nullptr;                 // [replicas]
  int64_t* of_all = nullptr;                // [replicas] tokens of all ranks for it, to be matched
  int64_t* quotas = nullptr;                // [replicas] of this rank's tokens
  int64_t* unmatched = nullptr;             // [num_experts, ep_size] tokens of each rank
};

struct ChooseByCounts {
  Exchange x;
  CountedReplicas replicas;
  const int32_t* totals = nullptr;  // [num_experts] tokens of all ranks; of prepare
  const int32_t* num_tokens = nullptr;
  const int32_t* experts = nullptr;  // [num_tokens, top_k], distinct in a token
  int32_t* slots = nullptr;          // the same; −1, which dispatch refuses, for a wrong expert

  // Bytes of shared memory that the block needs.
  static size_t shared_bytes(const ExchangeShape& shape, const DeviceReplicaGraph& graph) {
    return kControlBytes + static_cast<size_t>(shape.ep_size) * sizeof(double) +
           graph.work_bytes() + static_cast<size_t>(shape.num_experts) * sizeof(uint32_t);
  }

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    if (begin_call(lane, x) == 0) return;
    const ExchangeShape& shape = x.layout.shape();
    const int n = lane.load(num_tokens);
    if (n > shape.max_tokens) return;  // which index refuses
    auto* excess = shared_after_control<double>(lane);
    auto* work = reinterpret_cast<std::byte*>(excess + shape.ep_size);
    auto* chosen = reinterpret_cast<uint32_t*>(work + replicas.graph.work_bytes());
    ShareSolver<Lane> solver(lane, replicas.graph, work);
    solver.prepare(totals);
    for (int rank = lane.thread(); rank < shape.ep_size; rank += lane.num_threads()) {
      lane.store(excess + rank, 0.0);
    }
    lane.sync();
    if (lane.thread() == 0) solver.solve();
    lane.sync();
    const int num_replicas = lane.load(replicas.first + shape.num_experts);
    for (int i = lane.thread(); i < num_replicas; i += lane.num_threads()) {
      lane.store(replicas.shares + i, share_of(lane, solver, i));
    }
    lane.sync();
    if (lane.thread() == 0) round_all(lane, excess);
    lane.sync();
    for (int e = lane.thread(); e < shape.num_experts; e += lane.num_threads()) {
      split(lane, e);
      lane.store(chosen + e, 0u);
    }
    lane.sync();
    const SlotsByQuotas by_quotas{shape.num_experts, replicas.first, replicas.slots,
                                  replicas.quotas,   experts,        slots};
    by_quotas.choose_all(lane, chosen, int64_t{n} * shape.top_k);
  }

 private:
  template <typename Lane>
  WIDEEP_DEVICE int rank_of(Lane& lane, int replica) const {
    return lane.load(replicas.slots + replica) / x.layout.shape().slots_per_rank;
  }

  template <typename Lane>
  WIDEEP_DEVICE double share_of(Lane& lane, ShareSolver<Lane>& solver, int replica) const {
    constexpr double kMinLoad = 0x1p-1022;  // as placement/resplit.cc
    const int link = lane.load(replicas.links + replica);
    const double load = link < 0 ? 0.0 : solver.load_of(link);
    if (load < kMinLoad) return lane.load(replicas.constant_shares + replica);
    return solver.amount(link) * lane.load(replicas.fractions + replica) / load;
  }

  // ep::round_shares for every expert with several replicas, in their order.
  template <typename Lane>
  WIDEEP_DEVICE void round_all(Lane& lane, double* excess) const {
    for (int e = 0; e < x.layout.shape().num_experts; ++e) {
      const int begin = lane.load(replicas.first + e), end = lane.load(replicas.first + e + 1);
      const int32_t total = lane.load(totals + e);
      if (end - begin > 1 && total > 0) round(lane, begin, end, total, excess);
    }
  }

  template <typename Lane>
  WIDEEP_DEVICE void round(Lane& lane, int begin, int end, int32_t total, double* excess) const {
    const auto tokens = static_cast<double>(total);
    int64_t left = total;
    for (int i = begin; i < end; ++i) {
      const double wanted = lane.load(replicas.shares + i) * tokens;
      const auto quota = static_cast<int64_t>(wanted);
      lane.store(replicas.of_all + i, quota);
      left -= quota;
      double* of_rank = excess + rank_of(lane, i);
      lane.store(of_rank, lane.load(of_rank) - (wanted - static_cast<double>(quota)));
    }
    for (; left > 0; --left) {
      int best = -1;
      double min = 0.0;  // excess of its rank
      for (int i = begin; i < end; ++i) {
        const auto quota = static_cast<double>(lane.load(replicas.of_all + i));
        if (quota >= lane.load(replicas.shares + i) * tokens) continue;  // not rounded down
        const double of_rank = lane.load(excess + rank_of(lane, i));
        if (best >= 0 && of_rank >= min) continue;
        best = i;
        min = of_rank;
      }
      if (best < 0) return;
      lane.store(replicas.of_all + best, lane.load(replicas.of_all + best) + 1);
      lane.store(excess + rank_of(lane, best), min + 1.0);
    }
  }

  // This rank's row of ep::split_by_source for one expert.
  template <typename Lane>
  WIDEEP_DEVICE void split(Lane& lane, int expert) const {
    const ExchangeShape& shape = x.layout.shape();
    const int begin = lane.load(replicas.first + expert);
    const int end = lane.load(replicas.first + expert + 1);
    const int64_t mine = tokens_of(lane, x.rank, expert);
    if (end - begin == 1 || mine == 0) {
      for (int i = begin; i < end; ++i) lane.store(replicas.quotas + i, mine);
      return;
    }
    int64_t* counts = replicas.unmatched + int64_t{expert} * shape.ep_size;
    for (int rank = 0; rank < shape.ep_size; ++rank) {
      lane.store(counts + rank, tokens_of(lane, rank, expert));
    }
    for (int i = begin; i < end; ++i) {  // first within the ranks
      const int rank = rank_of(lane, i);
      const int64_t tokens = take(lane, counts + rank, replicas.of_all + i);
      lane.store(replicas.quotas + i, rank == x.rank ? tokens : 0);
    }
    if (lane.load(counts + x.rank) == 0) return;
    const int of_node = replicas.ranks_per_node;
    if (of_node > 1 && of_node < shape.ep_size) match_within_nodes(lane, begin, end, counts);
    // Ranks after this one take only what it leaves.
    match(lane, 0, x.rank + 1, begin, end, counts);
  }

  template <typename Lane>
  WIDEEP_DEVICE int64_t tokens_of(Lane& lane, int rank, int expert) const {
    if (!is_active(lane, x, rank)) return 0;
    return lane.load(x.layout.counts(x.segments[x.rank], rank) + expert);
  }

  template <typename Lane>
  WIDEEP_DEVICE void match_within_nodes(Lane& lane, int begin, int end, int64_t* counts) const {
    const int of_node = replicas.ranks_per_node;
    for (int first = begin; first < end;) {
      const int node = rank_of(lane, first) / of_node;
      int last = first + 1;
      while (last < end && rank_of(lane, last) / of_node == node) ++last;
      match(lane, node * of_node, (node + 1) * of_node, first, last, counts);
      first = last;
    }
  }

  // Fills replicas [begin, end) with tokens of ranks [rank, last_rank), both in their order.
  template <typename Lane>
  WIDEEP_DEVICE void match(Lane& lane, int rank, int last_rank, int begin, int end,
                           int64_t* counts) const {
    for (int i = begin; rank < last_rank && i < end;) {
      const int64_t tokens = take(lane, counts + rank, replicas.of_all + i);
      if (rank == x.rank) {
        lane.store(replicas.quotas + i, lane.load(replicas.quotas + i) + tokens);
      }
      if (lane.load(counts + rank) == 0) {
        ++rank;
      } else {
        ++i;
      }
    }
  }

  // The most tokens that a rank still has and a replica still lacks.
  template <typename Lane>
  WIDEEP_DEVICE static int64_t take(Lane& lane, int64_t* of_rank, int64_t* of_replica) {
    const int64_t has = lane.load(of_rank), lacks = lane.load(of_replica);
    const int64_t tokens = has < lacks ? has : lacks;
    lane.store(of_rank, has - tokens);
    lane.store(of_replica, lacks - tokens);
    return tokens;
  }
};

}  // namespace wideep::cuda
