// SPDX-License-Identifier: Apache-2.0
//
// Rows of activations as int8, for products with integer and four-bit weights: each group of a row
// (a run of `group` values, the weights' block) is round(x / scale) with scale = max |x| / 127.
//
//   row   [padded k] int8, zero beyond k
//         [num_groups] float32 scales
//         [num_sums] int32 sums of the codes of each sum_group values (the weights' group): weights
//         are multiplied with an offset, which products take back by them
//
// Values so small that their scale would be subnormal become zero. A value that is not finite makes
// its group's scale NaN, and with it all that the row is multiplied to. A row's bytes depend on
// that row only and are the same on every instruction set.
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

// Of a group whose largest magnitude that is. 0 and NaN: its codes are zero.
inline float quantized_scale(float largest) {
  using Limits = std::numeric_limits<float>;
  if (!(largest <= Limits::max())) return Limits::quiet_NaN();
  const float scale = largest / 127.0f;
  return scale >= Limits::min() ? scale : 0.0f;
}

// As products with w take them. REQUIRES: takes_quantized_rows(w.format).
inline QuantizedRowShape quantized_row_shape(const PackedShape& w) {
  return {w.k, w.block_k(), w.group};
}

}  // namespace wideep::kernels
