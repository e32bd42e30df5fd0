// SPDX-License-Identifier: Apache-2.0
//
// The recurrence of Mamba-2 (arXiv:2405.21060), a state-space model: one head of one sequence. Per
// token, with the state S [state_dim, head_dim]:
//
//   S   = decay · S + b (step · x)ᵀ
//   out = Sᵀ c + skip · x
//
// Row invariance: always this recurrence, token after token, never a form by chunks. The update of S
// is fma(b, step · x, decay · S). Every element of Sᵀ c is one chain of fused multiply-adds from
// zero along state_dim, ascending; out is fma(skip, x, that). So an output's bits do not depend on
// how tokens are cut into calls, and they are the same on all instruction sets.
//
// Some rows of the state stay in registers while all tokens go through them; the chains of `out`
// wait in memory for the next rows.
//
// Thread safety: pure function; different heads or sequences in different threads. out may not
// overlap x.
#pragma once

#include <cstddef>

namespace wideep::kernels {

struct StateSpaceArgs {
  int num_tokens = 0;
  int state_dim = 0;
  int head_dim = 0;
  float* state = nullptr;  // [state_dim, head_dim]: before the first token, then after the last one
  // Token t: elements from x + t · x_stride on; likewise the others. Strides in elements.
  const float* x = nullptr;  // head_dim elements
  size_t x_stride = 0;
  const float* b = nullptr;  // state_dim elements
  size_t b_stride = 0;
  const float* c = nullptr;  // state_dim elements
  size_t c_stride = 0;
  const float* decay = nullptr;  // one element: e^(step · A) in (0, 1]
  size_t decay_stride = 0;
  const float* step = nullptr;  // one element
  size_t step_stride = 0;
  float skip = 0.0f;
  float* out = nullptr;  // head_dim elements
  size_t out_stride = 0;
};

}  // namespace wideep::kernels
