// SPDX-License-Identifier: Apache-2.0
#include "model/parts/row_noise.h"

#include <cmath>
#include <limits>
#include <vector>

namespace wideep::model {

void RowNoise::add(const kernels::Kernels& kernels, const CodedRow& row) {
  const auto size = static_cast<size_t>(row.width);
  std::vector<float> decoded(size);
  kernels.decode_row(row.format, static_cast<const std::byte*>(row.coded), row.width, Dtype::kF32,
                     decoded.data());
  // The reference is the row in bf16, the format in which it would travel without coding.
  std::vector<Bf16> rounded(size);
  kernels.decode_row(kernels::row_format(row.dtype), static_cast<const std::byte*>(row.plain),
                     row.width, Dtype::kBf16, rounded.data());
  for (size_t i = 0; i < size; ++i) {
    const double value = static_cast<float>(rounded[i]);
    const double off = double{decoded[i]} - value;
    signal += value * value;
    noise += off * off;
  }
  ++rows;
}

void RowNoise::add(const RowNoise& other) {
  signal += other.signal;
  noise += other.noise;
  rows += other.rows;
}

double RowNoise::snr() const {
  if (noise == 0.0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(signal / noise);
}

}  // namespace wideep::model
