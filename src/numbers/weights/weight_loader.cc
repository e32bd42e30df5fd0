// SPDX-License-Identifier: Apache-2.0
//
// Calls open and check their tensor and only queue the loading; run() does it in parallel, in the
// order of the calls (load_queue.h); only floats() loads at once. A job's bytes say where it lies
// in the files, and need not be exact: they serve read-ahead and balance.
//
// The unit of a packing job is the set of panels that share scales or cache lines
// (panels_together()). A rank that wants only some panels of such a set packs the whole set aside
// and copies its own: only then do they get the bits that they have in the whole matrix.
#include "weights/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/numa.h"
#include "base/try.h"
#include "kernels/pack_matrix.h"
#include "weights/copy_rows.h"

namespace wideep::weights {

using kernels::PackedShape;
using kernels::PanelRange;
using kernels::WeightFormat;

namespace {

// The part of the matrix's bytes that belongs to the panels, in proportion, because rows are in
// order. Used for balancing and read-ahead only, so that it need not be exact.
std::vector<std::span<const std::byte>> sources_of(const StoredMatrix& matrix,
                                                   const PackedShape& shape,
                                                   const PanelRange& panels) {
  const auto all = static_cast<size_t>(shape.num_panels());
  std::vector<std::span<const std::byte>> parts;
  for (const std::span<const std::byte> source : matrix.sources()) {
    const size_t begin = source.size() * static_cast<size_t>(panels.first) / all;
    const size_t end = source.size() * static_cast<size_t>(panels.last) / all;
    parts.push_back(source.subspan(begin, end - begin));
  }
  return parts;
}

// The panels of a packed matrix that a rank has.
struct WantedPanels {
  PackedShape shape;  // of the whole matrix
  float scale = 1.0f;
  PanelRange panels;
  std::byte* out = nullptr;  // memory of the first one
};

// Packs the panels of `together`, which share scales, and writes those that are wanted to their
// place. If not all are wanted, they are packed into temporary memory first.
Status pack_wanted(const StoredMatrix& matrix, const WantedPanels& wanted,
                   const PanelRange& together) {
  const PackedShape& shape = wanted.shape;
  const int begin = wanted.panels.first, end = wanted.panels.last;
  const size_t bytes = shape.panel_bytes();
  const auto at = [&](std::byte* panels, int from, int index) {
    return panels + static_cast<size_t>(index - from) * bytes;
  };
  if (together.first >= begin && together.last <= end) {
    return matrix.pack(shape, wanted.scale, together.first, together.last,
                       at(wanted.out, begin, together.first));
  }
  base::AlignedBytes aside(bytes * static_cast<size_t>(together.count()));
  WIDEEP_TRY(matrix.pack(shape, wanted.scale, together.first, together.last, aside.data()));
  const int first = std::max(together.first, begin), last = std::min(together.last, end);
  std::memcpy(at(wanted.out, begin, first), at(aside.data(), together.first, first),
              bytes * static_cast<size_t>(last - first));
  return {};
}

std::string floats_part(const std::string& name, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}] float32", name, fmt::join(shape, ", "));
}

std::string rows_part(const std::string& name, int n, int k, Dtype dtype) {
  return fmt::format("{} [{}, {}] {}", name, n, k, dtype_name(dtype));
}

std::string matrix_part(const std::string& name, const PackedShape& shape) {
  return fmt::format("{} [{}, {}] {}/{}", name, shape.n, shape.k,
                     kernels::weight_format_name(shape.format), shape.group);
}

}  // namespace

// ---- packed files ----

bool WeightLoader::take(const std::string& name, std::span<std::byte> out) const {
  const packed::Part* const part = packed_ != nullptr ? packed_->find(name) : nullptr;
  if (part == nullptr || part->bytes != out.size()) return false;
  queue_->add({.sources = {packed_->bytes(*part)},
               .num_units = part->num_pieces(),
               .load = [file = packed_, name, to = out.data()](int64_t begin, int64_t end) {
                 for (auto piece = static_cast<int>(begin); piece < static_cast<int>(end);
                      ++piece) {
                   WIDEEP_TRY(file->copy_piece(name, piece, to));
                 }
                 return Status();
               }});
  return true;
}

void WeightLoader::tell(const std::string& part, std::span<const std::byte> bytes) const {
  if (tell_) loaded_->push_back({part, bytes});
}

template <typename T>
Status WeightLoader::take_values(const std::string& name, std::span<const int64_t> shape,
                                 std::vector<T>& values) const {
  const packed::Part* const part = packed_ != nullptr ? packed_->find(name) : nullptr;
  if (part == nullptr) return {};
  uint64_t bytes = sizeof(T);
  for (const int64_t each : shape) bytes *= static_cast<uint64_t>(each);
  if (part->bytes != bytes) {
    return failed(
        fmt::format("packed file: '{}': expected {} bytes, found {}; pack the model again", name,
                    bytes, part->bytes));
  }
  values.resize(part->bytes / sizeof(T));
  for (int piece = 0; piece < part->num_pieces(); ++piece) {
    WIDEEP_TRY(packed_->copy_piece(name, piece, reinterpret_cast<std::byte*>(values.data())));
  }
  progress_(part->bytes);
  return {};
}

// ---- checkpoints ----

MatrixForm WeightLoader::form(const std::string& name, int k) const {
  // A matrix that is stored in the wanted format keeps its groups, so that its codes can be copied.
  const MatrixForm stored = stored_form(tensors_, name, k);
  return !format_ || stored.format == *format_ ? stored : default_form(*format_);
}

MatrixForm WeightLoader::common_form(const std::vector<NameAndWidth>& matrices) const {
  const MatrixForm floats = default_form(format_.value_or(WeightFormat::kBf16));
  if (matrices.empty()) return floats;
  const RowSources* const sources = tensors_.row_sources();
  if (sources != nullptr && !format_) {
    std::vector<std::string> names;
    for (const NameAndWidth& matrix : matrices) names.push_back(matrix.name);
    return sources->form_of(names);
  }
  std::vector<MatrixForm> forms;
  for (const NameAndWidth& matrix : matrices) forms.push_back(form(matrix.name, matrix.k));
  MatrixForm common = forms.front();
  for (const MatrixForm& each : forms) common.group = std::min(common.group, each.group);
  const bool all = std::all_of(forms.begin(), forms.end(), [&](const MatrixForm& each) {
    const bool finer = common.group > 0 && each.group % common.group == 0;
    return each.format == common.format && (each.group == common.group || finer);
  });
  return all ? common : floats;
}

Result<std::vector<float>> WeightLoader::floats(const std::string& name,
                                                const std::vector<int64_t>& shape) const {
  const std::string part = floats_part(name, shape);
  std::vector<float> values;
  WIDEEP_TRY(take_values(part, shape, values));
  if (!values.empty()) return values;
  WIDEEP_TRY_ASSIGN(values, stored_floats(name, shape));
  if (tell_) WIDEEP_TRY(tell_(part, std::as_bytes(std::span(values)), 1.0f));
  return values;
}

Result<std::vector<float>> WeightLoader::stored_floats(const std::string& name,
                                                       const std::vector<int64_t>& shape) const {
  if (shape.size() == 2) {
    const auto n = static_cast<int>(shape[0]), k = static_cast<int>(shape[1]);
    WIDEEP_TRY_ASSIGN(const StoredMatrix matrix, StoredMatrix::open(tensors_, name, n, k));
    std::vector<float> values(static_cast<size_t>(n) * static_cast<size_t>(k));
    WIDEEP_TRY(matrix.to_finite(0, n, values.data()));
    for (const auto& source : matrix.sources()) progress_(source.size());
    return values;
  }
  WIDEEP_TRY_ASSIGN(const TensorSlice slice, tensors_.slice(name, shape));
  WIDEEP_TRY(finite_rows(slice, 0, slice.rows, tensors_.where(name)).status());
  std::vector<float> values(static_cast<size_t>(slice.num_elements()));
  copy_rows(slice, 0, slice.rows, Dtype::kF32, reinterpret_cast<std::byte*>(values.data()));
  progress_(source_bytes(slice).size());
  return values;
}

Result<std::vector<int32_t>> WeightLoader::integers(const std::string& name,
                                                    const std::vector<int64_t>& shape,
                                                    int64_t end) const {
  constexpr Dtype kIntegers[] = {Dtype::kI64, Dtype::kI32};
  const std::string part = fmt::format("{} [{}] int32", name, fmt::join(shape, ", "));
  std::vector<int32_t> values;
  const auto refuse = [&](int64_t value, size_t at) {
    return invalid_input(fmt::format("{}: expected numbers from 0 to {}, found {} at element {}",
                                     tensors_.where(name), end - 1, value, at));
  };
  WIDEEP_TRY(take_values(part, shape, values));
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0 || values[i] >= end) return refuse(values[i], i);
  }
  if (!values.empty()) return values;
  WIDEEP_TRY_ASSIGN(const tensor_files::TensorEntry* entry,
                    tensors_.tensor(name, shape, kIntegers));
  values.resize(static_cast<size_t>(entry->num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t value = 0;
    if (entry->dtype == Dtype::kI64) {
      std::memcpy(&value, entry->bytes.data() + i * sizeof(value), sizeof(value));
    } else {
      int32_t narrow = 0;
      std::memcpy(&narrow, entry->bytes.data() + i * sizeof(narrow), sizeof(narrow));
      value = narrow;
    }
    if (value < 0 || value >= end) return refuse(value, i);
    values[i] = static_cast<int32_t>(value);
  }
  progress_(entry->bytes.size());
  if (tell_) WIDEEP_TRY(tell_(part, std::as_bytes(std::span(values)), 1.0f));
  return values;
}

Status WeightLoader::rows(const std::string& name, int n, int k, Dtype dtype,
                          std::byte* out) const {
  const std::string part = rows_part(name, n, k, dtype);
  const std::span<std::byte> bytes(
      out, static_cast<size_t>(n) * static_cast<size_t>(k) * dtype_bytes(dtype));
  if (take(part, bytes)) return {};
  tell(part, bytes);
  if (tensors_.row_sources() != nullptr) return decoded_rows(name, n, k, dtype, out);
  WIDEEP_TRY_ASSIGN(const TensorSlice slice, tensors_.slice(name, {n, k}));
  queue_->add(
      {.sources = {source_bytes(slice)},
       .num_units = n,
       .load = [slice, k, dtype, out, where = tensors_.where(name)](int64_t begin, int64_t end) {
         WIDEEP_TRY(finite_rows(slice, begin, end, where).status());
         const size_t row_bytes = static_cast<size_t>(k) * dtype_bytes(dtype);
         copy_rows(slice, begin, end, dtype, out + static_cast<size_t>(begin) * row_bytes);
         return Status();
       }});
  return {};
}

Status WeightLoader::decoded_rows(const std::string& name, int n, int k, Dtype dtype,
                                  std::byte* out) const {
  WIDEEP_TRY_ASSIGN(StoredMatrix matrix, StoredMatrix::open(tensors_, name, n, k));
  LoadJob job{.sources = matrix.sources(), .num_units = n, .load = {}};
  job.load = [matrix = std::move(matrix), k, dtype, out](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(k));
    for (auto row = static_cast<int>(begin); row < static_cast<int>(end); ++row) {
      WIDEEP_TRY(matrix.to_finite(row, row + 1, values.data()));
      std::byte* to = out + static_cast<size_t>(row) * values.size() * dtype_bytes(dtype);
      for (const float value : values) {
        const Bf16 rounded(value);
        const bool whole = dtype == Dtype::kF32;
        std::memcpy(to, whole ? static_cast<const void*>(&value) : &rounded, dtype_bytes(dtype));
        to += dtype_bytes(dtype);
      }
    }
    return Status();
  };
  queue_->add(std::move(job));
  return {};
}

Result<float> WeightLoader::pack(const std::string& name, const PackedShape& shape,
                                 const PanelRange& panels, std::byte* out) const {
  WIDEEP_TRY_ASSIGN(StoredMatrix matrix, StoredMatrix::open(tensors_, name, shape.n, shape.k));
  const float scale = matrix.matrix_scale(shape);
  // The unit of the job is a set of panels that share scales; the first and last may be wanted in
  // part.
  const int unit = matrix.panels_together(shape), first_unit = panels.first / unit;
  const int end_unit = (panels.last + unit - 1) / unit;
  LoadJob job{.sources = sources_of(matrix, shape, panels),
              .num_units = std::max(end_unit - first_unit, 0),
              .load = {}};
  if (panels.count() <= 0) return scale;
  const WantedPanels wanted{.shape = shape, .scale = scale, .panels = panels, .out = out};
  job.load = [matrix = std::move(matrix), wanted, unit, first_unit](int64_t begin, int64_t end) {
    const int first = (first_unit + static_cast<int>(begin)) * unit;
    const int last = (first_unit + static_cast<int>(end)) * unit;
    return pack_wanted(matrix, wanted, {first, std::min(last, wanted.shape.num_panels())});
  };
  queue_->add(std::move(job));
  return scale;
}

Result<Matrix> WeightLoader::matrix(const std::string& name, int n, int k,
                                    const MatrixForm& form) const {
  const PackedShape shape = form.shape(n, k);
  Matrix matrix{base::AlignedBytes(shape.bytes()), {}};
  base::spread_over_numa_nodes(matrix.bytes.data(), matrix.bytes.size());  // read by all ranks
  const std::string part = matrix_part(name, shape);
  if (take(part, {matrix.bytes.data(), shape.bytes()})) {
    matrix.packed = {shape, matrix.bytes.data(), packed_->find(part)->scale};
    return matrix;
  }
  WIDEEP_TRY_ASSIGN(const float scale, pack(name, shape, matrix.bytes.data()));
  matrix.packed = {shape, matrix.bytes.data(), scale};
  if (tell_) loaded_->push_back({part, {matrix.bytes.data(), shape.bytes()}, scale});
  return matrix;
}

Status WeightLoader::run() const {
  WIDEEP_TRY(queue_->run(pool_, progress_));
  for (const Loaded& each : std::exchange(*loaded_, {})) {
    WIDEEP_TRY(tell_(each.part, each.bytes, each.scale));
  }
  return {};
}

Matrix WeightLoader::pack_rows(WeightFormat format, const float* rows, int n, int k) {
  const PackedShape shape = kernels::packed_shape(format, n, k);
  Matrix matrix{base::AlignedBytes(shape.bytes()), {}};
  matrix.packed = kernels::pack_matrix(shape, rows, matrix.bytes.data());
  return matrix;
}

}  // namespace wideep::weights
