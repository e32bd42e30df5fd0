// SPDX-License-Identifier: Apache-2.0
//
// y[i, n] = w.scale · Σ_k x[i, k] · w[n, k], with w packed; and the same for the two halves of a
// gated MLP at once, h[i, j] = silu(x[i] · gate[j]) · (x[i] · up[j]).
//
// Row invariance: every element is one chain of additions along k, in ascending order. It depends
// on its own row of x and its own row of w only, never on m, on the rows beside it, on tiles, or on
// how the work is cut. The chain's step is
//   f32               acc = fma(x[k], w[k], acc)
//   bf16              acc = fma(x[k], w[k], acc), both widened to float32 first; or, where the
//                     processor has vdpbf16ps, that instruction's step over pairs of k
//   fp8               the same within a group from zero, then sum = fma(group scale, acc, sum)
//   int8, int4        exact in integers within a group, then sum = fma(acc, scale · x's scale, sum)
//   mxfp4, nvfp4      exact in integers (twice the element) within a group, of which four make a
//                     block: from zero, block = fma(acc, scale / 2, block), then
//                     sum = fma(block, x's scale, sum)
// so results are equal on every instruction set, but those of bf16 and fp8 on all but one.
#pragma once

#include <cstddef>
#include <string>

#include "kernels/packed_matrix.h"

namespace wideep::kernels {

// m rows of operands as w's format takes them: float, Bf16 or quantised rows (weight_format.h).
// Either `first` and a stride, or an array of pointers, one a row.
struct InputRows {
  const void* first = nullptr;
  size_t stride = 0;  // bytes
  const void* const* pointers = nullptr;

  const void* operator[](int row) const {
    if (pointers != nullptr) return pointers[row];
    return static_cast<const std::byte*>(first) + static_cast<size_t>(row) * stride;
  }
};

// Where results go, as float32 or bf16.
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

// Which processor a kernel's choices suit (docs/kernels.md). Has no influence on results.
enum class Tuning { kZen4, kZen5 };
// Zen 5's on AMD's processors from family 26 on, elsewhere Zen 4's. AVX2 has Zen 4's alone.
Tuning best_tuning();

struct MatmulArgs {
  int m = 0;
  InputRows x;
  PackedMatrix w;
  // Which panels of w to compute: [first_panel, last_panel). Threads split a product along n.
  int first_panel = 0;
  int last_panel = 0;
  OutputRows y;  // written at the columns of those panels only
  Tuning tuning = best_tuning();
  // Panels of w's format and k that will be read after these and are to be fetched meanwhile; null:
  // w's own beyond last_panel are.
  const std::byte* next = nullptr;
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
};

// More rows than this are multiplied piece after piece.
inline constexpr int kMaxMatmulRows = 96;

// How a product is cut: what a kernel does with the sizes it gets. Has no influence on results.
struct MatmulChoice {
  int tile_rows = 1;    // rows of x whose sums are in registers at once
  int tile_panels = 1;  // panels of w beside them
  int rows = 1;         // rows of x that use a piece of w before the next piece is read; at most
                        // kMaxMatmulRows
  int block_k = 0;      // k of such a piece

  std::string to_string() const;
};
// tile_rows and tile_panels: what the instruction set's registers hold.
MatmulChoice choose_matmul(const PackedShape& w, int tile_rows, int tile_panels);

}  // namespace wideep::kernels
