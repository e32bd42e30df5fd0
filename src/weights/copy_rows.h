// SPDX-License-Identifier: Apache-2.0
//
// Copies rows of stored tensors and converts their elements.
//
// Thread safety: several threads may copy different rows of one tensor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/safetensors.h"

namespace wideep::weights {

// Copies rows [begin, end) of a tensor of shape [n, k] as float32 or bf16 (rounded to nearest
// even). REQUIRES: the tensor is F32, BF16 or F16; dtype is kF32 or kBf16; out has room for the
// rows.
void copy_rows(const formats::TensorEntry& entry, int64_t begin, int64_t end, Dtype dtype,
               std::byte* out);

}  // namespace wideep::weights
