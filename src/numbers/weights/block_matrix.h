// SPDX-License-Identifier: Apache-2.0
//
// Rows of GGUF tensors as a matrix. The rows of the matrix may be those of several tensors, in
// another order, with their columns in another order in steps of whole heads: converters of
// llama.cpp rearrange some matrices, and here that is undone without a copy of the matrix.
//
//   type                                    form with equal values
//   Q8_0, Q5_0, IQ4_NL, IQ4_XS              int8 in groups of 32
//   Q6_K                                    int8 in groups of 16
//   Q4_0                                    int4 in groups of 32
//   Q3_K                                    int4 in groups of 16
//   MXFP4                                   mxfp4
//   Q4_1, Q5_1                              int4h, int8h in groups of 32
//   Q4_K, Q5_K                              int4m, int8m in groups of 32
//   Q2_K                                    int4m in groups of 16
//
// Matrices that must have one form get the smallest that holds them all. So int4m in groups of 16
// holds Q2_K, Q3_K and Q4_K, and int8m all types with blocks of 256, with the products of whole
// numbers that their values are.
//
// Thread safety: immutable after it was made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tensor_files/gguf.h"
#include "weights/row_source.h"

namespace wideep::weights {

// A row of the matrix: row `index` of tensor `part`.
struct BlockRow {
  int32_t part = 0;
  int32_t index = 0;
};

struct BlockRows {
  // All have the same number of columns.
  std::vector<const tensor_files::GgufTensor*> parts;
  // Row i of the matrix is row first + i of parts[0], or map[i].
  int64_t first = 0;
  std::vector<BlockRow> map;
  // Columns [i · step, (i + 1) · step) of the matrix are stored from column columns[i] · step on;
  // empty: as stored.
  int column_step = 0;
  std::vector<int32_t> columns;
};

class BlockMatrix : public RowSource {
 public:
  // REQUIRES: the tensors have these rows, and k columns; they outlive the result.
  BlockMatrix(BlockRows rows, int n, int k);

  void to_float32(int begin, int end, float* out) const override;
  bool holds(const MatrixForm& form) const override;
  CodedSource::Rows rows(int begin, int end, const MatrixForm& form) const override;
  std::vector<std::span<const std::byte>> sources() const override;

  // Whether the form holds all values of the type. column_step: as in BlockRows; 0: as stored.
  static bool holds(tensor_files::BlockType type, const MatrixForm& form, int column_step = 0);
  // The form in which tensors of these types are packed if they must have one: the smallest that
  // holds them, or int8 in the smallest groups of all; bf16 for floats.
  static MatrixForm form_of(std::span<const tensor_files::BlockType> types, int column_step = 0);

 private:
  BlockRow row_of(int row) const;
  tensor_files::BlockType type_of(const BlockRow& row) const {
    return rows_.parts[static_cast<size_t>(row.part)]->type;
  }
  const std::byte* bytes_of(const BlockRow& row) const;
  CodedSource::Rows two_level_rows(int begin, int end, const MatrixForm& form) const;

  BlockRows rows_;
  int n_, k_;
};

}  // namespace wideep::weights
