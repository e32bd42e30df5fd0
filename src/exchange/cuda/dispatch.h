// SPDX-License-Identifier: Apache-2.0
//
// dispatch: writes each token into one message for each rank of its slots, in that rank's memory.
// Then the last block raises the flags. A warp copies one piece of a row at a time, which it reads
// once and writes to all its destinations.
//
// Thread safety: a kernel.
#pragma once

#include "cuda/protocol.h"
#include "cuda/token_route.h"

namespace wideep::cuda {

struct Dispatch {
  Exchange x;
  Tokens tokens;
  const std::byte* rows = nullptr;  // [num_tokens] rows of row_bytes, any alignment
  uint64_t row_stride = 0;
  int32_t layer = 0;

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    const uint32_t call = begin_call(lane, x);
    if (call == 0) return;
    const int n = lane.load(tokens.num_tokens);
    const int64_t units = int64_t{n} * pieces();
    const int64_t step = int64_t{lane.num_blocks()} * lane.num_warps();
    for (int64_t u = int64_t{lane.block()} * lane.num_warps() + lane.warp(); u < units; u += step) {
      send(lane, u, kAllRanks, call);
    }
    if (!is_last_block(lane, &x.state->blocks_sent) || has_failed(lane, x)) return;
    raise(lane, x, Channel::kDispatch, call);
  }

  // The messages of n tokens to one rank; a block writes them.
  template <typename Lane>
  WIDEEP_DEVICE void send_to(Lane& lane, int rank, int n, uint32_t call) const {
    const int64_t units = int64_t{n} * pieces();
    for (int64_t u = lane.warp(); u < units; u += lane.num_warps()) send(lane, u, rank, call);
  }

 private:
  WIDEEP_DEVICE int pieces() const {
    return (static_cast<int>(x.layout.shape().row_bytes) + kPieceBytes - 1) / kPieceBytes;
  }

  // One piece of a token's row, with the first one its lists, to all its ranks or to one of them.
  template <typename Lane>
  WIDEEP_DEVICE void send(Lane& lane, int64_t unit, int only_rank, uint32_t call) const {
    const auto token = static_cast<int>(unit / pieces());
    const auto piece = static_cast<int>(unit % pieces());
    // The row comes while the route is looked up.
    Vector vectors[kVectors];
    load_piece(lane, token, piece * kPieceBytes, vectors);
    const TokenRoute route = find_route(lane, x, tokens, token, only_rank);
    if (route.wrong_slots != 0) {
      refuse(lane, route, token, call);
      return;
    }
    if (piece == 0) write_lists(lane, route, token, only_rank);
    store_piece(lane, route, piece * kPieceBytes, vectors);
  }

  static constexpr int kVectors = 4;  // of a lane: loads that are under way at the same time
  static constexpr int kPieceBytes = kVectors * kWarpSize * static_cast<int>(sizeof(Vector));

  template <typename Lane>
  WIDEEP_DEVICE void refuse(Lane& lane, const TokenRoute& route, int token, uint32_t call) const {
    if (lane.lane() != lowest_bit(route.wrong_slots)) return;
    const bool exists = route.rank >= 0 && !route.is_duplicate;
    fail(lane, x,
         {exists ? FailureCode::kInactiveRank : FailureCode::kBadSlot, exists ? route.rank : -1,
          layer, -1, call, token});
  }

  template <typename Lane>
  WIDEEP_DEVICE void write_lists(Lane& lane, const TokenRoute& route, int token,
                                 int only_rank) const {
    const ExchangeShape& shape = x.layout.shape();
    const int64_t at = static_cast<int64_t>(token) * shape.top_k + lane.lane();
    const bool has_slot = lane.lane() < shape.top_k;
    const bool is_sent = has_slot && (only_rank == kAllRanks || only_rank == route.rank);
    const int32_t ordinal = is_sent ? lane.load(x.ordinals + at) : 0;
    const float weight = has_slot ? lane.load(tokens.weights + at) : 0.0f;
    for (uint32_t left = route.first_lanes; left != 0; left &= left - 1) {
      const int from = lowest_bit(left);
      const int to = lane.shuffle(route.rank, from);
      const int message = lane.shuffle(route.message, from);
      if (!has_slot) continue;
      int32_t* slots = x.layout.slots(x.segments[to], x.rank, message);
      lane.store(slots + lane.lane(),
                 route.rank == to ? route.slot - to * shape.slots_per_rank : -1);
      lane.store(x.layout.ordinals(slots) + lane.lane(), ordinal);
      lane.store(x.layout.weights(slots) + lane.lane(), weight);
    }
  }

  static constexpr int kStep = kWarpSize * static_cast<int>(sizeof(Vector));

  template <typename Lane>
  WIDEEP_DEVICE void load_piece(Lane& lane, int token, int begin,
                                Vector (&vectors)[kVectors]) const {
    const auto row_bytes = static_cast<int>(x.layout.shape().row_bytes);
    const std::byte* row = rows + static_cast<uint64_t>(token) * row_stride;
    const bool is_aligned = reinterpret_cast<uint64_t>(row) % sizeof(Vector) == 0;
    const int first = begin + lane.lane() * static_cast<int>(sizeof(Vector));
    WIDEEP_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const int at = first + i * kStep;
      if (at < row_bytes) vectors[i] = load_vector(lane, row + at, row_bytes - at, is_aligned);
    }
  }

  template <typename Lane>
  WIDEEP_DEVICE void store_piece(Lane& lane, const TokenRoute& route, int begin,
                                 const Vector (&vectors)[kVectors]) const {
    const auto row_bytes = static_cast<int>(x.layout.shape().row_bytes);
    const int first = begin + lane.lane() * static_cast<int>(sizeof(Vector));
    for (uint32_t left = route.first_lanes; left != 0; left &= left - 1) {
      const int from = lowest_bit(left);
      const int to = lane.shuffle(route.rank, from);
      const int message = lane.shuffle(route.message, from);
      std::byte* copy = x.layout.row(x.layout.slots(x.segments[to], x.rank, message));
      WIDEEP_UNROLL
      for (int i = 0; i < kVectors; ++i) {
        const int at = first + i * kStep;
        if (at < row_bytes) lane.store(reinterpret_cast<Vector*>(copy + at), vectors[i]);
      }
    }
  }

  // 16 bytes of a row, or its last ones and zeros.
  template <typename Lane>
  WIDEEP_DEVICE static Vector load_vector(Lane& lane, const std::byte* from, int left,
                                          bool is_aligned) {
    if (is_aligned && left >= static_cast<int>(sizeof(Vector))) {
      return lane.load(reinterpret_cast<const Vector*>(from));
    }
    return load_units<uint8_t>(lane, from, left);
  }
};

}  // namespace wideep::cuda
