// SPDX-License-Identifier: Apache-2.0
//
// Causal depthwise convolution along the tokens of one sequence, as in Qwen3-Next (width 4) and
// LFM2 (width 3). Every channel c has its own weights:
//
//   y[t, c] = bias[c] + Σ_j weight[j, c] · x[t − (width − 1) + j, c]     j in [0, width)
//
// then silu(y) if asked. x of the tokens before the call is in `state`.
//
// Row invariance: a sum starts from the bias (or zero) and adds one fused multiply-add per j,
// ascending. Its bits do not depend on how tokens are cut into calls. Without silu the same bits on
// all instruction sets.
//
// Thread safety: pure function; threads may compute disjoint ranges of channels.
#pragma once

#include <cstddef>

namespace wideep::kernels {

inline constexpr int kMinConvolutionWidth = 2;
inline constexpr int kMaxConvolutionWidth = 8;

struct ConvolutionArgs {
  int num_tokens = 0;
  int num_channels = 0;
  int width = 0;  // kMinConvolutionWidth … kMaxConvolutionWidth
  // Token t: num_channels elements from x + t · x_stride on. Strides are in elements.
  const float* x = nullptr;
  size_t x_stride = 0;
  const float* weight = nullptr;  // weight[j, c] at weight + j · weight_stride + c
  size_t weight_stride = 0;       // 0: num_channels
  const float* bias = nullptr;    // [num_channels], or null: none
  bool silu = false;
  // The last width − 1 inputs, oldest first: state[i, c] at state + i · state_stride + c. On entry
  // those before the first token (zeros at the beginning of a sequence), on return those of the
  // last tokens.
  float* state = nullptr;
  size_t state_stride = 0;  // 0: num_channels
  float* out = nullptr;     // like x; may be x
  size_t out_stride = 0;
};

}  // namespace wideep::kernels
