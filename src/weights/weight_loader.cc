// SPDX-License-Identifier: Apache-2.0
#include "weights/weight_loader.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/try.h"
#include "weights/checkpoint.h"
#include "weights/stacked_rows.h"

namespace wideep::weights {

using formats::TensorEntry;
using kernels::PackedShape;
using kernels::WeightFormat;

Result<std::vector<float>> WeightLoader::floats(const std::string& name,
                                                const std::vector<int64_t>& shape) const {
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

Status WeightLoader::pack(const std::string& name, const PackedShape& shape, std::byte* out) const {
  return pack_stacked({name}, {shape.n}, shape, out);
}

Status WeightLoader::pack_stacked(const std::vector<std::string>& names,
                                  const std::vector<int>& n_each, const PackedShape& shape,
                                  std::byte* out) const {
  StackedRows stack(shape.k);
  const int64_t panels = shape.num_panels(), unit = StackedRows::panels_together(shape);
  LoadJob job{.sources = {}, .num_units = (panels + unit - 1) / unit, .load = {}};
  for (size_t i = 0; i < names.size(); ++i) {
    WIDEEP_TRY_ASSIGN(const TensorEntry* entry, tensors_.tensor(names[i], {n_each[i], shape.k}));
    stack.add(*entry);
    job.sources.push_back(entry->bytes);
  }
  job.load = [stack = std::move(stack), shape, panels, unit, out](int64_t begin, int64_t end) {
    stack.pack(shape, begin * unit, std::min(end * unit, panels), out);
  };
  queue_->add(std::move(job));
  return {};
}

Result<Matrix> WeightLoader::matrix(const std::vector<std::string>& names,
                                    const std::vector<int>& n_each, int k) const {
  const int n = std::accumulate(n_each.begin(), n_each.end(), 0);
  const PackedShape shape = kernels::packed_shape(format_, n, k);
  Matrix matrix{base::AlignedBytes(shape.bytes()), {}};
  matrix.packed = {shape, matrix.bytes.data()};
  WIDEEP_TRY(pack_stacked(names, n_each, shape, matrix.bytes.data()));
  return matrix;
}

Result<Matrix> WeightLoader::matrix(const std::string& name, int n, int k,
                                    WeightFormat format) const {
  const PackedShape shape = kernels::packed_shape(format, n, k);
  Matrix matrix{base::AlignedBytes(shape.bytes()), {}};
  matrix.packed = {shape, matrix.bytes.data()};
  WIDEEP_TRY(pack(name, shape, matrix.bytes.data()));
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
