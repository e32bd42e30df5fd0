// SPDX-License-Identifier: Apache-2.0
//
// The codes, scales and zero points of a stored matrix, in the mapped file, and their conversion to
// rows that the kernels take (kernels/coded_matrix.h).
//
//   order         codes
//   rows          as the kernels have them, row by row, possibly with bytes between rows
//   signed bytes  I8 [n, k]
//   lines         GPTQ: I32 [k · bits / 32, n], the lowest bits first along k
//   awq lines     AWQ: I32 [k, n / 8]; nibble i of a word is row 0, 2, 4, 6, 1, 3, 5, 7
//   columns       fp8 bytes [k, n]
//
// The value of an integer code is scale · (code − zero point). Codes of 4 bits whose zero points
// are not all 8 become int8 codes (difference + 128), and so keep their value exactly.
//
// Thread safety: immutable after it was filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/coded_matrix.h"
#include "tensor_files/safetensors.h"

namespace wideep::weights {

// The scale of (stored row r, group g) is element first + r / rows_each · row_stride +
// g · column_stride of the tensor.
struct ScaleGrid {
  const tensor_files::TensorEntry* entry = nullptr;
  int64_t first = 0;
  int64_t rows_each = 1;
  int64_t row_stride = 0;
  int64_t column_stride = 0;

  int64_t index(int64_t row, int64_t group) const {
    return first + row / rows_each * row_stride + group * column_stride;
  }
  const std::byte* at(int64_t row) const { return entry->bytes.data() + index(row, 0); }
};

struct CodedSource {
  enum class Order { kRows, kSignedBytes, kLines, kAwqLines, kColumns };
  // Zero points: packed into words along n, as [words, groups] or [groups, words].
  enum class Zeros { kNone, kWordsByGroups, kGroupsByWords, kAwq };

  // Some rows in the kernels' form, which points to the file or to the vectors.
  struct Rows {
    kernels::CodedMatrix view;
    std::vector<std::byte> codes, scales;
    std::vector<std::byte> minimums;  // of int4m and int8m
    std::vector<float> block_scales;
  };
  // Rows [begin, end). REQUIRES: has_format().
  Rows rows(int begin, int end) const;
  // The same as float32. out: [end − begin][k].
  void to_float32(int begin, int end, float* out) const;
  // Whether all codes of a group mean 0. REQUIRES: integers or fp8.
  bool is_zero(int row, int64_t group_index) const;
  // Differences of 8-bit codes and zero points need 9 bits, so that no format has them.
  bool has_format() const { return kernels::is_coded(format); }
  int64_t stored_row(int row) const { return first_row + row * row_step; }

  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  int bits = 0;
  int k = 0;
  int64_t group = 0;
  int64_t num_groups = 1;
  float scale = 1.0f;  // of the matrix

  Order order = Order::kRows;
  const std::byte* codes = nullptr;
  int64_t stride = 0;  // bytes from a row, line or column to the next
  int64_t first_row = 0;
  int64_t row_step = 1;

  ScaleGrid scales;
  Zeros zeros = Zeros::kNone;
  const std::byte* zero_words = nullptr;
  int64_t zero_stride = 0;  // words from a line to the next
  int zero_offset = 0;      // what was subtracted before packing: 1 for GPTQ

 private:
  int zero_point(int64_t row, int64_t group_index) const;
  void unpack(int begin, int end, uint8_t* out) const;
  std::vector<float> float_scales(int begin, int end) const;
  std::vector<std::byte> gathered_codes(int begin, int end) const;
};

}  // namespace wideep::weights
