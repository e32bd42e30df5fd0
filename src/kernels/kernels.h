// SPDX-License-Identifier: Apache-2.0
//
// One table of kernels per instruction set, best first, and the choice between them.
//
// Every kernel is row invariant: what it computes for a row depends on that row and the weights
// only. No kernel locks or logs, and none allocates but the memory in which a thread's products lay
// out their rows, which grows to the largest product's and is kept. All are safe to call from any
// thread on disjoint outputs.
//
//   WIDEEP_TRY_ASSIGN(const Kernels* kernels, select_kernels(std::getenv("WIDEEP_ISA")));
//   kernels->rms_norm(x, weight, eps, hidden, y);
#pragma once

#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/quantized_rows.h"
#include "kernels/reduce.h"
#include "kernels/row_format.h"
#include "wideep/status.h"

namespace wideep::kernels {

struct Kernels {
  std::string_view isa;          // "avx512", "avx2", "ref"
  std::string_view description;  // for people
  bool (*supported)();           // by the processor we run on

  // See matmul.h and attention.h.
  void (*matmul)(const MatmulArgs& args);
  void (*gated_matmul)(const GatedMatmulArgs& args);
  // See quantized_rows.h. x: [shape.k] float or Bf16; out: shape.bytes(), 4-byte aligned.
  void (*quantize_row)(Dtype x_dtype, const void* x, const QuantizedRowShape& shape,
                       std::byte* out);
  void (*attention)(const AttentionArgs& args);

  // Writes into pages of the KV cache (kv_page.h), rounding to their dtype: kF32, kBf16, kF8E4M3.
  // x: [dim]; slot: position in the page. A row's padding is left as it is.
  void (*store_key)(Dtype dtype, const float* x, int dim, int slot, std::byte* panel);
  void (*store_value)(Dtype dtype, const float* x, int dim, int slot, std::byte* panel);
  void (*store_row)(Dtype dtype, const float* x, int dim, std::byte* row);

  // Rows of a page as panels; rows beyond page.count leave their place as it is, but for the odd
  // neighbour of the last, which is cleared in value panels.
  void (*pack_keys)(const PageRows& page, std::byte* panel);
  void (*pack_values)(const PageRows& page, std::byte* panel);

  // fp8 e4m3 to bf16, exactly.
  void (*widen_fp8)(const std::byte* fp8, size_t count, Bf16* out);

  // y[i] = x[i] / sqrt(mean(x²) + eps) · weight[i], i < n. y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);

  // Rotates pairs of x: [dim] in place by the angles whose cosines and then sines cos_sin: [dim]
  // holds; pairs are (0, 1), (2, 3) ... when interleaved, else (i, i + dim / 2).
  void (*rotate)(const float* cos_sin, int dim, bool interleaved, float* x);

  // Rows that travel, see row_format.h. x and y: [hidden] float or Bf16; row: row_bytes(format,
  // hidden), 4-byte aligned. REQUIRES: hidden is a multiple of row_group(format).
  void (*encode_row)(Dtype x_dtype, const void* x, RowFormat format, int hidden, std::byte* row);
  void (*decode_row)(RowFormat format, const std::byte* row, int hidden, Dtype y_dtype, void* y);

  // See reduce.h.
  void (*reduce_experts)(const ReduceArgs& args);

  // y[i] = fma(scale, x[i], y[i]), i < n, with x float or Bf16.
  void (*add_scaled)(Dtype x_dtype, const void* x, float scale, int n, float* y);

  // The first of the largest of x: [n], n >= 1; NaN is none, unless all are: 0 then.
  int (*largest_at)(const float* x, int n);
  // Σ e^(x[i] − largest), i < n, of float32 differences, each to within 2 ulp (below −87, and
  // of NaN: at most e^−87). The same bits with all instruction sets but ref.
  double (*sum_of_exp)(const float* x, float largest, int n);

  // Σ (x[i] − scale · code)², i < n, of int4 codes with that scale: x[i] · inverse to the nearest,
  // −8 … 7. kPanelWidth sums of every kPanelWidth-th, the upper half of which is added to the lower
  // one until one is left: the same bits with all instruction sets.
  float (*int4_error)(const float* x, int n, float scale, float inverse);

  // Float32 to bf16 (nearest even), i < n.
  void (*to_bf16)(const float* x, int n, Bf16* y);

  // kPanelWidth rows of num_words 4-byte words each, row_bytes apart at any address, side by side:
  // out[j][row] = word j of the row. out: 64-byte aligned. next: as many bytes that will be needed
  // soon and are fetched meanwhile; null: none.
  void (*interleave_rows)(const std::byte* rows, size_t row_bytes, int num_words, std::byte* out,
                          const std::byte* next);
};

// All tables compiled in, best first; "ref" is last and runs everywhere.
const std::vector<const Kernels*>& all_kernels();

// The table named `isa`, or the best one this processor supports when isa is null or empty.
// Errors (invalid input): no such table, or the processor lacks its instructions; lists the
// choices.
Result<const Kernels*> select_kernels(const char* isa);

}  // namespace wideep::kernels
