// SPDX-License-Identifier: Apache-2.0
#include "weights/weight_loader.h"

#include <algorithm>
#include <cstring>

#include "base/try.h"
#include "weights/checkpoint.h"
#include "weights/copy_rows.h"

namespace wideep::weights {

using formats::TensorEntry;
using kernels::PackedShape;
using kernels::WeightFormat;

MatrixForm WeightLoader::form(const std::string& name, int k) const {
  const MatrixForm stored = stored_form(tensors_, name, k);
  return !format_ || stored.format == *format_ ? stored : default_form(*format_);
}

MatrixForm WeightLoader::common_form(const std::vector<NameAndWidth>& matrices) const {
  const MatrixForm floats = default_form(format_.value_or(WeightFormat::kBf16));
  if (matrices.empty()) return floats;
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
  if (shape.size() == 2) {
    const auto n = static_cast<int>(shape[0]), k = static_cast<int>(shape[1]);
    WIDEEP_TRY_ASSIGN(const StoredMatrix matrix, StoredMatrix::open(tensors_, name, n, k));
    std::vector<float> values(static_cast<size_t>(n) * static_cast<size_t>(k));
    matrix.to_float32(0, n, values.data());
    for (const auto& source : matrix.sources()) progress_(source.size());
    return values;
  }
  WIDEEP_TRY_ASSIGN(const TensorEntry* entry, tensors_.tensor(name, shape));
  std::vector<float> values(entry->num_elements());
  to_float32(*entry, values.data());
  progress_(entry->bytes.size());
  return values;
}

Status WeightLoader::rows(const std::string& name, int n, int k, Dtype dtype,
                          std::byte* out) const {
  WIDEEP_TRY_ASSIGN(const TensorEntry* entry, tensors_.tensor(name, {n, k}));
  queue_->add({.sources = {entry->bytes},
               .num_units = n,
               .load = [entry, k, dtype, out](int64_t begin, int64_t end) {
                 const size_t row_bytes = static_cast<size_t>(k) * dtype_bytes(dtype);
                 copy_rows(*entry, begin, end, dtype, out + static_cast<size_t>(begin) * row_bytes);
               }});
  return {};
}

Result<float> WeightLoader::pack(const std::string& name, const PackedShape& shape,
                                 std::byte* out) const {
  WIDEEP_TRY_ASSIGN(StoredMatrix matrix, StoredMatrix::open(tensors_, name, shape.n, shape.k));
  const float scale = matrix.matrix_scale(shape);
  const int panels = shape.num_panels(), unit = matrix.panels_together(shape);
  LoadJob job{.sources = matrix.sources(), .num_units = (panels + unit - 1) / unit, .load = {}};
  job.load = [matrix = std::move(matrix), shape, scale, panels, unit, out](int64_t begin,
                                                                           int64_t end) {
    const auto last = std::min<int64_t>(end * unit, panels);
    matrix.pack(shape, scale, static_cast<int>(begin * unit), static_cast<int>(last), out);
  };
  queue_->add(std::move(job));
  return scale;
}

Result<Matrix> WeightLoader::matrix(const std::string& name, int n, int k,
                                    const MatrixForm& form) const {
  const PackedShape shape = form.shape(n, k);
  Matrix matrix{base::AlignedBytes(shape.bytes()), {}};
  WIDEEP_TRY_ASSIGN(const float scale, pack(name, shape, matrix.bytes.data()));
  matrix.packed = {shape, matrix.bytes.data(), scale};
  return matrix;
}

void WeightLoader::run() const { queue_->run(pool_, progress_); }

Matrix WeightLoader::pack_rows(WeightFormat format, const float* rows, int n, int k) {
  const PackedShape shape = kernels::packed_shape(format, n, k);
  Matrix matrix{base::AlignedBytes(shape.bytes()), {}};
  matrix.packed = kernels::pack_matrix(shape, rows, matrix.bytes.data());
  return matrix;
}

}  // namespace wideep::weights
