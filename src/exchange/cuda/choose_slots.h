// SPDX-License-Identifier: Apache-2.0
//
// choose: the replica, and so the slot, for each (token, expert), by the shares of the placement:
// what ep::SlotChooser does with split_by_given_shares, by the same source (ep/token_split.h). No
// rank waits for another.
//
// Each expert's tokens on this rank are divided among its replicas in whole tokens; what rounding
// leaves is carried to the next call. The first tokens go to the first replica, and so on.
//
// One block: an expert's tokens are numbered in their order, by all warps in turn.
//
// Thread safety: a kernel.
#pragma once

#include "cuda/protocol.h"
#include "ep/token_split.h"

namespace wideep::cuda {

// ep::SlotChooser::ReplicaTable on the device. With at least one replica per expert.
struct ReplicaTable {
  const int32_t* first = nullptr;  // [num_experts + 1]
  const int32_t* slots = nullptr;  // [replicas]
  const int64_t* parts = nullptr;  // [replicas]
  int64_t* credit = nullptr;       // [replicas] carried from call to call
  int64_t* quotas = nullptr;       // [replicas] work space: tokens of this call
};

// The last step, by quotas: the first tokens of an expert go to its first replica, and so on.
struct SlotsByQuotas {
  int32_t num_experts = 0;
  const int32_t* first = nullptr;  // as ReplicaTable
  const int32_t* slots_of_replicas = nullptr;
  const int64_t* quotas = nullptr;
  const int32_t* experts = nullptr;  // [num_tokens, top_k], distinct in a token
  // The same; −1, which dispatch refuses, for a wrong expert, or a token that no replica has.
  int32_t* slots = nullptr;

  template <typename Lane>
  WIDEEP_DEVICE int32_t expert_at(Lane& lane, int64_t entry, int64_t num_entries) const {
    const int32_t expert = entry < num_entries ? lane.load(experts + entry) : -1;
    return static_cast<uint32_t>(expert) < static_cast<uint32_t>(num_experts) ? expert : -1;
  }

  // chosen: [num_experts] in shared memory, zeros: tokens that have a slot.
  template <typename Lane>
  WIDEEP_DEVICE void choose_all(Lane& lane, uint32_t* chosen, int64_t num_entries) const {
    for (int64_t entry = 0; entry < num_entries; entry += lane.num_threads()) {
      choose(lane, chosen, entry + lane.thread(), num_entries);
    }
  }

 private:
  // The block's threads have consecutive entries; warps number theirs one after the other.
  template <typename Lane>
  WIDEEP_DEVICE void choose(Lane& lane, uint32_t* chosen, int64_t entry,
                            int64_t num_entries) const {
    const int32_t expert = expert_at(lane, entry, num_entries);
    const uint32_t same = lane.match(expert);
    const int first_lane = lowest_bit(same);
    uint32_t before = 0;  // entries of this expert in earlier warps and chunks
    for (int turn = 0; turn < lane.num_warps(); ++turn) {
      if (turn == lane.warp() && expert >= 0 && lane.lane() == first_lane) {
        before = lane.load(chosen + expert);
        lane.store(chosen + expert, before + static_cast<uint32_t>(num_bits(same)));
      }
      lane.sync();
    }
    before = lane.shuffle(before, first_lane);
    if (entry >= num_entries) return;
    int32_t slot = -1;
    if (expert >= 0) {
      int64_t ordinal = static_cast<int64_t>(before) + bits_below(same, lane.lane());
      const int end = lane.load(first + expert + 1);
      for (int replica = lane.load(first + expert); replica < end && slot < 0; ++replica) {
        const int64_t quota = lane.load(quotas + replica);
        if (ordinal < quota) slot = lane.load(slots_of_replicas + replica);
        ordinal -= quota;
      }
    }
    lane.store(slots + entry, slot);
  }
};

struct ChooseSlots {
  Exchange x;
  ReplicaTable replicas;
  const int32_t* num_tokens = nullptr;
  const int32_t* experts = nullptr;  // [num_tokens, top_k], distinct in a token
  int32_t* slots = nullptr;          // the same; −1, which dispatch refuses, for a wrong expert
  // Bytes of shared memory that the block needs.
  static size_t shared_bytes(const ExchangeShape& shape) {
    return kControlBytes + static_cast<size_t>(shape.num_experts) * sizeof(uint32_t);
  }

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    if (begin_call(lane, x) == 0) return;
    const ExchangeShape& shape = x.layout.shape();
    const int n = lane.load(num_tokens);
    if (n > shape.max_tokens) return;  // which index refuses
    const int64_t num_entries = int64_t{n} * shape.top_k;
    count(lane, num_entries);
    auto* counts = shared_after_control<uint32_t>(lane);
    for (int e = lane.thread(); e < shape.num_experts; e += lane.num_threads()) {
      divide(lane, e, static_cast<int64_t>(lane.load(counts + e)));
      lane.store(counts + e, 0u);  // from here on: tokens that have a slot
    }
    lane.sync();
    by_quotas().choose_all(lane, counts, num_entries);
  }

 private:
  WIDEEP_DEVICE SlotsByQuotas by_quotas() const {
    return {x.layout.shape().num_experts,
            replicas.first,
            replicas.slots,
            replicas.quotas,
            experts,
            slots};
  }

  template <typename Lane>
  WIDEEP_DEVICE void count(Lane& lane, int64_t num_entries) const {
    auto* counts = shared_after_control<uint32_t>(lane);
    for (int e = lane.thread(); e < x.layout.shape().num_experts; e += lane.num_threads()) {
      lane.store(counts + e, 0u);
    }
    lane.sync();
    for (int64_t i = lane.thread(); i < num_entries; i += lane.num_threads()) {
      const int32_t expert = by_quotas().expert_at(lane, i, num_entries);
      if (expert >= 0) lane.atomic_add(counts + expert, 1u);
    }
    lane.sync();
  }

  template <typename Lane>
  WIDEEP_DEVICE void divide(Lane& lane, int expert, int64_t total) const {
    const int begin = lane.load(replicas.first + expert);
    const int end = lane.load(replicas.first + expert + 1);
    if (total == 0 || end - begin == 1) {
      for (int i = begin; i < end; ++i) lane.store(replicas.quotas + i, total);
      return;
    }
    ep::round_with_credit(lane, total, begin, end, replicas.parts, replicas.credit,
                          replicas.quotas);
  }
};

}  // namespace wideep::cuda
