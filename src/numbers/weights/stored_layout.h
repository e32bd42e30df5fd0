// SPDX-License-Identifier: Apache-2.0
//
// Recognises in which layout a module's matrix is stored, from the names, dtypes and shapes of its
// tensors. The layouts are in stored_matrix.h.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/coded_matrix.h"
#include "weights/tensor_source.h"

namespace wideep::weights {

// The form in which a matrix is packed: format and group together determine the bits of its
// products.
struct MatrixForm {
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  int group = 0;  // as in PackedShape

  kernels::PackedShape shape(int n, int k) const { return {format, n, k, group}; }
  bool operator==(const MatrixForm&) const = default;
};
inline MatrixForm default_form(kernels::WeightFormat format) {
  return {format, kernels::default_group(format)};
}

struct StoredLayout {
  enum class Kind {
    kMissing,
    kFloats,
    kFp8,
    kNvfp4,
    kMxfp4,
    kPackedIntegers,  // compressed-tensors' pack-quantized
    kSignedBytes,     // compressed-tensors' int-quantized
    kGptq,
    kAwq,
  };
  Kind kind = Kind::kMissing;
  // Names of tensors in StoredModule::source; empty if the source has no such tensor.
  std::string weight;         // floats or codes
  std::string scales;         // of groups, blocks, rows or the matrix
  std::string matrix_scale;   // of nvfp4
  std::string zero_points;    // packed like codes
  std::string column_groups;  // the group of each column (g_idx)
  std::string shape;          // n and k, where codes are packed
  bool inverse_matrix_scale = false;
  bool zero_points_are_middle = false;  // or there are none
  int bits = 0;                         // of a code
  int64_t num_groups = 1;               // of a row
  int64_t group = 0;                    // columns that share a scale; ≥ k: all
  // The format with equal values; floats if there is none.
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;

  std::vector<std::string> names() const;
  // The form of the matrix with k columns when it is packed as stored: its format, in groups that
  // the kernels have; bf16 where they have none.
  MatrixForm form(int64_t k) const;
};

// k: columns of the matrix; 0: only kind and names are wanted, which do not depend on it, and zero
// points are not read. Never fails: what does not fit is an error of StoredMatrix::open().
StoredLayout stored_layout(const StoredModule& module, int64_t k);

// The size of blocks if `blocks` of them cover `size`: the whole for one block, else the power of
// two; else the quotient; 0: there is none. For more than one block only one power of two fits.
int64_t block_size(int64_t size, int64_t blocks);

// The value of all bytes; nullopt: there are several, or none.
std::optional<std::byte> only_byte(std::span<const std::byte> bytes);
// A byte of zero points that all are the middle of codes of 4 or 8 bits, minus `less`.
std::byte middle_byte(int bits, unsigned less = 0);

// [a, b] for [a, 1, b, 1], as ModelOpt writes the scales of blocks; other shapes unchanged.
std::vector<int64_t> without_ones(const std::vector<int64_t>& shape);

}  // namespace wideep::weights
