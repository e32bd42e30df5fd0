// SPDX-License-Identifier: Apache-2.0
//
// prepare: every rank learns how many tokens every rank has for every expert, before slots are
// chosen. One block: the counts of a call fit into its shared memory.
//
// Thread safety: a kernel.
#pragma once

#include "cuda/protocol.h"

namespace wideep::cuda {

struct Prepare {
  Exchange x;
  const int32_t* num_tokens = nullptr;
  const int32_t* experts = nullptr;  // [num_tokens, top_k]
  int32_t* totals = nullptr;         // [num_experts] tokens of all ranks for each expert
  int32_t layer = 0;

  // Afterwards the counts of all ranks are in this rank's segment (BufferLayout::counts).
  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    const uint32_t call = begin_call(lane, x);
    if (call == 0) return;
    const ExchangeShape& shape = x.layout.shape();
    auto* counts = shared_after_control<uint32_t>(lane);
    for (int e = lane.thread(); e < shape.num_experts; e += lane.num_threads()) {
      lane.store(counts + e, 0u);
    }
    lane.sync();
    const int n = lane.load(num_tokens);
    const int64_t num_entries = n <= shape.max_tokens ? int64_t{n} * shape.top_k : 0;
    for (int64_t i = lane.thread(); i < num_entries; i += lane.num_threads()) {
      const int32_t expert = lane.load(experts + i);
      if (static_cast<uint32_t>(expert) < static_cast<uint32_t>(shape.num_experts)) {
        lane.atomic_add(counts + expert, 1u);
      }
    }
    lane.sync();
    for (int peer = 0; peer < shape.ep_size; ++peer) {
      if (!is_active(lane, x, peer)) continue;
      int32_t* published = x.layout.counts(x.segments[peer], x.rank);
      for (int e = lane.thread(); e < shape.num_experts; e += lane.num_threads()) {
        lane.store(published + e, static_cast<int32_t>(lane.load(counts + e)));
      }
    }
    lane.sync();
    raise(lane, x, Channel::kPrepare, call);
    if (!await_ranks(lane, x, Channel::kPrepare, call, layer)) return;
    for (int e = lane.thread(); e < shape.num_experts; e += lane.num_threads()) {
      int32_t total = 0;
      for (int source = 0; source < shape.ep_size; ++source) {
        if (!is_active(lane, x, source)) continue;
        total += lane.load(x.layout.counts(x.segments[x.rank], source) + e);
      }
      lane.store(totals + e, total);
    }
  }
};

}  // namespace wideep::cuda
