// SPDX-License-Identifier: Apache-2.0
//
// Packing of float32 and bf16 matrices: their packed form has the same elements in another order.
// Uses the best instruction set of this processor and runs at memory speed.
//
// Thread safety: pure functions.
#pragma once

#include "kernels/packed_matrix.h"

namespace wideep::kernels {

// rows: [shape.n, shape.k] float32 or bf16 as the format says, row stride k, any alignment.
// REQUIRES: shape.format is kF32 or kBf16; out is 64-byte aligned and has shape.bytes() bytes.
void interleave(const PackedShape& shape, const std::byte* rows, std::byte* out);

// As interleave, from float32 rows, which are rounded to bf16. REQUIRES: shape.format is kBf16.
void interleave_rounded(const PackedShape& shape, const float* rows, std::byte* out);

}  // namespace wideep::kernels
