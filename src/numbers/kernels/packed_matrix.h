// SPDX-License-Identifier: Apache-2.0
//
// The packed form of weight matrices, the only one that is multiplied. A matrix is split into
// panels of kPanelWidth output columns. A panel is contiguous, and a product reads it strictly
// forward. Within a panel, k is split into blocks:
//
//   format        block of k                     bytes of a block
//   f32           all of k                       [k][16] float32
//   bf16          all of k, even                 [k / 2][16][2] bf16: the pair (k, k + 1)
//   fp8           group                          [group / 2][16][2] e4m3, [16] float32 scales
//   int8          group                          [group / 4][16][4] code + 128, [16] float32 scales
//   int4          group                          [group / 8][16][4] bytes, [16] float32 scales; the
//                                                low nibbles hold k … k + 3, the high ones
//                                                k + 4 … k + 7
//   mxfp4         128 (four groups)              [4][16] e8m0 of half the scale, codes like int4
//   nvfp4         64 (four groups)               [4][16] e5m3 (e5m3.h), codes like int4
//   int4h, int8h  group                          codes like int4 and, without an offset, int8;
//                                                [16] half scales, [16] half minimums
//   int4m, int8m  256 (8 or 16 groups)           [groups][16] scales, [groups][16] minimums, codes
//                                                as above, [16] float32 dmin, [16] float32 d
//
// Scales are before or after the codes, in the order in which a product reads them, since memory is
// prefetched in that order. Columns from n on and values from k on are zero. The packed form is the
// same on every instruction set. Expert slots and the host pool have packed matrices, so that
// moving an expert is a plain copy.
//
// Thread safety: plain values, pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/weight_format.h"

namespace wideep::kernels {

// 16 float32 lanes: one AVX-512 register, two AVX2 registers, one cache line.
inline constexpr int kPanelWidth = 16;

// Size of a group's 16 float32 scales, one per column.
inline constexpr size_t kScaleBytes = kPanelWidth * sizeof(float);

// Number of groups in a block of mxfp4 or nvfp4.
inline constexpr int kGroupsOfBlock = 4;
// Number of values of k in a block of int4m or int8m.
inline constexpr int kTwoLevelBlock = 256;

// Determines the layout and size of a packed matrix.
struct PackedShape {
  WeightFormat format = WeightFormat::kF32;
  int n = 0;  // output features (rows of the checkpoint's [n, k] matrix)
  int k = 0;  // input features
  // int8, int4, int8h and int4h: a multiple of 8, at most 256; int8m and int4m: 32 or 16; other
  // formats: default_group.
  int group = 0;

  int num_panels() const { return (n + kPanelWidth - 1) / kPanelWidth; }
  int block_k() const;  // k of a block
  int groups_of_block() const { return group > 0 ? block_k() / group : 1; }
  int num_blocks() const { return (k + block_k() - 1) / block_k(); }
  size_t block_bytes() const;
  size_t panel_bytes() const { return block_bytes() * static_cast<size_t>(num_blocks()); }
  size_t bytes() const { return panel_bytes() * static_cast<size_t>(num_panels()); }

  bool operator==(const PackedShape&) const = default;
};

// The default group of quantisation: fp8 128, int8 128, int4 64, mxfp4 32, nvfp4 16, formats with
// minimums 32; 0 for f32 and bf16.
int default_group(WeightFormat format);

inline PackedShape packed_shape(WeightFormat format, int n, int k) {
  return {format, n, k, default_group(format)};
}

// Panels [first, last).
struct PanelRange {
  int first = 0;
  int last = 0;

  int count() const { return last - first; }
};
// The panels of part `part` of `parts` nearly equal parts.
inline PanelRange panels_of_part(const PackedShape& shape, int part, int parts) {
  const int64_t panels = shape.num_panels();
  return {static_cast<int>(panels * part / parts), static_cast<int>(panels * (part + 1) / parts)};
}

// A view of a packed matrix; does not own the bytes.
struct PackedMatrix {
  PackedShape shape;
  const std::byte* data = nullptr;  // 64-byte aligned; all panels, or some consecutive ones
  float scale = 1.0f;               // of the whole matrix: nvfp4
  // Index of the panel at `data`. Panel indices are always those of the whole matrix.
  int first_panel = 0;

  int n() const { return shape.n; }
  int k() const { return shape.k; }
  const std::byte* panel(int index) const {
    return data + static_cast<size_t>(index - first_panel) * shape.panel_bytes();
  }
};

}  // namespace wideep::kernels
