// SPDX-License-Identifier: Apache-2.0
//
// Matrix products with a packed weight matrix: y[i, n] = w.scale · Σ_k x[i, k] · w[n, k] + bias[n].
// And a gated MLP's two products at once: h[i, j] = f(x[i] · gate[j] + gate_bias[j],
// x[i] · up[j] + up_bias[j]) with one of the functions of Activation that have a gate. The scaled
// sum is rounded before the bias is added; a bias that is null costs nothing.
//
// Row invariance: every element of y is one chain of additions along k, in ascending order. It
// depends only on its row of x and its row of w: not on m, on other rows, on tiles, or on how the
// work is split. The step of the chain is
//   f32               acc = fma(x[k], w[k], acc)
//   bf16              acc = fma(x[k], w[k], acc), both widened to float32 first; or, where the
//                     processor has vdpbf16ps, that instruction's step over pairs of k
//   fp8               the same within a group from zero, then sum = fma(group scale, acc, sum)
//   int8, int4        exact in integers within a group, then sum = fma(acc, scale · x's scale, sum)
//   int4h, int8h      exact in integers within a group; with the sum of x's codes
//                     group = fma(acc, scale, minimum · sum), then sum = fma(group, x's scale, sum)
//   int4m, int8m      exact in integers within a group, of which 256 values make a block: from
//                     zero, block = fma(acc, scale, block) and lows = fma(minimum, sum, lows); then
//                     sum = fma(block, d · x's scale, sum) and sum = fma(lows, −dmin · x's scale,
//                     sum)
//   mxfp4, nvfp4      exact in integers (twice the element) within a group, of which four make a
//                     block: from zero, block = fma(acc, scale / 2, block), then
//                     sum = fma(block, x's scale, sum)
// So results are equal on all instruction sets, except that bf16 and fp8 differ where vdpbf16ps is
// used.
//
// Thread safety: pure functions; threads may compute disjoint panels of the same product.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/packed_matrix.h"

namespace wideep::kernels {

// m rows of operands in the type that w's format requires: float, Bf16 or quantised rows
// (weight_format.h). Either `first` and a stride, or an array of pointers, one per row.
struct InputRows {
  const void* first = nullptr;
  size_t stride = 0;  // bytes
  const void* const* pointers = nullptr;

  const void* operator[](int row) const {
    if (pointers != nullptr) return pointers[row];
    return static_cast<const std::byte*>(first) + static_cast<size_t>(row) * stride;
  }
  // The rows from `row` on.
  InputRows from(int row) const {
    if (pointers != nullptr) return {first, stride, pointers + row};
    return {(*this)[row], stride};
  }
};

// The rows of results, float32 or bf16.
struct OutputRows {
  void* first = nullptr;
  size_t stride = 0;  // bytes
  Dtype dtype = Dtype::kF32;
  void* const* pointers = nullptr;

  void* operator[](int row) const {
    if (pointers != nullptr) return pointers[row];
    return static_cast<std::byte*>(first) + static_cast<size_t>(row) * stride;
  }
};

// The processor for which a kernel is tuned (docs/kernels.md). Does not change results.
enum class Tuning { kZen4, kZen5 };
// kZen5 on AMD processors from family 26 on, else kZen4. AVX2 kernels always use kZen4.
Tuning best_tuning();

// GELU's tanh approximation is x / (1 + exp(−x · (kGeluLinear + kGeluCubic · x²))): 2 √(2/π), and
// 0.044715 times that.
inline constexpr float kGeluLinear = 1.59576912f;
inline constexpr float kGeluCubic = 0.0713548163f;

// The function of an MLP, from the products `gate` and `up`.
struct Activation {
  enum class Kind {
    kSilu,           // silu(gate) · up
    kClampedSwiglu,  // (u + 1) · g · σ(alpha · g), g = min(gate, limit), u = up within ±limit
    kGeluTanh,       // gelu(gate) · up, with the tanh approximation (arXiv:1606.08415)
    kLimitedSilu,    // min(silu(gate), limit) · up, up within ±limit
    kClampedSilu,    // silu(min(gate, limit)) · up, up within ±limit
    kSquaredRelu,    // max(up, 0)²: there is no gate
  };
  Kind kind = Kind::kSilu;
  float alpha = 1.702f;  // kClampedSwiglu only; the defaults are GPT-OSS's
  float limit = 7.0f;

  bool has_gate() const { return kind != Kind::kSquaredRelu; }
};

struct MatmulArgs {
  int m = 0;
  InputRows x;
  PackedMatrix w;
  // The panels of w to compute: [first_panel, last_panel). Threads split a product along n.
  int first_panel = 0;
  int last_panel = 0;
  OutputRows y;  // written at the columns of those panels only
  Tuning tuning = best_tuning();
  // Panels, of w's format and k, that the thread will read after these; they are prefetched. Null:
  // w's panels from last_panel on.
  const std::byte* next = nullptr;
  const float* bias = nullptr;  // [w.n()], or null: none
};

struct GatedMatmulArgs {
  int m = 0;
  InputRows x;
  PackedMatrix gate;  // same shape as up
  PackedMatrix up;
  int first_panel = 0;
  int last_panel = 0;
  OutputRows h;
  Tuning tuning = best_tuning();
  const std::byte* next_gate = nullptr;  // see MatmulArgs::next
  const std::byte* next_up = nullptr;
  const float* gate_bias = nullptr;  // [gate.n()], or null: none
  const float* up_bias = nullptr;
  Activation activation;  // has a gate
};

// Products with more rows than this are computed in several runs of rows.
inline constexpr int kMaxMatmulRows = 96;

// How a kernel blocks a product (its tile sizes). Does not change results.
struct MatmulChoice {
  int tile_rows = 1;    // rows of x whose sums are in registers at the same time
  int tile_panels = 1;  // panels of w whose sums are in registers at the same time
  int rows = 1;     // rows of x per run: they all use a block of w before the next block is read
  int block_k = 0;  // values of k per block

  std::string to_string() const;
};
// tile_rows and tile_panels: as many as fit the registers of the instruction set.
MatmulChoice choose_matmul(const PackedShape& w, int tile_rows, int tile_panels);

}  // namespace wideep::kernels
