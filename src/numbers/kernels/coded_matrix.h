// SPDX-License-Identifier: Apache-2.0
//
// Weight matrices as codes and scales in row-major order, as in checkpoints. Quantisation produces
// them; packing (pack_codes) keeps their bits.
//
//   format   codes of a row                      scale of a group
//   fp8      [k] e4m3                            float32, of a block of 128 rows × 128 of k
//   int8     [k] code + 128                      float32
//   int4     [k / 2] code + 8, low nibble first  float32
//   mxfp4    [k / 2] e2m1, low nibble first      e8m0
//   nvfp4    [k / 2] e2m1, low nibble first      e4m3, and one float32 for the matrix
//   int4h    [k / 2] code, low nibble first      two half floats: the scale, and the minimum
//   int8h    [k] code                            the same
//   int4m    [k / 2] code, low nibble first      a byte, and a byte for the minimum; float32 d and
//   int8m    [k] code                            dmin of 256
//
// Thread safety: plain values, pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/packed_matrix.h"

namespace wideep::kernels {

// Whether the format has codes and scales (all but f32 and bf16).
constexpr bool is_coded(WeightFormat format) {
  return format != WeightFormat::kF32 && format != WeightFormat::kBf16;
}
constexpr bool is_four_bit(WeightFormat format) {
  return format == WeightFormat::kInt4 || format == WeightFormat::kMxfp4 ||
         format == WeightFormat::kNvfp4 || format == WeightFormat::kInt4m ||
         format == WeightFormat::kInt4h;
}
// Whether scales are bytes, not float32 or two half floats.
constexpr bool has_byte_scales(WeightFormat format) {
  return format == WeightFormat::kMxfp4 || format == WeightFormat::kNvfp4 || has_two_levels(format);
}
constexpr size_t scale_bytes(WeightFormat format) {
  return has_byte_scales(format) ? 1 : sizeof(float);
}

// A view of a coded matrix; does not own the bytes.
struct CodedMatrix {
  WeightFormat format = WeightFormat::kInt8;
  int n = 0;
  int k = 0;      // even if codes have four bits
  int group = 0;  // number of consecutive k that share a scale
  const std::byte* codes = nullptr;
  const void* scales = nullptr;  // [ceil(n / scale_rows)][num_groups] of scale_bytes
  int scale_rows = 1;            // rows that share scales: 128 for fp8
  float scale = 1.0f;            // of the whole matrix: nvfp4
  // int4m and int8m only:
  const std::byte* minimums = nullptr;  // like scales
  const float* block_scales = nullptr;  // [n][num_blocks][2]: d, dmin

  int num_blocks() const { return (k + kTwoLevelBlock - 1) / kTwoLevelBlock; }
  int num_groups() const { return (k + group - 1) / group; }
  size_t row_bytes() const { return static_cast<size_t>(is_four_bit(format) ? (k + 1) / 2 : k); }
  size_t scale_index(int row, int group_index) const {
    return static_cast<size_t>(row / scale_rows) * static_cast<size_t>(num_groups()) +
           static_cast<size_t>(group_index);
  }
  // A view of rows [begin, end). REQUIRES: begin is a multiple of scale_rows.
  CodedMatrix slice(int begin, int end) const;
  // The scale of a group, without the scale of the whole matrix.
  float group_scale(int row, int group_index) const;
  // What is subtracted from a group's scaled codes: formats with minimums, else 0.
  float group_minimum(int row, int group_index) const;
  // d and dmin of the group. REQUIRES: has_two_levels(format)
  const float* block_scale(int row, int group_index) const {
    return block_scales + 2 * (static_cast<size_t>(row) * static_cast<size_t>(num_blocks()) +
                               static_cast<size_t>(group_index * group / kTwoLevelBlock));
  }
  // The value of a code without scales; for int8 and int4 the code minus its offset.
  float element(int row, int at) const;
};

// A coded matrix with its memory.
struct QuantizedMatrix {
  CodedMatrix view;  // of the vectors below
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<std::byte> minimums;  // int4m, int8m
  std::vector<float> block_scales;
};

// Quantises float32 rows [n, k] (stride k):
//   fp8     scale = max |x| / 448 of the block
//   int8    scale = max |x| / 127 of the group
//   int4    16 candidates from max |x| / 7 down; the one with the least squared error
//   mxfp4   scale = 2^(⌊log2 max |x|⌋ − 2) of the group (OCP Microscaling Formats 1.0, section 6.3)
//   int4h   scale = (max x − min x) / 15 of the group, minimum min x; int8h: / 255
//   int4m   the same, both in 63 steps of the largest in 256 values; int8m
//   nvfp4   matrix scale = max |x| / (6 · 448), group scale = max |x| / 6 / matrix scale
// REQUIRES: all values are finite. Elements are rounded to the nearest. Scales of int8 and int4 are
// exact in bf16, so that a checkpoint may store them as bf16. matrix_scale: nvfp4 only, the matrix
// scale to use (parts that will be stacked share one); 0: computed from the rows.
QuantizedMatrix quantize_matrix(WeightFormat format, int group, const float* rows, int n, int k,
                                float matrix_scale = 0.0f);
float nvfp4_matrix_scale(float largest);

// Decodes rows [begin, end) to float32. out: [end − begin][k].
void dequantize_rows(const CodedMatrix& matrix, int begin, int end, float* out);

// Packs codes unchanged into rows [first_row, first_row + matrix.n) of a packed matrix of `shape`.
// shape.group may be a divisor of matrix.group. A group becomes zero if its scale is zero, or if
// half its scale is not a normal float32 (e8m0 codes 0 and 1). REQUIRES: formats and k are equal;
// out is 64-byte aligned and has shape.bytes() bytes; begin_pack was called for its panels. The
// caller keeps matrix.scale (PackedMatrix::scale).
void pack_codes(const PackedShape& shape, const CodedMatrix& matrix, int first_row, std::byte* out);

// Sets all weights in panels [first_panel, last_panel) to zero.
void begin_pack(const PackedShape& shape, int first_panel, int last_panel, std::byte* out);

}  // namespace wideep::kernels
