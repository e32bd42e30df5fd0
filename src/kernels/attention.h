// SPDX-License-Identifier: Apache-2.0
//
// Softmax attention of a block of queries over a paged cache: consecutive tokens of one sequence,
// and the query heads that share one key/value head.
//
//   out[t, h] = Σ_p exp(s_p − m) · value[p] / (exp(sinks[h] − m) + Σ_p exp(s_p − m))
//   s_p       = scale · q[t, h] · key[p]       for p in (position(t) − window, position(t)]
//
// Grouped-query attention calls it once per key/value head. Multi-head latent attention has two
// forms (docs/decisions/0007-attention.md):
//   absorbed   one key/value head for all: the cache's latent rows are keys, their first value_dim
//              elements values (CacheForm::kRows);
//   expanded   per head: pages of panels that the caller makes of the latents, a few at a time
//              (start, finish). A key's two parts, from the latent and rotary, are written one
//              after the other into the same panel: their products are one chain, and neither
//              queries nor keys are concatenated first.
//
// Arithmetic: a float32 cache is multiplied in float32; for bf16 and fp8 the query and the softmax
// weights are rounded to bf16, products accumulate in float32 (vdpbf16ps where there is one).
//
// Row invariance: a row (t, h) is computed page by page of kPageTokens absolute positions, each
// folded into a running (max, sum, output) as in online softmax (arXiv:1805.02867); within a page
// every score is one chain along key_dim, every output element one chain along the positions.
// Positions beyond the row's own, or before its window, contribute exact zeros, whatever is stored
// there. So the bits of a row depend on its query, its position and the cached rows it attends to:
// not on the block it is computed in, on chunking, or on which pages hold the rows.
// REQUIRES: cached elements are finite in every position up to the block's last, and at its
// neighbour (p ^ 1): storing an even position clears the odd one beside it.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/kv_page.h"

namespace wideep::kernels {

enum class CacheForm { kPanels, kRows };

// One key/value head's part of a page. kRows: `values` is not read.
struct KvPage {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
};

struct AttentionArgs {
  int num_tokens = 0;      // at least 1
  int num_heads = 0;       // query heads of this key/value head
  int first_position = 0;  // token t stands at first_position + t
  int key_dim = 0;
  int value_dim = 0;
  float scale = 1.0f;
  int window = 0;                // 0: none; else keys of the last `window` positions, own included
  const float* sinks = nullptr;  // [num_heads] logits that join the denominator, or null
  // Of token t, head h: key_dim elements from q + t · q_token_stride + h · q_head_stride.
  const float* q = nullptr;
  size_t q_token_stride = 0;
  size_t q_head_stride = 0;
  float* out = nullptr;  // value_dim elements, likewise
  size_t out_token_stride = 0;
  size_t out_head_stride = 0;

  Dtype cache_dtype = Dtype::kF32;  // kF32, kBf16 or kF8E4M3
  CacheForm form = CacheForm::kPanels;
  size_t row_stride = 0;  // kRows: elements from position to position, a multiple of 16
  // pages[i] holds positions 64 · (first_page + i) ...; together with earlier calls (start false)
  // and later ones (finish false) all that the tokens attend to, in order.
  const KvPage* pages = nullptr;
  int first_page = 0;
  int num_pages = 0;
  bool start = true;
  bool finish = true;
  // attention_scratch_bytes() bytes, 64-byte aligned; holds the rows' state between calls.
  std::byte* scratch = nullptr;

  int num_rows() const { return num_tokens * num_heads; }
};

size_t attention_scratch_bytes(const AttentionArgs& args);

// What is to be attended to in one layer by one run of consecutive tokens of a sequence.
struct AttentionProblem {
  int num_tokens = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int num_runs = 1;  // of the batch: each is such a problem
  int num_threads = 1;
};

// How a run is cut into calls of the kernel. Changes no bit of any result.
struct AttentionSplit {
  int tokens_per_task = 1;
  int heads_per_task = 1;  // of one key/value head's query heads

  std::string to_string() const;
};

// Enough rows per task that packing and widening pages do not count, enough tasks that the threads
// finish together.
AttentionSplit choose_split(const AttentionProblem& problem);

}  // namespace wideep::kernels
