// SPDX-License-Identifier: Apache-2.0
//
// The end of a MoE layer for one token, in one pass over its row:
//
//   x[i] += (Σ_k weights[k] · rows[k][i]) + shared[i]          or, without x,
//   sum[i] = (Σ_k weights[k] · rows[k][i]) + shared[i]         rounded once
//
// The sum begins at zero and goes in ascending k, each step one fused multiply-add, then the shared
// expert, then x: the same chain for every placement. Of coded rows (row_format.h: code · scale)
// the weight goes to the scale, round(weights[k] · scale) · code: a product for all values that
// share a scale instead of one for each.
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
  float* x = nullptr;                      // [n], or null: into sum
  Bf16* sum = nullptr;                     // [n]; may be one of the rows, where these are bf16
};

}  // namespace wideep::kernels
