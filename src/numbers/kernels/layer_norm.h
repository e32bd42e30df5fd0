// SPDX-License-Identifier: Apache-2.0
//
// Layer normalisation of a row (arXiv:1607.06450), with m the mean of x:
//
//   y[i] = (x[i] − m) / sqrt(mean((x − m)²) + eps) · weight[i] + bias[i]     i < n
//
// The mean is computed twice, of x and of what is left without the first one: a float32 sum of
// values far from zero is too coarse for the differences between them.
//
// Thread safety: pure function.
#pragma once

namespace wideep::kernels {

struct LayerNorm {
  const float* weight = nullptr;  // [n]
  const float* bias = nullptr;    // [n], or null: none
  float eps = 0.0f;
};

}  // namespace wideep::kernels
