// SPDX-License-Identifier: Apache-2.0
//
// Rows of activations as int8, for products with int8 and int4 weights: each group of a row (a run
// of `group` values, the weights' group) is round(x / scale) with scale = max |x| / 127.
//
//   row   [padded k] int8, zero beyond k
//         [num_groups] float32 scales
//         [num_groups] int32 sums of the group's codes: weights are stored with an offset, which
//         products take back by it
//
// A row's bytes depend on that row only.
#pragma once

#include <cstddef>

namespace wideep::kernels {

struct QuantizedRowShape {
  int k = 0;
  int group = 0;

  int num_groups() const { return (k + group - 1) / group; }
  int padded_k() const { return num_groups() * group; }
  size_t scales_offset() const { return (static_cast<size_t>(padded_k()) + 63) / 64 * 64; }
  size_t sums_offset() const {
    return scales_offset() + static_cast<size_t>(num_groups()) * sizeof(float);
  }
  // A multiple of 64.
  size_t bytes() const {
    return (sums_offset() + static_cast<size_t>(num_groups()) * sizeof(float) + 63) / 64 * 64;
  }
};

}  // namespace wideep::kernels
