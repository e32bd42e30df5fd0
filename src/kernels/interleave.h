// SPDX-License-Identifier: Apache-2.0
//
// Packing of the formats whose packed form is the rows' own elements in another order: float32 and
// bf16. At memory speed, with the best instructions of this processor.
#pragma once

#include "kernels/packed_matrix.h"

namespace wideep::kernels {

// rows: [shape.n, shape.k] of the format's own elements, row stride k, at any address.
// REQUIRES: shape.format is kF32 or kBf16; out is 64-byte aligned and shape.bytes() long.
void interleave(const PackedShape& shape, const std::byte* rows, std::byte* out);

// The same from float32 rows into bf16.
void interleave_rounded(const PackedShape& shape, const float* rows, std::byte* out);

}  // namespace wideep::kernels
