// SPDX-License-Identifier: Apache-2.0
//
// expand and finalize, for experts that take dense matrices: all received rows one after the other,
// those of a slot together; and their results back to where the sources read them. The work grows
// with the rows that have come, not with the room for them.
//
// Thread safety: kernels.
#pragma once

#include "cuda/protocol.h"
#include "cuda/receive.h"
#include "cuda/row_values.h"

namespace wideep::cuda {

// Moves between received rows or their results and a matrix: row i of it is received[i]. A warp
// moves one piece of a row at a time.
struct MoveRows {
  Exchange x;
  const ReceivedRow* received = nullptr;
  const int32_t* slot_starts = nullptr;  // [slots_per_rank + 1]
  std::byte* matrix = nullptr;           // 16-byte aligned
  uint64_t stride = 0;                   // bytes, a multiple of 16 with room for a row

  // move(places, row of the matrix): from where to where.
  template <typename Lane, typename Move>
  WIDEEP_DEVICE void run(Lane& lane, int num_bytes, const Move& move) const {
    if (begin_call(lane, x) == 0) return;
    const int n = lane.load(slot_starts + x.layout.shape().slots_per_rank);
    const int pieces = (num_bytes + kPieceBytes - 1) / kPieceBytes;
    const int64_t units = int64_t{n} * pieces;
    const int64_t step = int64_t{lane.num_blocks()} * lane.num_warps();
    for (int64_t u = int64_t{lane.block()} * lane.num_warps() + lane.warp(); u < units; u += step) {
      const int64_t row = u / pieces;
      const FromTo rows =
          move(lane.load(&received[row].places), matrix + static_cast<uint64_t>(row) * stride);
      copy_piece(lane, rows, static_cast<int>(u % pieces) * kPieceBytes, num_bytes);
    }
  }

  struct FromTo {
    const std::byte* from;
    std::byte* to;
  };

 private:
  static constexpr int kVectors = 4;  // of a lane: loads that are under way at the same time
  static constexpr int kStep = kWarpSize * static_cast<int>(sizeof(Vector));
  static constexpr int kPieceBytes = kVectors * kStep;

  template <typename Lane>
  WIDEEP_DEVICE static void copy_piece(Lane& lane, const FromTo& rows, int begin, int num_bytes) {
    const int first = begin + lane.lane() * static_cast<int>(sizeof(Vector));
    Vector vectors[kVectors];
    WIDEEP_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const int at = first + i * kStep;
      if (at < num_bytes) vectors[i] = load_vector(lane, rows.from + at, num_bytes - at);
    }
    WIDEEP_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      const int at = first + i * kStep;
      if (at < num_bytes) lane.store(reinterpret_cast<Vector*>(rows.to + at), vectors[i]);
    }
  }

  // 16 bytes, or the last ones and zeros.
  template <typename Lane>
  WIDEEP_DEVICE static Vector load_vector(Lane& lane, const std::byte* from, int left) {
    if (left >= static_cast<int>(sizeof(Vector))) {
      return lane.load(reinterpret_cast<const Vector*>(from));
    }
    return load_units<uint8_t>(lane, from, left);
  }
};

struct Expand {
  MoveRows rows;

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    rows.run(lane, static_cast<int>(rows.x.layout.shape().row_bytes),
             [](const ReceivedRow::Places& places, std::byte* row) {
               return MoveRows::FromTo{places.row, row};
             });
  }
};

struct Finalize {
  MoveRows rows;

  template <typename Lane>
  WIDEEP_DEVICE void operator()(Lane& lane) const {
    rows.run(lane, static_cast<int>(rows.x.layout.shape().result_bytes),
             [](const ReceivedRow::Places& places, std::byte* row) {
               return MoveRows::FromTo{row, places.result};
             });
  }
};

}  // namespace wideep::cuda
