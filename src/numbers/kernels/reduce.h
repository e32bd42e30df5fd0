// SPDX-License-Identifier: Apache-2.0
//
// The weighted sum of a token's expert results, with shared expert and residual, in one pass:
//
//   x[i] += scale · ((Σ_k weights[k] · rows[k][i]) + shared[i])   or, if x is null,
//   sum[i] = (Σ_k weights[k] · rows[k][i]) + shared[i]            rounded once
//
// The sum starts at zero and adds rows in ascending k, one fused multiply-add each, then the shared
// expert, then x: the same order for every placement. A scale other than 1 is multiplied in by the
// addition to x, one fused multiply-add. For coded rows (row_format.h: code · scale)
// the weight is multiplied into the scale, round(weights[k] · scale) · code: one product for all
// values that share a scale.
//
// Thread safety: pure function.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "kernels/row_format.h"

namespace wideep::kernels {

struct ReduceArgs {
  int n = 0;
  int top_k = 0;
  RowFormat format = RowFormat::kBf16;     // of rows
  const std::byte* const* rows = nullptr;  // [top_k] rows of n
  const float* weights = nullptr;          // [top_k]
  const float* shared = nullptr;           // [n], or null: none
  float* x = nullptr;                      // [n], or null: the result goes to sum
  float scale = 1.0f;                      // of what is added to x; sum is not scaled
  Bf16* sum = nullptr;                     // [n]; may be one of the rows if they are bf16
};

}  // namespace wideep::kernels
