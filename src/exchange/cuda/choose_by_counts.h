// SPDX-License-Identifier: Apache-2.0
//
// choose by counts: the replica, and so the slot, for each (token, expert), by the counts of all
// ranks in this call, which prepare has brought: what ep::SlotChooser does with split_by_counts,
// without borrowed slots, by the same source (ep/token_split.h). Every rank computes the same
// shares and quotas; of the split by source ranks each computes its own row.
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
#include "ep/token_split.h"

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
    DeviceShareSolver<Lane> solver(lane, {lane, replicas.graph}, work);
    solver.prepare(totals, lane.thread(), lane.num_threads());
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
  // Of the replicas of one expert.
  template <typename Lane>
  struct RankOf {
    Lane& lane;
    const int32_t* slots;
    int slots_per_rank;
    WIDEEP_DEVICE int operator()(int replica) const {
      return lane.load(slots + replica) / slots_per_rank;
    }
  };
  WIDEEP_DEVICE int slots_per_rank() const { return x.layout.shape().slots_per_rank; }

  template <typename Lane>
  WIDEEP_DEVICE double share_of(Lane& lane, DeviceShareSolver<Lane>& solver, int replica) const {
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
      if (end - begin <= 1 || total == 0) continue;
      ep::round_shares(lane, total, end - begin, replicas.shares + begin,
                       RankOf<Lane>{lane, replicas.slots + begin, slots_per_rank()}, excess,
                       replicas.of_all + begin);
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
    const RankOf<Lane> rank_of{lane, replicas.slots + begin, slots_per_rank()};
    const typename ep::SourceRow<Lane, RankOf<Lane>>::Problem problem{
        x.rank, replicas.ranks_per_node, shape.ep_size,          end - begin,
        counts, replicas.of_all + begin, replicas.quotas + begin};
    ep::SourceRow<Lane, RankOf<Lane>>(lane, rank_of, problem).split();
  }

  template <typename Lane>
  WIDEEP_DEVICE int64_t tokens_of(Lane& lane, int rank, int expert) const {
    if (!is_active(lane, x, rank)) return 0;
    return lane.load(x.layout.counts(x.segments[x.rank], rank) + expert);
  }
};

}  // namespace wideep::cuda
