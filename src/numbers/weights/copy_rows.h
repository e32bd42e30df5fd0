// SPDX-License-Identifier: Apache-2.0
//
// Copies rows of stored tensors and converts their elements.
//
// Thread safety: several threads may copy different rows of one tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor_files/safetensors.h"
#include "weights/tensor_source.h"
#include "wideep/status.h"

namespace wideep::weights {

// Rows of a slice without gaps, in the stored dtype: in the file, or in memory of its own.
struct PlainRows {
  const std::byte* data = nullptr;
  std::vector<std::byte> gathered;
};

// The bytes of the stored tensor that stand for the slice when reading is planned: those of its
// rows, or as many at a place in proportion if others lie between them.
std::span<const std::byte> source_bytes(const TensorSlice& slice);

// Rows [begin, end) of a slice. REQUIRES: the rows exist.
PlainRows plain_rows(const TensorSlice& slice, int64_t begin, int64_t end);

// As plain_rows. where: the begin of the error message, file and tensor.
// Errors (invalid input): a value that is not finite, with its row and column in the slice.
Result<PlainRows> finite_rows(const TensorSlice& slice, int64_t begin, int64_t end,
                              const std::string& where);

// Copies rows [begin, end) of a slice as float32 or bf16 (rounded to nearest even).
// REQUIRES: the tensor is F32, BF16 or F16; dtype is kF32 or kBf16; out has room for the rows.
void copy_rows(const TensorSlice& slice, int64_t begin, int64_t end, Dtype dtype, std::byte* out);

}  // namespace wideep::weights
