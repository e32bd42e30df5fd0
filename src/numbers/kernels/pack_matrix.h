// SPDX-License-Identifier: Apache-2.0
//
// Packs float32 matrices into any weight format.
//
// Thread safety: pure function.
#pragma once

#include <cstddef>

#include "kernels/packed_matrix.h"

namespace wideep::kernels {

// Packs float32 rows [n, k] (row stride k), rounding or quantising to the format.
// REQUIRES: out is 64-byte aligned and has shape.bytes() bytes.
PackedMatrix pack_matrix(const PackedShape& shape, const float* rows, std::byte* out);

}  // namespace wideep::kernels
