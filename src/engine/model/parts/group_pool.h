// SPDX-License-Identifier: Apache-2.0
//
// Pooling of a group of rows: for every element a softmax of gates decides how much each row gives.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace wideep::model {

// Elements [first, first + count) of a cached row, float32 or bf16, as floats.
void read_cached_row(Dtype dtype, const std::byte* row, int first, int count, float* to);

// rows: [count, 2 · dim], each its values, then its gates. Writes `dim` elements. The bits depend
// on the rows alone.
void pool_group(const float* rows, int count, int dim, float* pooled);

}  // namespace wideep::model
