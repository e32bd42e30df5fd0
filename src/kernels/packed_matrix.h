// SPDX-License-Identifier: Apache-2.0
//
// The one form in which weight matrices are multiplied: panels of kPanelWidth output columns, each
// a run of bytes that a product reads strictly forward. Within a panel, k is cut into blocks:
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
//
// Scales stand behind or before the codes as a product reads them: memory is fetched ahead in that
// order. Columns beyond n and values beyond k are zero. The packed form of a matrix is the same on
// every instruction set; a rank's slots and a host pool hold it, so that moving an expert is a
// plain copy.
//
// Thread safety: plain values, pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/weight_format.h"

namespace wideep::kernels {

// 16 float32 lanes: one AVX-512 register, two AVX2 registers, one cache line.
inline constexpr int kPanelWidth = 16;

// Of the 16 scales of a group, one a column.
inline constexpr size_t kScaleBytes = kPanelWidth * sizeof(float);

// Of a block of mxfp4 or nvfp4.
inline constexpr int kGroupsOfBlock = 4;

// What decides a packed matrix's layout and size.
struct PackedShape {
  WeightFormat format = WeightFormat::kF32;
  int n = 0;      // output features (rows of the checkpoint's [n, k] matrix)
  int k = 0;      // input features
  int group = 0;  // of int8 and int4: a multiple of 8, at most 256; of the others see default_group

  int num_panels() const { return (n + kPanelWidth - 1) / kPanelWidth; }
  int block_k() const;  // k of a block
  int num_blocks() const { return (k + block_k() - 1) / block_k(); }
  size_t block_bytes() const;
  size_t panel_bytes() const { return block_bytes() * static_cast<size_t>(num_blocks()); }
  size_t bytes() const { return panel_bytes() * static_cast<size_t>(num_panels()); }

  bool operator==(const PackedShape&) const = default;
};

// The group that quantisation takes when nobody says otherwise: fp8 128, int8 128, int4 64,
// mxfp4 32, nvfp4 16; 0 for f32 and bf16.
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
// Part `part` of `parts`, about as many panels in each.
inline PanelRange panels_of_part(const PackedShape& shape, int part, int parts) {
  const int64_t panels = shape.num_panels();
  return {static_cast<int>(panels * part / parts), static_cast<int>(panels * (part + 1) / parts)};
}

// Where a packed matrix lies; does not own the bytes.
struct PackedMatrix {
  PackedShape shape;
  const std::byte* data = nullptr;  // 64-byte aligned; all panels, or those of a slice
  float scale = 1.0f;               // of the whole matrix: nvfp4
  // Of a slice of the matrix: the panel that data begins with. Panels are counted as in the whole.
  int first_panel = 0;

  int n() const { return shape.n; }
  int k() const { return shape.k; }
  const std::byte* panel(int index) const {
    return data + static_cast<size_t>(index - first_panel) * shape.panel_bytes();
  }
};

}  // namespace wideep::kernels
