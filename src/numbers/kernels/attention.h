// SPDX-License-Identifier: Apache-2.0
//
// Softmax attention of a block of queries over a paged KV cache. The block is some consecutive
// tokens of one sequence × query heads that share one key/value head.
//
//   out[t, h] = Σ_p exp(s_p − m) · value[p] / (exp(sinks[h] − m) + Σ_p exp(s_p − m))
//   s_p       = scale · q[t, h] · key[p]       for the positions p that token t attends to:
//               those from first_visible(window, chunk, position(t)) to position(t), or the ones
//               that are listed for it (sparse attention)
//
// Grouped-query attention: one call per key/value head. Multi-head latent attention has two forms
// (docs/decisions/0007-attention.md):
//   absorbed   all heads share one key/value head. The cache's latent rows are the keys; their
//              first value_dim elements are the values (CacheForm::kRows).
//   expanded   per head. The caller expands the latents into pages of panels, a few pages per call
//              (start, finish). The latent part and the rotary part of a key are stored one after
//              the other in the same panel, so their products are one chain of additions.
//
// Arithmetic: a float32 cache is multiplied in float32. For bf16 and fp8, the query and the softmax
// weights are rounded to bf16, and products accumulate in float32 (vdpbf16ps if available).
//
// Row invariance: a row (t, h) is computed page by page, where a page is kPageTokens absolute
// positions. Each page is folded into a running (max, sum, output), as in online softmax
// (arXiv:1805.02867). Within a page every score is one chain along key_dim, and every output
// element one chain along the positions. Masked positions (after the row's own, or before its
// window) contribute exact zeros, whatever is stored there. So the bits of a row depend only on its
// query, its position and the cached rows it attends to: not on the block, on chunking, or on the
// pages. REQUIRES: cached elements are finite in every position up to the block's last, and in that
// position's pair (p ^ 1): storing an even position clears the odd one of its pair.
//
// Sparse attention (`selected`): each token's rows of the cache are gathered in ascending order,
// and every kPageTokens of them are computed like a page. So the cost is that of the selected
// positions, and a row's bits depend on its query and the selected rows only. They differ from
// those of dense attention, even if all positions are selected.
//
// Thread safety: pure functions; args.scratch and args.out are used by one call at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/kv_page.h"

namespace wideep::kernels {

enum class CacheForm { kPanels, kRows };

// One key/value head's part of a page. kRows: `values` is not read.
struct KvPage {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
};

// The first position that a token at `position` attends to. window: the last `window` positions,
// its own included (0: no window). chunk: the positions with the same quotient p / chunk (0: no
// chunks). Grows with the position, so pages that end before it are not needed by later tokens
// either.
constexpr int first_visible(int window, int chunk, int position) {
  const int of_window = window > 0 ? std::max(0, position + 1 - window) : 0;
  const int of_chunk = chunk > 0 ? position / chunk * chunk : 0;
  return std::max(of_window, of_chunk);
}

struct AttentionArgs {
  int num_tokens = 0;      // at least 1
  int num_heads = 0;       // query heads of this key/value head
  int first_position = 0;  // token t has position first_position + t
  int key_dim = 0;
  int value_dim = 0;
  float scale = 1.0f;
  int window = 0;  // see first_visible
  int chunk = 0;
  const float* sinks = nullptr;  // [num_heads] logits added to the denominator, or null
  // Query of token t, head h: key_dim elements at q + t · q_token_stride + h · q_head_stride.
  const float* q = nullptr;
  size_t q_token_stride = 0;
  size_t q_head_stride = 0;
  float* out = nullptr;  // value_dim elements, likewise
  size_t out_token_stride = 0;
  size_t out_head_stride = 0;

  Dtype cache_dtype = Dtype::kF32;  // kF32, kBf16 or kF8E4M3
  CacheForm form = CacheForm::kPanels;
  size_t row_stride = 0;  // kRows: elements from position to position, a multiple of 16
  // Sparse attention: token t attends to the num_selected[t] positions selected[t], ascending and
  // none after its own; window and chunk are not used. Null: dense attention. REQUIRES: kRows, all
  // pages with selected positions in one call, and a position for each token unless calls before
  // have some.
  const int32_t* const* selected = nullptr;  // [num_tokens]
  const int32_t* num_selected = nullptr;     // [num_tokens]
  // pages[i] has the positions from 64 · (first_page + i) on. A block may be split into several
  // calls with consecutive pages: only the first has `start`, only the last has `finish`. All calls
  // together have all pages that the tokens attend to: the first is first_visible(window, chunk,
  // first_position) / kPageTokens, and pages before it are skipped.
  const KvPage* pages = nullptr;
  int first_page = 0;
  int num_pages = 0;
  bool start = true;
  bool finish = true;
  // attention_scratch_bytes() bytes, 64-byte aligned. Keeps the rows' state between these calls.
  std::byte* scratch = nullptr;

  int num_rows() const { return num_tokens * num_heads; }
};

size_t attention_scratch_bytes(const AttentionArgs& args);

// The attention of one layer for one run of consecutive tokens of a sequence.
struct AttentionProblem {
  int num_tokens = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int num_runs = 1;  // in the batch, all of this size
  int num_threads = 1;
};

// How a run is split into tasks, each one call of the kernel. Does not change any bit.
struct AttentionSplit {
  int tokens_per_task = 1;
  int heads_per_task = 1;  // of one key/value head's query heads

  std::string to_string() const;
};

// Chooses enough rows per task to amortise packing and widening of pages, and enough tasks for
// threads to finish at about the same time.
AttentionSplit choose_split(const AttentionProblem& problem);

}  // namespace wideep::kernels
