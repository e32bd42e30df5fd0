// SPDX-License-Identifier: Apache-2.0
//
// Rows of GGUF tensors as a matrix. The rows of the matrix may be those of several tensors, in
// another order, with their columns in another order in steps of whole heads: converters of
// llama.cpp rearrange some matrices, and here that is undone without a copy of the matrix.
//
//   type                                    form with equal values (formats of 4 bits take two
//                                           codes a byte)
//   Q8_0, Q5_0, IQ4_NL, IQ4_XS              int8 in groups of 32
//   Q6_K                                    int8 in groups of 16
//   Q4_0                                    int4 in groups of 32
//   Q3_K                                    int4 in groups of 16
//   MXFP4                                   mxfp4
//   Q4_K                                    int4m
//
// The others are packed in the nearest format with at least as many bits: Q2_K as int4 in groups of
// 16, Q4_1, Q5_1 and Q5_K as int8 in groups of 32.
//
// Thread safety: immutable after it was made.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "formats/gguf.h"
#include "weights/row_source.h"

namespace wideep::weights {

// A row of the matrix: row `index` of tensor `part`.
struct BlockRow {
  int32_t part = 0;
  int32_t index = 0;
};

struct BlockRows {
  // All have the same number of columns.
  std::vector<const formats::GgufTensor*> parts;
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
  CodedSource::Rows rows(int begin, int end) const override;
  MatrixForm form() const override { return form_; }
  std::vector<std::span<const std::byte>> sources() const override;

  // The form of a tensor of this type with equal values; bf16: there is none, or it has floats.
  static MatrixForm form_of(formats::BlockType type);
  // The form in which it is packed: the same, or the nearest one.
  static MatrixForm packed_form(formats::BlockType type);

 private:
  BlockRow row_of(int row) const;
  const std::byte* bytes_of(const BlockRow& row) const;
  CodedSource::Rows rows_of_minimums(int begin, int end) const;

  BlockRows rows_;
  int n_, k_;
  MatrixForm form_;
};

}  // namespace wideep::weights
