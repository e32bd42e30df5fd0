// SPDX-License-Identifier: Apache-2.0
//
// Rows of stored tensors as they are, or rounded, a range at a time.
//
// Thread safety: ranges may be loaded by several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/safetensors.h"

namespace wideep::weights {

// Rows [begin, end) of a tensor of shape [n, k] as float32 or bf16.
void copy_rows(const formats::TensorEntry& entry, int64_t begin, int64_t end, Dtype dtype,
               std::byte* out);

}  // namespace wideep::weights
