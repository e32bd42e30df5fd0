// SPDX-License-Identifier: Apache-2.0
#include "weights/weight_loader.h"

#include <numeric>

#include "base/try.h"

namespace wideep::weights {

using kernels::PackedShape;
using kernels::WeightFormat;

Result<std::vector<float>> WeightLoader::floats(const std::string& name,
                                                const std::vector<int64_t>& shape) const {
  WIDEEP_TRY_ASSIGN(const formats::TensorEntry* entry, checkpoint_.tensor(name, shape));
  std::vector<float> values(entry->num_elements());
  to_float32(*entry, values.data());
  progress_(entry->bytes.size());
  return values;
}

Status WeightLoader::pack(const std::string& name, const PackedShape& shape, std::byte* out) const {
  if (shape.format == WeightFormat::kBf16) {
    WIDEEP_TRY_ASSIGN(const formats::TensorEntry* entry,
                      checkpoint_.tensor(name, {shape.n, shape.k}));
    if (entry->dtype == Dtype::kBf16) {
      kernels::pack_bf16_rows(shape, reinterpret_cast<const Bf16*>(entry->bytes.data()), out);
      progress_(entry->bytes.size());
      return {};
    }
  }
  WIDEEP_TRY_ASSIGN(const std::vector<float> rows, floats(name, {shape.n, shape.k}));
  kernels::pack_matrix(shape, rows.data(), out);
  return {};
}

Result<Matrix> WeightLoader::matrix(const std::vector<std::string>& names,
                                    const std::vector<int>& n_each, int k) const {
  if (names.size() == 1) {
    const PackedShape shape = kernels::packed_shape(format_, n_each[0], k);
    Matrix matrix{base::AlignedBytes(shape.bytes()), {}};
    WIDEEP_TRY(pack(names[0], shape, matrix.bytes.data()));
    matrix.packed = {shape, matrix.bytes.data()};
    return matrix;
  }
  std::vector<float> rows;
  const int n = std::accumulate(n_each.begin(), n_each.end(), 0);
  rows.reserve(static_cast<size_t>(n) * static_cast<size_t>(k));
  for (size_t i = 0; i < names.size(); ++i) {
    WIDEEP_TRY_ASSIGN(const std::vector<float> part, floats(names[i], {n_each[i], k}));
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return pack_rows(format_, rows.data(), n, k);
}

Matrix WeightLoader::pack_rows(WeightFormat format, const float* rows, int n, int k) {
  const PackedShape shape = kernels::packed_shape(format, n, k);
  Matrix matrix{base::AlignedBytes(shape.bytes()), {}};
  matrix.packed = kernels::pack_matrix(shape, rows, matrix.bytes.data());
  return matrix;
}

}  // namespace wideep::weights
