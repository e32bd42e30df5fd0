// SPDX-License-Identifier: Apache-2.0
//
// The indexer of sparse attention: which positions a token attends to.
//
//   score[t, p] = Σ_h weights[t, h] · f(q[t, h] · key[p])     p ≤ position(t)
//
// where f(x) is max(0, x) in DeepSeek Sparse Attention (DeepSeek-V3.2), and x in MiniMax Sparse
// Attention (MiniMax-M3). Then the positions, or blocks of positions, with the largest scores. Keys
// of the indexer are cached in pages of rows like latents (kv_page.h, CacheForm::kRows).
//
// Row invariance: a product is one chain of additions along dim, in the arithmetic of attention.h
// (for a bf16 cache with the query rounded to bf16, in vdpbf16ps if available). The sum starts from
// zero and adds one fused multiply-add per head, ascending. So a score's bits depend only on its
// token's query and weights and on that key: not on the block, on chunking, or on the pages.
//
// Thread safety: pure functions; args.scratch and args.scores are used by one call at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"

namespace wideep::kernels {

struct IndexArgs {
  int num_tokens = 0;      // consecutive tokens of one sequence
  int num_heads = 0;       // of the indexer
  int first_position = 0;  // token t has position first_position + t
  int dim = 0;
  // Query of token t, head h: dim elements at q + t · q_token_stride + h · q_head_stride.
  const float* q = nullptr;
  size_t q_token_stride = 0;
  size_t q_head_stride = 0;
  const float* weights = nullptr;  // token t: num_heads elements; all constant factors included
  size_t weights_stride = 0;
  bool rectifies = true;  // f(x) is max(0, x), else x

  Dtype cache_dtype = Dtype::kF32;  // kF32 or kBf16
  size_t row_stride = 0;            // elements from position to position
  // pages[i].keys has the rows of the positions from 64 · (first_page + i) on.
  const KvPage* pages = nullptr;
  int first_page = 0;
  int num_pages = 0;

  // score[t, p] at scores + t · scores_stride + p, by absolute position p. Written for the
  // positions of the given pages up to the token's own.
  float* scores = nullptr;
  size_t scores_stride = 0;
  std::byte* scratch = nullptr;  // index_scratch_bytes() bytes, 64-byte aligned

  int num_rows() const { return num_tokens * num_heads; }
};

size_t index_scratch_bytes(const IndexArgs& args);

// Writes the positions of the k largest of n scores, ascending, and returns how many they are: k,
// or n if that is less. Of equal scores the lower position wins; −0 equals 0; NaN is less than all
// numbers. Time is O(n); no memory but the stack.
int select_top(const float* scores, int n, int k, int32_t* positions);

}  // namespace wideep::kernels
