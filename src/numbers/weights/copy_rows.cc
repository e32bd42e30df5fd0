// SPDX-License-Identifier: Apache-2.0
//
// plain_rows() deals with strides: it points into the file if the rows are contiguous there, else
// it gathers them. Copies of the same dtype are then one memcpy; others go through float32, a row
// at a time, so that the working memory stays small. A transposed tensor is gathered 128 rows at a
// time: one row would take a single element of each cache line that it reads.
#include "weights/copy_rows.h"

#include <algorithm>
#include <cstring>

#include "base/try.h"
#include "weights/checkpoint.h"
#include "weights/finite.h"

namespace wideep::weights {

using tensor_files::TensorEntry;

namespace {

constexpr int64_t kRowsOfTransposed = 128;  // gathered together: they fill whole cache lines

// The elements of plain rows as a tensor of shape [rows, columns].
TensorEntry entry_of(const PlainRows& rows, const TensorSlice& slice, int64_t count) {
  const size_t bytes = static_cast<size_t>(count * slice.columns) * dtype_bytes(slice.entry->dtype);
  return {slice.entry->dtype, {count, slice.columns}, {rows.data, bytes}};
}

}  // namespace

std::span<const std::byte> source_bytes(const TensorSlice& slice) {
  const size_t size = dtype_bytes(slice.entry->dtype);
  const size_t bytes = static_cast<size_t>(slice.num_elements()) * size;
  const size_t first = static_cast<size_t>(slice.first) * size;
  return slice.entry->bytes.subspan(std::min(first, slice.entry->bytes.size() - bytes), bytes);
}

PlainRows plain_rows(const TensorSlice& slice, int64_t begin, int64_t end) {
  const auto size = static_cast<int64_t>(dtype_bytes(slice.entry->dtype));
  const std::byte* from =
      slice.entry->bytes.data() + (slice.first + begin * slice.row_stride) * size;
  PlainRows rows;
  rows.data = from;
  if (slice.is_contiguous() || begin == end) return rows;
  const auto width = static_cast<size_t>(slice.columns * size);
  rows.gathered.resize(static_cast<size_t>(end - begin) * width);
  rows.data = rows.gathered.data();
  const auto to = [&](int64_t row) {
    return rows.gathered.data() + static_cast<size_t>(row) * width;
  };
  if (slice.column_stride == 1) {
    for (int64_t row = 0; row < end - begin; ++row) {
      std::memcpy(to(row), from + row * slice.row_stride * size, width);
    }
    return rows;
  }
  // Transposed: rows inside, so that the file is read forward.
  for (int64_t column = 0; column < slice.columns; ++column) {
    const std::byte* element = from + column * slice.column_stride * size;
    for (int64_t row = 0; row < end - begin; ++row) {
      std::memcpy(to(row) + column * size, element + row * slice.row_stride * size,
                  static_cast<size_t>(size));
    }
  }
  return rows;
}

Result<PlainRows> finite_rows(const TensorSlice& slice, int64_t begin, int64_t end,
                              const std::string& where) {
  PlainRows rows = plain_rows(slice, begin, end);
  const int64_t count = (end - begin) * slice.columns;
  WIDEEP_TRY(
      check_finite(entry_of(rows, slice, end - begin), 0, count, where, begin * slice.columns));
  return rows;
}

void copy_rows(const TensorSlice& slice, int64_t begin, int64_t end, Dtype dtype, std::byte* out) {
  const auto width = static_cast<size_t>(slice.columns);
  if (slice.entry->dtype == dtype) {
    const PlainRows rows = plain_rows(slice, begin, end);
    const size_t bytes = static_cast<size_t>(end - begin) * width * dtype_bytes(dtype);
    if (bytes > 0) std::memcpy(out, rows.data, bytes);
    return;
  }
  // A row at a time takes little working memory; of a transposed tensor several share what is read.
  const int64_t step = slice.column_stride == 1 ? 1 : kRowsOfTransposed;
  std::vector<float> values(static_cast<size_t>(std::min(step, end - begin)) * width);
  for (int64_t i = begin; i < end; i += step) {
    const int64_t count = std::min(step, end - i);
    values.resize(static_cast<size_t>(count) * width);
    const PlainRows rows = plain_rows(slice, i, i + count);
    to_float32(entry_of(rows, slice, count), values.data());
    if (dtype == Dtype::kF32) {
      out = std::copy_n(reinterpret_cast<const std::byte*>(values.data()),
                        values.size() * sizeof(float), out);
    } else {
      // memcpy, because `out` need not be aligned.
      for (const float value : values) {
        const Bf16 rounded(value);
        std::memcpy(out, &rounded, sizeof(rounded));
        out += sizeof(rounded);
      }
    }
  }
}

}  // namespace wideep::weights
