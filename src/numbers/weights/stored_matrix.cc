// SPDX-License-Identifier: Apache-2.0
//
// A matrix comes from one of three: floats in a slice, codes of a module, or a source that makes
// rows itself. pack() takes the cheapest way that there is: codes are copied if they have the
// format, in the same groups or in larger ones; floats of the wanted dtype are interleaved;
// everything else is decoded to float32 and packed or quantised, a few panels at a time so that
// the rows stay in the cache.
//
// Every way ends with values known to be finite. For codes it is enough to look at the scales,
// which are few, except for fp8, whose codes themselves may be NaN.
#include "weights/stored_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/try.h"
#include "kernels/interleave.h"
#include "kernels/pack_matrix.h"
#include "weights/checkpoint.h"
#include "weights/copy_rows.h"
#include "weights/finite.h"
#include "weights/open_coded.h"

namespace wideep::weights {
namespace {

using kernels::PackedShape;
using kernels::WeightFormat;
using tensor_files::TensorEntry;
using Kind = StoredLayout::Kind;

bool is_stored_as(const TensorEntry& entry, WeightFormat format) {
  return (format == WeightFormat::kF32 && entry.dtype == Dtype::kF32) ||
         (format == WeightFormat::kBf16 && entry.dtype == Dtype::kBf16);
}

StoredLayout layout_of(const TensorSource& tensors, const std::string& name, int k) {
  return stored_layout(tensors.module(module_of(name)), k);
}

// Tests all values without an early exit, so that the compiler vectorises the loop.
bool all_finite(const float* values, int64_t count) {
  constexpr uint32_t kExponent = 0x7f800000;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    finite &= (std::bit_cast<uint32_t>(values[i]) & kExponent) != kExponent;
  }
  return finite;
}

// Whether elements are finite whatever their codes are: a code is at most 255, and a half float
// times 255 is a number.
bool has_finite_scales(const kernels::CodedMatrix& view) {
  if (view.format == WeightFormat::kInt8 || view.format == WeightFormat::kInt4) {
    return all_finite(static_cast<const float*>(view.scales), int64_t{view.n} * view.num_groups());
  }
  if (view.block_scales != nullptr) {
    return all_finite(view.block_scales, int64_t{2} * view.n * view.num_blocks());
  }
  for (int row = 0; row < view.n; ++row) {
    for (int group = 0; group < view.num_groups(); ++group) {
      constexpr float kLargest = 6.0f;  // of mxfp4, whose scales may be near the largest float
      if (!std::isfinite(view.group_scale(row, group) * kLargest) ||
          !std::isfinite(view.group_minimum(row, group))) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

std::string module_of(const std::string& name) { return name.substr(0, name.rfind(".weight")); }

std::vector<std::string> stored_names(const TensorSource& tensors, const std::string& name) {
  if (const RowSources* rows = tensors.row_sources()) return rows->names_of(name);
  return layout_of(tensors, name, 0).names();
}

bool has_module(const TensorSource& source, const std::string& module) {
  StoredModule stored;
  stored.source = &source;
  stored.name = module;
  return stored_layout(stored, 0).kind != Kind::kMissing;
}

MatrixForm stored_form(const TensorSource& tensors, const std::string& name, int k) {
  if (const RowSources* rows = tensors.row_sources()) return rows->form_of({name});
  return layout_of(tensors, name, k).form(k);
}

Result<StoredMatrix> StoredMatrix::open(const TensorSource& tensors, const std::string& name, int n,
                                        int k) {
  StoredMatrix matrix(n, k);
  if (const RowSources* sources = tensors.row_sources()) {
    WIDEEP_TRY_ASSIGN(matrix.rows_, sources->open_rows(name, n, k));
    matrix.sources_ = matrix.rows_->sources();
    matrix.where_ = tensors.where(name);
    return matrix;
  }
  const StoredModule module = tensors.module(module_of(name));
  const StoredLayout layout = stored_layout(module, k);
  if (layout.kind == Kind::kMissing || layout.kind == Kind::kFloats) {
    WIDEEP_TRY_ASSIGN(matrix.plain_, tensors.slice(name, {n, k}));
    matrix.sources_ = {source_bytes(*matrix.plain_)};
    matrix.where_ = tensors.where(name);
    return matrix;
  }
  WIDEEP_TRY_ASSIGN(OpenedCodes opened, open_coded(module, layout, n, k));
  matrix.coded_ = std::move(opened.codes);
  matrix.sources_ = std::move(opened.sources);
  matrix.where_ = module.source->where(layout.weight);
  return matrix;
}

// Whether codes can be copied: the groups of `shape` are equal to the stored ones or parts of them,
// since all parts of a group have its scale.
bool StoredMatrix::is_stored_in(const PackedShape& shape) const {
  if (rows_ != nullptr) return rows_->holds({shape.format, shape.group});
  if (!coded_ || coded_->format != shape.format || !coded_->has_format()) return false;
  return coded_->group % shape.group == 0 || coded_->group >= k_;
}

float StoredMatrix::matrix_scale(const PackedShape& shape) const {
  if (shape.format != WeightFormat::kNvfp4) return 1.0f;
  if (is_stored_in(shape)) return rows_ != nullptr ? 1.0f : coded_->scale;
  float largest = 0.0f;
  std::vector<float> row(static_cast<size_t>(k_));
  for (int i = 0; i < n_; ++i) {
    to_float32(i, i + 1, row.data());
    for (const float value : row) largest = std::max(largest, std::abs(value));
  }
  return kernels::nvfp4_matrix_scale(largest);
}

void StoredMatrix::to_float32(int begin, int end, float* out) const {
  if (rows_ != nullptr) return rows_->to_float32(begin, end, out);
  if (coded_) return coded_->to_float32(begin, end, out);
  copy_rows(*plain_, begin, end, Dtype::kF32, reinterpret_cast<std::byte*>(out));
}

Status StoredMatrix::to_finite(int begin, int end, float* out) const {
  to_float32(begin, end, out);
  const int64_t count = int64_t{end - begin} * k_;
  if (all_finite(out, count)) return {};
  const int64_t at =
      std::find_if_not(out, out + count, [](float x) { return std::isfinite(x); }) - out;
  return not_finite(where_, out[at], int64_t{begin} * k_ + at, k_);
}

// 128 rows share scales of fp8 that are computed. Of AWQ's codes and of transposed floats, which
// lie column by column, 128 rows fill whole cache lines.
int StoredMatrix::panels_together(const PackedShape& shape) const {
  const bool blocks = shape.format == WeightFormat::kFp8 && !is_stored_in(shape);
  const bool lines = coded_ && (coded_->order == CodedSource::Order::kAwqLines ||
                                coded_->order == CodedSource::Order::kColumns);
  const bool transposed = plain_ && plain_->column_stride != 1;
  return blocks || lines || transposed ? 128 / kernels::kPanelWidth : 1;
}

// Scales of sources of modules were checked when they were opened; those between the codes of row
// sources are checked here.
Status StoredMatrix::check_codes(const CodedSource::Rows& rows, int begin) const {
  if (rows_ != nullptr && !has_finite_scales(rows.view)) {
    std::vector<float> values(static_cast<size_t>(rows.view.n) * static_cast<size_t>(k_));
    return to_finite(begin, begin + rows.view.n, values.data());
  }
  if (rows.view.format != WeightFormat::kFp8) return {};
  const TensorEntry codes = {
      Dtype::kF8E4M3,
      {rows.view.n, k_},
      {rows.view.codes, static_cast<size_t>(rows.view.n) * rows.view.row_bytes()}};
  return check_finite(codes, 0, codes.num_elements(), where_, int64_t{begin} * k_);
}

Status StoredMatrix::pack(const PackedShape& shape, float scale, int first, int last,
                          std::byte* panels) const {
  const int begin = first * kernels::kPanelWidth;
  PackedShape part = shape;
  part.n = std::min(n_, last * kernels::kPanelWidth) - begin;
  if (is_stored_in(shape)) {
    const CodedSource::Rows rows =
        rows_ != nullptr ? rows_->rows(begin, begin + part.n, {shape.format, shape.group})
                         : coded_->rows(begin, begin + part.n);
    WIDEEP_TRY(check_codes(rows, begin));
    kernels::begin_pack(part, 0, part.num_panels(), panels);
    kernels::pack_codes(part, rows.view, 0, panels);
    return {};
  }
  // A few panels at a time, so that the rows stay in the cache.
  const int step = panels_together(shape) * kernels::kPanelWidth;
  for (int row = 0; row < part.n; row += step) {
    PackedShape piece = part;
    piece.n = std::min(step, part.n - row);
    WIDEEP_TRY(pack_floats(piece, scale, begin + row, panels));
    panels += piece.bytes();
  }
  return {};
}

// From the cheaper way to the more expensive: interleaves floats of the wanted dtype, or converts
// to float32 and quantises.
Status StoredMatrix::pack_floats(const PackedShape& part, float scale, int begin,
                                 std::byte* out) const {
  if (plain_ && is_stored_as(*plain_->entry, part.format)) {
    WIDEEP_TRY_ASSIGN(const PlainRows rows, finite_rows(*plain_, begin, begin + part.n, where_));
    kernels::interleave(part, rows.data, out);
    return {};
  }
  std::vector<float> rows(static_cast<size_t>(part.n) * static_cast<size_t>(k_));
  WIDEEP_TRY(to_finite(begin, begin + part.n, rows.data()));
  if (!kernels::is_coded(part.format)) {
    kernels::pack_matrix(part, rows.data(), out);
    return {};
  }
  const auto quantized =
      kernels::quantize_matrix(part.format, part.group, rows.data(), part.n, k_, scale);
  kernels::begin_pack(part, 0, part.num_panels(), out);
  kernels::pack_codes(part, quantized.view, 0, out);
  return {};
}

}  // namespace wideep::weights
