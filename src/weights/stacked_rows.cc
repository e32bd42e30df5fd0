// SPDX-License-Identifier: Apache-2.0
#include "weights/stacked_rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/interleave.h"
#include "weights/checkpoint.h"

namespace wideep::weights {

using formats::TensorEntry;
using kernels::kPanelWidth;
using kernels::PackedShape;
using kernels::WeightFormat;

namespace {

bool is_stored_as(const TensorEntry& entry, WeightFormat format) {
  return (format == WeightFormat::kF32 && entry.dtype == Dtype::kF32) ||
         (format == WeightFormat::kBf16 && entry.dtype == Dtype::kBf16);
}

// The part of a matrix that is these rows: a matrix of its own, in the same form.
PackedShape rows_of(const PackedShape& shape, int64_t first_row, int64_t end_row) {
  PackedShape part = shape;
  part.n = static_cast<int>(end_row - first_row);
  return part;
}

}  // namespace

void copy_rows(const TensorEntry& entry, int64_t begin, int64_t end, Dtype dtype, std::byte* out) {
  const int64_t k = entry.shape[1];
  if (entry.dtype == dtype) {
    const size_t row_bytes = static_cast<size_t>(k) * dtype_bytes(dtype);
    const auto rows = entry.bytes.subspan(static_cast<size_t>(begin) * row_bytes,
                                          static_cast<size_t>(end - begin) * row_bytes);
    if (!rows.empty()) std::memcpy(out, rows.data(), rows.size());
    return;
  }
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t i = begin; i < end; ++i) {
    to_float32(entry, i * k, k, row.data());
    if (dtype == Dtype::kF32) {
      out = std::copy_n(reinterpret_cast<const std::byte*>(row.data()), row.size() * sizeof(float),
                        out);
    } else {
      for (const float value : row) {
        const Bf16 rounded(value);
        std::memcpy(out, &rounded, sizeof(rounded));
        out += sizeof(rounded);
      }
    }
  }
}

void StackedRows::add(const TensorEntry& entry) {
  const int64_t first = parts_.empty() ? 0 : parts_.back().end_row;
  parts_.push_back({&entry, first, first + entry.shape[0]});
}

void StackedRows::pack(const PackedShape& shape, int64_t begin, int64_t end, std::byte* out) const {
  const int64_t last_row = std::min<int64_t>(end * kPanelWidth, shape.n);
  if (panels_together(shape) > 1) {
    pack_floats(shape, begin * kPanelWidth, last_row,
                out + static_cast<size_t>(begin) * shape.panel_bytes());
    return;
  }
  for (int64_t row = begin * kPanelWidth; row < last_row;) {
    const Part& part = part_of(row);
    // All whole panels of this part, or else the one panel that other parts share.
    int64_t end_row = std::min(last_row, part.end_row);
    if (end_row < shape.n) end_row -= end_row % kPanelWidth;
    const bool whole = end_row > row;
    if (!whole) end_row = std::min(row + kPanelWidth, last_row);
    std::byte* panel = out + static_cast<size_t>(row / kPanelWidth) * shape.panel_bytes();
    if (whole && is_stored_as(*part.entry, shape.format)) {
      const size_t row_bytes = static_cast<size_t>(k_) * dtype_bytes(part.entry->dtype);
      kernels::interleave(
          rows_of(shape, row, end_row),
          part.entry->bytes.data() + static_cast<size_t>(row - part.first_row) * row_bytes, panel);
    } else {
      pack_floats(shape, row, end_row, panel);
    }
    row = end_row;
  }
}

int64_t StackedRows::panels_together(const PackedShape& shape) {
  switch (shape.format) {
    case WeightFormat::kFp8:
      return std::max(shape.group / kPanelWidth, 1);
    case WeightFormat::kNvfp4:
      return std::max(shape.num_panels(), 1);
    default:
      return 1;
  }
}

// A few panels at a time, so that the float32 rows stay in the cache.
void StackedRows::pack_floats(const PackedShape& shape, int64_t first_row, int64_t end_row,
                              std::byte* out) const {
  const int64_t panels = panels_together(shape), step = panels * kPanelWidth;
  std::vector<float> rows(static_cast<size_t>(std::min(step, end_row - first_row)) * k_);
  for (int64_t row = first_row; row < end_row; row += step) {
    const int64_t end = std::min<int64_t>(row + step, end_row);
    for (int64_t i = row; i < end; ++i) {
      const Part& part = part_of(i);
      to_float32(*part.entry, (i - part.first_row) * k_, k_, rows.data() + (i - row) * k_);
    }
    kernels::pack_matrix(rows_of(shape, row, end), rows.data(), out);
    out += static_cast<size_t>(panels) * shape.panel_bytes();
  }
}

const StackedRows::Part& StackedRows::part_of(int64_t row) const {
  return *std::find_if(parts_.begin(), parts_.end(),
                       [row](const Part& part) { return row < part.end_row; });
}

}  // namespace wideep::weights
