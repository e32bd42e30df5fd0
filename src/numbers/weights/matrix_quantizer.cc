// SPDX-License-Identifier: Apache-2.0
#include "weights/matrix_quantizer.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"

namespace wideep::weights {

MatrixQuantizer::MatrixQuantizer(const StoredMatrix& stored, kernels::WeightFormat format,
                                 int group)
    : stored_(stored),
      format_(format),
      group_(group),
      parts_(static_cast<size_t>((stored.n() + kRows - 1) / kRows)),
      powers_(parts_.size()),
      statuses_(parts_.size()) {}

Result<Quantized> MatrixQuantizer::run(base::ThreadPool& pool) {
  const float scale = stored_.matrix_scale(
      {.format = format_, .n = stored_.n(), .k = stored_.k(), .group = group_});
  pool.parallel_for(static_cast<int64_t>(parts_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      statuses_[static_cast<size_t>(i)] = quantize_part(static_cast<size_t>(i), scale);
    }
  });
  for (const Status& status : statuses_) WIDEEP_TRY(status);
  return gather();
}

Status MatrixQuantizer::quantize_part(size_t i, float scale) {
  const int begin = static_cast<int>(i) * kRows, end = std::min(begin + kRows, stored_.n());
  std::vector<float> rows(static_cast<size_t>(end - begin) * static_cast<size_t>(stored_.k()));
  std::vector<float> dequantized(rows.size());
  WIDEEP_TRY(stored_.to_finite(begin, end, rows.data()));
  parts_[i] =
      kernels::quantize_matrix(format_, group_, rows.data(), end - begin, stored_.k(), scale);
  kernels::dequantize_rows(parts_[i].view, 0, end - begin, dequantized.data());
  for (size_t j = 0; j < rows.size(); ++j) {
    const double error = double{rows[j]} - double{dequantized[j]};
    powers_[i].signal += double{rows[j]} * double{rows[j]};
    powers_[i].noise += error * error;
  }
  return {};
}

Quantized MatrixQuantizer::gather() {
  Quantized all;
  Power power;
  all.matrix.view = parts_.front().view;
  all.matrix.view.n = stored_.n();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const kernels::QuantizedMatrix& part = parts_[i];
    all.matrix.codes.insert(all.matrix.codes.end(), part.codes.begin(), part.codes.end());
    all.matrix.scales.insert(all.matrix.scales.end(), part.scales.begin(), part.scales.end());
    power.signal += powers_[i].signal;
    power.noise += powers_[i].noise;
  }
  all.matrix.view.codes = all.matrix.codes.data();
  all.matrix.view.scales = all.matrix.scales.data();
  all.signal_to_noise_db =
      power.noise > 0.0 ? 10.0 * std::log10(power.signal / power.noise) : INFINITY;
  return all;
}

}  // namespace wideep::weights
