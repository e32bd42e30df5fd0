// SPDX-License-Identifier: Apache-2.0
//
// y[m, n] = Σ_k x[m, k] · w[n, k], with w packed.
//
// Row invariance: every element of y is one chain of additions along k, in ascending order, that
// starts from zero. It depends on its own row of x and its own row of w only, never on m, on the
// rows beside it or on how the work is cut. The chain's step is
//   float32            acc = fma(x[k], w[k], acc)
//   bfloat16           acc = fma(x[k], w[k], acc), both widened to float32 first; or, where the
//                      processor has vdpbf16ps, that instruction's step over pairs of k
// so float32 results are equal on every instruction set and bfloat16 results on all but one.
#pragma once

#include "kernels/packed_matrix.h"

namespace wideep::kernels {

struct MatmulArgs {
  int m = 0;
  // [m, w.k], of w.dtype: float for kF32, Bf16 for kBf16. Stride in elements between rows.
  const void* x = nullptr;
  size_t x_stride = 0;
  PackedMatrix w;
  // Which panels of w to compute: [first_panel, last_panel). Threads split a product along n.
  int first_panel = 0;
  int last_panel = 0;
  // [m, w.n]; written at the columns of those panels only.
  float* y = nullptr;
  size_t y_stride = 0;
};

}  // namespace wideep::kernels
