// SPDX-License-Identifier: Apache-2.0
//
// Softmax attention of one query token over a paged cache, for grouped-query attention and for
// multi-head latent attention in its absorbed form (one shared key head whose value is the first
// value_dim elements of the key: pass value_pages = key_pages).
//
//   out[h] = Σ_p softmax_p(scale · q[h] · key[p][g]) · value[p][g]
//   g      = h / (num_heads / num_kv_heads)
//
// Order: pages of kPageTokens absolute positions, each folded into a running (max, sum, output)
// triple as in online softmax (arXiv:1805.02867). The result depends on the token's own query, its
// position and the cached rows only: not on the batch, on chunking, or on which pages hold the
// rows.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace wideep::kernels {

// Positions in a page of the KV cache, which is also the block of the online softmax.
inline constexpr int kPageTokens = 64;

struct AttentionArgs {
  int num_heads = 0;
  int num_kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  float scale = 1.0f;
  int num_positions = 0;            // keys 0 ... num_positions - 1 are attended to; at least 1
  const float* q = nullptr;         // [num_heads, key_dim]
  Dtype cache_dtype = Dtype::kF32;  // kF32 or kBf16
  // Page i holds positions 64·i ... 64·i + 63: [kPageTokens, num_kv_heads, dim] of cache_dtype,
  // where a position's row is key_stride (value_stride) elements long.
  const std::byte* const* key_pages = nullptr;
  const std::byte* const* value_pages = nullptr;
  size_t key_stride = 0;
  size_t value_stride = 0;
  float* out = nullptr;  // [num_heads, value_dim]
};

}  // namespace wideep::kernels
