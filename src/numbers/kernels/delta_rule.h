// SPDX-License-Identifier: Apache-2.0
//
// The gated delta rule (arXiv:2412.06464), the linear attention of Qwen3-Next: one value head of
// one sequence. Per token, with the state S [key_dim, value_dim]:
//
//   u   = beta · (v − decay · (Sᵀ k))
//   S   = decay · S + k uᵀ
//   out = Sᵀ q
//
// Kimi Delta Attention (arXiv:2510.26692) has a decay for each channel of the key, a row of S:
//
//   u   = beta · (v − Sᵀ (decay ∘ k))
//   S   = diag(decay) · S + k uᵀ
//
// Row invariance: always this recurrence, token after token, never a form by chunks. Every element
// of Sᵀ k and Sᵀ q is one chain of fused multiply-adds from zero along key_dim, ascending; the
// update of S is fma(k, u, decay · S), and decay ∘ k is rounded. So an output's bits do not depend
// on how tokens are cut into calls, and they are the same on all instruction sets.
//
// A few tokens go through some columns of the state before the next ones, which stay in the
// first-level cache meanwhile: calls with many tokens are faster per token.
//
// Thread safety: pure function; different heads or sequences in different threads. out may be v.
#pragma once

#include <cstddef>

namespace wideep::kernels {

inline constexpr int kMaxChannelDecays = 2048;

struct DeltaRuleArgs {
  int num_tokens = 0;
  int key_dim = 0;
  int value_dim = 0;
  float* state = nullptr;  // [key_dim, value_dim]: before the first token, then after the last one
  // Token t: elements from q + t · q_stride on; likewise the others. Strides in elements.
  const float* q = nullptr;  // key_dim elements, normalised and scaled by the caller
  size_t q_stride = 0;
  const float* k = nullptr;  // key_dim elements, normalised
  size_t k_stride = 0;
  const float* v = nullptr;  // value_dim elements
  size_t v_stride = 0;
  // One element, or one for each channel of the key: e^g in (0, 1].
  const float* decay = nullptr;
  size_t decay_stride = 0;
  bool channel_decay = false;   // REQUIRES then: key_dim ≤ kMaxChannelDecays
  const float* beta = nullptr;  // one element
  size_t beta_stride = 0;
  float* out = nullptr;  // value_dim elements
  size_t out_stride = 0;
};

}  // namespace wideep::kernels
