// SPDX-License-Identifier: Apache-2.0
//
// The layout of a page of the KV cache for one key/value head: kPageTokens consecutive positions,
// in one of two forms.
//
// Panels: in the order in which attention multiplies elements, so that it reads a page strictly
// forward and copies nothing. `step` is the number of elements that one product instruction takes
// per lane: 1 for float32, 2 for bf16 and fp8.
//
//   keys    [key_dim / step][kPageTokens][step]     element (position p, dimension d) at
//                                                   ((d / step) · 64 + p) · step + d % step
//   values  [kPageTokens / step][padded dim][step]  at ((p / step) · padded + d) · step + p % step
//
// Rows: [kPageTokens, stride], the elements of a position are adjacent. For the latents of
// multi-head latent attention: they are the keys of all heads, and their first part is the values.
//
// Dimensions are padded with zeros: keys to whole steps, values to whole panels of 16. fp8 is e4m3
// with scale 1, saturating.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "kernels/packed_matrix.h"

namespace wideep::kernels {

// Positions in a page of the KV cache, which is also the block of the online softmax.
inline constexpr int kPageTokens = 64;

constexpr int panel_step(Dtype dtype) { return dtype == Dtype::kF32 ? 1 : 2; }
constexpr int padded_key_dim(int dim) { return (dim + 1) / 2 * 2; }
constexpr int padded_value_dim(int dim) {
  return (dim + kPanelWidth - 1) / kPanelWidth * kPanelWidth;
}
// The dtype in which attention multiplies a cache: fp8 is widened to bf16, which is exact.
constexpr Dtype product_dtype(Dtype cache) {
  return cache == Dtype::kF8E4M3 ? Dtype::kBf16 : cache;
}

constexpr size_t key_panel_bytes(Dtype dtype, int dim) {
  return size_t{kPageTokens} * static_cast<size_t>(padded_key_dim(dim)) * dtype_bytes(dtype);
}
constexpr size_t value_panel_bytes(Dtype dtype, int dim) {
  return size_t{kPageTokens} * static_cast<size_t>(padded_value_dim(dim)) * dtype_bytes(dtype);
}

// Rows to convert to panels.
struct PageRows {
  Dtype dtype = Dtype::kBf16;  // kF32 or kBf16
  const std::byte* rows = nullptr;
  size_t stride = 0;  // elements from row to row
  int count = 0;      // number of rows, at most kPageTokens
  int dim = 0;        // number of leading elements of a row to convert
};

}  // namespace wideep::kernels
