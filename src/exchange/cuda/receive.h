// SPDX-License-Identifier: Apache-2.0
//
// receive: awaits the messages of all ranks, and lists the received rows by slot, then source rank,
// then the source's tokens. Its work grows with the messages that have come, not with the room for
// them.
//
// The place of a row is its index among the rows of its source and slot, which its message has, and
// the rows of the slots and sources before, which the arrivals give.
//
// Thread safety: a kernel.
#pragma once

#include "cuda/protocol.h"

namespace wideep::cuda {

// A received row for one of this rank's slots, and where its result has to be written.
struct ReceivedRow {
  struct alignas(16) Places {
    const std::byte* row;  // [row_bytes], 16-byte aligned
    std::byte* result;     // [result_bytes], 16-byte aligned; null if results are reduced
  };
  struct alignas(16) Origin {
    float weight;  // the router's
    int32_t source;
    int32_t message;  // of the source
    int32_t slot;     // local
  };
  Places places;
  Origin origin;
};

struct Receive {
  Exchange x;
  ReceivedRow* received = nullptr;  // [ep_size · max_tokens · entries] room; rows by slot
  int32_t* slot_starts = nullptr;   // [slots_per_rank + 1] where each slot's rows begin
  int32_t layer = 0;
  // [ep_size, max_tokens, entries] where the rows of each message are in `received`, in the order
  // of its slots; null: not needed, because results are not reduced.
  int32_t* rows_of_messages = nullptr;

  // Bytes of shared memory that a block needs.
  static size_t shared_bytes(const ExchangeShape& shape) {
    const auto slots = static_cast<size_t>(shape.slots_per_rank);
    const auto ranks = static_cast<size_t>(shape.ep_size);
    return kControlBytes + (slots + 1 + ranks + ranks * slots) * sizeof(int32_t);
  }

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    const uint32_t call = begin_call(lane, x);
    if (call != 0) await_and_list(lane, call);
  }

  template <typename Lane>
  WIDEEP_DEVICE void await_and_list(Lane& lane, uint32_t call) const {
    if (!await_ranks(lane, x, Channel::kDispatch, call, layer)) return;
    find_starts(lane);
    const int warps = lane.num_blocks() * lane.num_warps();
    const int me = lane.block() * lane.num_warps() + lane.warp();
    for (int source = 0; source < x.layout.shape().ep_size; ++source) {
      const int messages = lane.load(num_messages(lane) + source);
      // Each source's first messages go to another warp.
      for (int first = (me + source) % warps * kWarpSize; first < messages;
           first += warps * kWarpSize) {
        if (first + lane.lane() < messages) take(lane, source, first + lane.lane());
      }
    }
  }

 private:
  // In shared memory: [slots_per_rank + 1] where slots begin; [ep_size] messages of each source;
  // [ep_size, slots_per_rank] where the rows of a source begin.
  template <typename Lane>
  WIDEEP_DEVICE int32_t* starts(Lane& lane) const {
    return shared_after_control<int32_t>(lane);
  }
  template <typename Lane>
  WIDEEP_DEVICE int32_t* num_messages(Lane& lane) const {
    return starts(lane) + x.layout.shape().slots_per_rank + 1;
  }
  template <typename Lane>
  WIDEEP_DEVICE int32_t* first_rows(Lane& lane, int source) const {
    const ExchangeShape& shape = x.layout.shape();
    return num_messages(lane) + shape.ep_size + source * shape.slots_per_rank;
  }

  // Every block computes all starts: cheaper than to wait for another block.
  template <typename Lane>
  WIDEEP_DEVICE void find_starts(Lane& lane) const {
    const ExchangeShape& shape = x.layout.shape();
    const int slots = shape.slots_per_rank;
    std::byte* mine = x.segments[x.rank];
    for (int slot = lane.thread(); slot < slots; slot += lane.num_threads()) {
      int32_t rows = 0;
      for (int source = 0; source < shape.ep_size; ++source) {
        lane.store(first_rows(lane, source) + slot, rows);
        if (is_active(lane, x, source)) rows += lane.load(x.layout.arrivals(mine, source) + slot);
      }
      lane.store(starts(lane) + slot, rows);
    }
    for (int source = lane.thread(); source < shape.ep_size; source += lane.num_threads()) {
      const bool active = is_active(lane, x, source);
      lane.store(num_messages(lane) + source,
                 active ? lane.load(x.layout.arrivals(mine, source) + slots) : 0);
    }
    lane.sync();
    if (lane.warp() == 0) sum_up(lane);
    lane.sync();
    if (lane.block() != 0) return;
    for (int slot = lane.thread(); slot <= slots; slot += lane.num_threads()) {
      lane.store(slot_starts + slot, lane.load(starts(lane) + slot));
    }
  }

  // From the rows of each slot to where it begins: one warp, 32 slots at a time.
  template <typename Lane>
  WIDEEP_DEVICE void sum_up(Lane& lane) const {
    const int slots = x.layout.shape().slots_per_rank;
    int32_t before = 0;
    for (int first = 0; first <= slots; first += kWarpSize) {
      const int slot = first + lane.lane();
      const int32_t rows = slot < slots ? lane.load(starts(lane) + slot) : 0;
      int32_t sum = rows;  // of this lane and those below
      for (int distance = 1; distance < kWarpSize; distance *= 2) {
        const int from = lane.lane() - distance;
        const int32_t below = lane.shuffle(sum, from < 0 ? 0 : from);
        if (from >= 0) sum += below;
      }
      if (slot <= slots) lane.store(starts(lane) + slot, before + sum - rows);
      before += lane.shuffle(sum, kWarpSize - 1);
    }
  }

  WIDEEP_DEVICE int32_t* rows_of_message(int source, int message) const {
    const int64_t at = int64_t{source} * x.layout.shape().max_tokens + message;
    return rows_of_messages + at * x.layout.entries();
  }

  template <typename Lane>
  WIDEEP_DEVICE void take(Lane& lane, int source, int message) const {
    std::byte* mine = x.segments[x.rank];
    int32_t* slots = x.layout.slots(mine, source, message);
    int place = 0;
    for (int k = 0; k < x.layout.shape().top_k; ++k) {
      const int32_t slot = lane.load(slots + k);
      if (slot < 0) continue;
      const int32_t index = lane.load(starts(lane) + slot) +
                            lane.load(first_rows(lane, source) + slot) +
                            lane.load(x.layout.ordinals(slots) + k);
      ReceivedRow* row = received + index;
      std::byte* result = nullptr;
      if (rows_of_messages == nullptr) {
        result = x.layout.result(mine, source, message, place);
      } else {
        lane.store(rows_of_message(source, message) + place, index);
      }
      lane.store(&row->places, {x.layout.row(slots), result});
      lane.store(&row->origin, {lane.load(x.layout.weights(slots) + k), source, message, slot});
      ++place;
    }
  }
};

}  // namespace wideep::cuda
