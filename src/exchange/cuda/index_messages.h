// SPDX-License-Identifier: Apache-2.0
//
// index: gives each token's messages their places, in the order of tokens, so that the receiver
// finds every row by arithmetic and has nothing to sort. A block per destination rank, which reads
// all tokens once, as many at a time as it has threads.
//
// A column is a local slot of the destination, and one more column is its messages. For each column
// a warp collects the bits of its 32 tokens that are in it. The bits of earlier warps give where a
// warp begins, those of earlier lanes where a token is.
//
// Thread safety: a kernel.
#pragma once

#include "cuda/protocol.h"

namespace wideep::cuda {

struct IndexMessages {
  Exchange x;
  Tokens tokens;
  int32_t layer = 0;

  // Bytes of shared memory that a block needs.
  static size_t shared_bytes(const ExchangeShape& shape, int num_threads) {
    const auto columns = static_cast<size_t>(shape.slots_per_rank + 1);
    const auto warps = static_cast<size_t>(num_threads / kWarpSize);
    return kControlBytes + columns * (2 * warps + 1) * sizeof(uint32_t);
  }

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    const uint32_t call = begin_call(lane, x);
    if (call == 0) return;
    const int n = num_tokens(lane, call);
    if (n < 0) return;
    for (int to = lane.block(); to < x.layout.shape().ep_size; to += lane.num_blocks()) {
      if (is_active(lane, x, to)) index_for(lane, to, n);
    }
  }

  // Of this call; −1 if this rank fails, because it has too many.
  template <typename Lane>
  WIDEEP_DEVICE int num_tokens(Lane& lane, uint32_t call) const {
    const int n = lane.load(tokens.num_tokens);
    if (n >= 0 && n <= x.layout.shape().max_tokens) return n;
    if (lane.block() == 0 && lane.thread() == 0) {
      fail(lane, x, {FailureCode::kTooManyTokens, -1, layer, -1, call, n});
    }
    return -1;
  }

  // Of all tokens, those to one rank; a block does it.
  template <typename Lane>
  WIDEEP_DEVICE void index_for(Lane& lane, int to, int n) const {
    const int columns = x.layout.shape().slots_per_rank + 1;
    auto* totals = shared_after_control<int32_t>(lane);  // [columns] of the tokens so far
    for (int c = lane.thread(); c < columns; c += lane.num_threads()) lane.store(totals + c, 0);
    for (int first = 0; first < n; first += lane.num_threads()) {
      const int token = first + lane.thread();
      collect_bits(lane, to, token, token < n);
      lane.sync();
      add_up(lane);
      lane.sync();
      if (token < n) place(lane, to, token);
      lane.sync_warp();  // before the bits are written again
    }
    // The thread that counted a column tells the destination.
    int32_t* arrivals = x.layout.arrivals(x.segments[to], x.rank);
    for (int c = lane.thread(); c < columns; c += lane.num_threads()) {
      lane.store(arrivals + c, lane.load(totals + c));
    }
  }

 private:
  // [num_warps, columns]: the bits of a warp's tokens; and where the warp begins in the column.
  template <typename Lane>
  WIDEEP_DEVICE uint32_t* bits(Lane& lane, int warp) const {
    const int columns = x.layout.shape().slots_per_rank + 1;
    return shared_after_control<uint32_t>(lane) + (1 + warp) * columns;
  }
  template <typename Lane>
  WIDEEP_DEVICE int32_t* starts(Lane& lane, int warp) const {
    return reinterpret_cast<int32_t*>(bits(lane, lane.num_warps() + warp));
  }

  template <typename Lane>
  WIDEEP_DEVICE void collect_bits(Lane& lane, int to, int token, bool exists) const {
    const ExchangeShape& shape = x.layout.shape();
    const int32_t* slots = tokens.slots + static_cast<int64_t>(token) * shape.top_k;
    uint32_t* mine = bits(lane, lane.warp());
    bool is_message = false;
    for (int first = 0; first < shape.slots_per_rank; first += kWarpSize) {
      uint32_t here = 0;  // bits: the token's slots first … first + 31
      for (int k = 0; exists && k < shape.top_k; ++k) {
        const int local = lane.load(slots + k) - to * shape.slots_per_rank;
        const int bit = local - first;
        if (local < shape.slots_per_rank && bit >= 0 && bit < kWarpSize) here |= 1u << bit;
      }
      is_message = is_message || here != 0;
      const int left = shape.slots_per_rank - first;
      uint32_t kept = 0;  // lane c keeps the bits of column first + c
      for (int c = 0; c < (left < kWarpSize ? left : kWarpSize); ++c) {
        const uint32_t in_column = lane.ballot((here >> c & 1u) != 0);
        if (lane.lane() == c) kept = in_column;
      }
      if (lane.lane() < left) lane.store(mine + first + lane.lane(), kept);
    }
    const uint32_t messages = lane.ballot(is_message);
    if (lane.lane() == 0) lane.store(mine + shape.slots_per_rank, messages);
  }

  template <typename Lane>
  WIDEEP_DEVICE void add_up(Lane& lane) const {
    const int columns = x.layout.shape().slots_per_rank + 1;
    auto* totals = shared_after_control<int32_t>(lane);
    for (int c = lane.thread(); c < columns; c += lane.num_threads()) {
      int32_t total = lane.load(totals + c);
      for (int warp = 0; warp < lane.num_warps(); ++warp) {
        lane.store(starts(lane, warp) + c, total);
        total += num_bits(lane.load(bits(lane, warp) + c));
      }
      lane.store(totals + c, total);
    }
  }

  template <typename Lane>
  WIDEEP_DEVICE int32_t place_in(Lane& lane, int column) const {
    return lane.load(starts(lane, lane.warp()) + column) +
           bits_below(lane.load(bits(lane, lane.warp()) + column), lane.lane());
  }

  template <typename Lane>
  WIDEEP_DEVICE void place(Lane& lane, int to, int token) const {
    const ExchangeShape& shape = x.layout.shape();
    const int64_t first = static_cast<int64_t>(token) * shape.top_k;
    int32_t message = -1;
    for (int k = 0; k < shape.top_k; ++k) {
      const int local = lane.load(tokens.slots + first + k) - to * shape.slots_per_rank;
      if (local < 0 || local >= shape.slots_per_rank) continue;
      message = 0;
      lane.store(x.ordinals + first + k, place_in(lane, local));
    }
    if (message == 0) message = place_in(lane, shape.slots_per_rank);
    lane.store(x.message_of + static_cast<int64_t>(to) * shape.max_tokens + token, message);
  }
};

}  // namespace wideep::cuda
