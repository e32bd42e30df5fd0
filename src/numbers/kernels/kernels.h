// SPDX-License-Identifier: Apache-2.0
//
// One table of kernels per instruction set, and the choice between them.
//
// Row invariance: the result for a row depends on that row and the weights only. No kernel locks or
// logs. Products keep one buffer per thread for the rows of x, which grows to the largest product;
// no kernel allocates anything else.
//
// Thread safety: any thread, on disjoint outputs.
//
//   WIDEEP_TRY_ASSIGN(const Kernels* kernels, select_kernels(std::getenv("WIDEEP_ISA")));
//   kernels->rms_norm(x, weight, eps, hidden, y);
#pragma once

#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "kernels/attention.h"
#include "kernels/convolution.h"
#include "kernels/delta_rule.h"
#include "kernels/indexer.h"
#include "kernels/matmul.h"
#include "kernels/quantized_rows.h"
#include "kernels/reduce.h"
#include "kernels/row_format.h"
#include "wideep/status.h"

namespace wideep::kernels {

struct Kernels {
  std::string_view isa;          // "avx512", "avx2", "ref"
  std::string_view description;  // for logs
  bool (*supported)();           // whether this processor can run it

  // See matmul.h and attention.h.
  void (*matmul)(const MatmulArgs& args);
  void (*gated_matmul)(const GatedMatmulArgs& args);
  // See quantized_rows.h. x: [shape.k] float or Bf16; out: shape.bytes(), 4-byte aligned.
  void (*quantize_row)(Dtype x_dtype, const void* x, const QuantizedRowShape& shape,
                       std::byte* out);
  void (*attention)(const AttentionArgs& args);

  // Store one position into a page of the KV cache (kv_page.h), rounded to dtype: kF32, kBf16 or
  // kF8E4M3. x: [dim]; slot: index of the position in the page. Padding of rows is not written.
  void (*store_key)(Dtype dtype, const float* x, int dim, int slot, std::byte* panel);
  void (*store_value)(Dtype dtype, const float* x, int dim, int slot, std::byte* panel);
  void (*store_row)(Dtype dtype, const float* x, int dim, std::byte* row);

  // Convert a page of rows to panels. Positions from page.count on are not written, except that in
  // value panels an odd count clears the position after the last.
  void (*pack_keys)(const PageRows& page, std::byte* panel);
  void (*pack_values)(const PageRows& page, std::byte* panel);

  // fp8 e4m3 to bf16, exactly.
  void (*widen_fp8)(const std::byte* fp8, size_t count, Bf16* out);

  // See indexer.h, delta_rule.h and convolution.h.
  void (*index_scores)(const IndexArgs& args);
  void (*delta_rule)(const DeltaRuleArgs& args);
  void (*convolve)(const ConvolutionArgs& args);

  // y[i] = x[i] / sqrt(mean(x²) + eps) · weight[i], i < n; without the factor if weight is null. y
  // may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
  // y[i] = x[i] / sqrt(Σx² + eps), i < n. y may be x.
  void (*l2_normalize)(const float* x, float eps, int n, float* y);

  // With σ(x) = 1 / (1 + e^−x) and silu(x) = x · σ(x), i < n; y may be any of the inputs:
  // y[i] = silu(x[i]);  y[i] = silu(gate[i]) · x[i];  y[i] = σ(gate[i]) · x[i];  x[i] *= scale.
  void (*silu)(const float* x, int n, float* y);
  void (*silu_multiply)(const float* gate, const float* x, int n, float* y);
  void (*sigmoid_multiply)(const float* gate, const float* x, int n, float* y);
  void (*scale_row)(float scale, int n, float* x);

  // Rotary embedding: rotates pairs of x [dim] in place. cos_sin: [dim], the cosines of the angles,
  // then the sines. Pairs are (0, 1), (2, 3) ... if interleaved, else (i, i + dim / 2).
  void (*rotate)(const float* cos_sin, int dim, bool interleaved, float* x);

  // Encode and decode rows for dispatch and combine (row_format.h). x and y: [hidden] float or
  // Bf16; row: row_bytes(format, hidden) bytes, 4-byte aligned.
  void (*encode_row)(Dtype x_dtype, const void* x, RowFormat format, int hidden, std::byte* row);
  void (*decode_row)(RowFormat format, const std::byte* row, int hidden, Dtype y_dtype, void* y);

  // See reduce.h.
  void (*reduce_experts)(const ReduceArgs& args);

  // y[i] = fma(scale, x[i], y[i]), i < n, with x float or Bf16.
  void (*add_scaled)(Dtype x_dtype, const void* x, float scale, int n, float* y);

  // The index of the largest of x [n], n ≥ 1; of equal ones the first. NaN is ignored; all NaN: 0.
  int (*argmax)(const float* x, int n);
  // Σ e^(x[i] − largest), i < n, with float32 differences, each term within 2 ulp (for differences
  // below −87 and NaN: at most e^−87). The same bits on all instruction sets except ref.
  double (*sum_of_exp)(const float* x, float largest, int n);

  // Σ (x[i] − scale · code)², i < n, the squared error of int4 codes with that scale: code is
  // x[i] · inverse rounded to the nearest, clamped to −8 … 7. Sums up every kPanelWidth-th element
  // separately, then adds the upper half of the sums to the lower half until one is left: the same
  // bits on all instruction sets.
  float (*int4_error)(const float* x, int n, float scale, float inverse);

  // float32 to bf16, to the nearest, ties to even. x, y: [n].
  void (*to_bf16)(const float* x, int n, Bf16* y);

  // Transposes kPanelWidth rows of num_words 4-byte words each: out[j][row] = word j of the row.
  // rows: row_bytes apart, any alignment; out: 64-byte aligned. next: rows of the next call, which
  // are prefetched; or null.
  void (*interleave_rows)(const std::byte* rows, size_t row_bytes, int num_words, std::byte* out,
                          const std::byte* next);
};

// All compiled tables, best first; "ref" is last and runs on every processor.
const std::vector<const Kernels*>& all_kernels();

// The table named `isa`, or the best one this processor supports when isa is null or empty.
// Errors (invalid input): no such table, or this processor cannot run it; the message lists the
// choices.
Result<const Kernels*> select_kernels(const char* isa);

}  // namespace wideep::kernels
