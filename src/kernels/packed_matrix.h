// SPDX-License-Identifier: Apache-2.0
//
// The one form in which weight matrices are multiplied: panels of kPanelWidth output columns, so
// that the inner loop of a product reads memory strictly forward.
//
//   float32   [panel][k][16]                one cache line is 16 columns at one k
//   bfloat16  [panel][k / 2][16][2]         the pair (k, k + 1) side by side, as vdpbf16ps wants it
//
// Columns beyond N and an odd last k are zero. The packed form of a matrix is the same on every
// instruction set; a rank's slots and a host pool hold it, so that moving an expert is a plain
// copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace wideep::kernels {

// 16 float32 lanes: one AVX-512 register, two AVX2 registers, one cache line.
inline constexpr int kPanelWidth = 16;

// Where a packed matrix lies; does not own the bytes.
struct PackedMatrix {
  Dtype dtype = Dtype::kF32;        // kF32 or kBf16
  int n = 0;                        // output features (rows of the checkpoint's [n, k] matrix)
  int k = 0;                        // input features
  const std::byte* data = nullptr;  // 64-byte aligned, packed_bytes(dtype, n, k) long

  int num_panels() const { return (n + kPanelWidth - 1) / kPanelWidth; }
  size_t panel_bytes() const;
};

size_t packed_bytes(Dtype dtype, int n, int k);

// Packs rows of float32 [n, k] (row stride k) into `out`, rounding to bf16 where dtype says so.
// REQUIRES: out is 64-byte aligned and packed_bytes(dtype, n, k) long.
PackedMatrix pack_matrix(Dtype dtype, int n, int k, const float* rows, std::byte* out);

}  // namespace wideep::kernels
