// SPDX-License-Identifier: Apache-2.0
#include "weights/weight_loader.h"

#include "base/try.h"

namespace wideep::weights {

Result<std::vector<float>> WeightLoader::floats(const std::string& name,
                                                const std::vector<int64_t>& shape) const {
  WIDEEP_TRY_ASSIGN(const formats::TensorEntry* entry, checkpoint_.tensor(name, shape));
  std::vector<float> values(entry->num_elements());
  to_float32(*entry, values.data());
  progress_(entry->bytes.size());
  return values;
}

Result<std::vector<float>> WeightLoader::stacked(const std::vector<std::string>& names, int n_each,
                                                 int k) const {
  std::vector<float> rows;
  rows.reserve(names.size() * n_each * k);
  for (const std::string& name : names) {
    WIDEEP_TRY_ASSIGN(const std::vector<float> part, floats(name, {n_each, k}));
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

Status WeightLoader::pack(const std::vector<std::string>& names, int n_each, int k,
                          std::byte* out) const {
  WIDEEP_TRY_ASSIGN(const std::vector<float> rows, stacked(names, n_each, k));
  kernels::pack_matrix(dtype_, n_each * static_cast<int>(names.size()), k, rows.data(), out);
  return {};
}

Result<Matrix> WeightLoader::matrix(const std::vector<std::string>& names, int n_each,
                                    int k) const {
  WIDEEP_TRY_ASSIGN(const std::vector<float> rows, stacked(names, n_each, k));
  return pack_rows(dtype_, rows.data(), n_each * static_cast<int>(names.size()), k);
}

Matrix WeightLoader::pack_rows(Dtype dtype, const float* rows, int n, int k) {
  Matrix matrix{base::AlignedBytes(kernels::packed_bytes(dtype, n, k)), {}};
  matrix.packed = kernels::pack_matrix(dtype, n, k, rows, matrix.bytes.data());
  return matrix;
}

}  // namespace wideep::weights
