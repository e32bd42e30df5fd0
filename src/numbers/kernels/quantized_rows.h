// SPDX-License-Identifier: Apache-2.0
//
// Rows of activations quantised to int8, for products with integer and four-bit weights. A group is
// `group` consecutive values of a row (as many as a block of the weights): code = round(x / scale)
// with scale = max |x| / 127.
//
//   row   [padded k] int8 codes, zero from k on
//         [num_groups] float32 scales
//         [num_sums] int32 sums of the codes of each sum_group values (the weights' group).
//         Products use weights with an offset; they subtract offset × sum.
//
// If a group's scale would be subnormal, its codes are zero. A value that is not finite makes the
// group's scale NaN, and so all results of the row. The bytes of a row depend on that row only, and
// are the same on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/packed_matrix.h"

namespace wideep::kernels {

struct QuantizedRowShape {
  int k = 0;
  int group = 0;
  int sum_group = 0;  // a divisor of group

  int num_groups() const { return (k + group - 1) / group; }
  int padded_k() const { return num_groups() * group; }
  int num_sums() const { return padded_k() / sum_group; }
  size_t scales_offset() const { return (static_cast<size_t>(padded_k()) + 63) / 64 * 64; }
  size_t sums_offset() const {
    return scales_offset() + static_cast<size_t>(num_groups()) * sizeof(float);
  }
  // A multiple of 64.
  size_t bytes() const {
    return (sums_offset() + static_cast<size_t>(num_sums()) * sizeof(int32_t) + 63) / 64 * 64;
  }
};

// The scale of a group with this largest magnitude. If it is 0 or NaN, all codes are zero.
inline float quantized_scale(float largest) {
  using Limits = std::numeric_limits<float>;
  if (!(largest <= Limits::max())) return Limits::quiet_NaN();
  const float scale = largest / 127.0f;
  return scale >= Limits::min() ? scale : 0.0f;
}

// The shape of rows for products with w. REQUIRES: takes_quantized_rows(w.format).
inline QuantizedRowShape quantized_row_shape(const PackedShape& w) {
  return {w.k, w.block_k(), w.group};
}

}  // namespace wideep::kernels
