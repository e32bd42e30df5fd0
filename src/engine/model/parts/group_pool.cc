// SPDX-License-Identifier: Apache-2.0
//
// Elements are taken a few at a time for all rows: three passes over few numbers, which the
// compiler turns into vectors.
#include "model/parts/group_pool.h"

#include <algorithm>
#include <cmath>

namespace wideep::model {
namespace {

constexpr int kElements = 64;  // that are pooled together

// Of `width` elements; rows: at the first one of the first row.
void pool_elements(const float* rows, int count, int dim, int width, float* pooled) {
  float largest[kElements], sums[kElements] = {}, weighted[kElements] = {};
  std::fill_n(largest, kElements, -INFINITY);
  const auto stride = static_cast<size_t>(2 * dim);
  for (size_t j = 0; j < static_cast<size_t>(count); ++j) {
    const float* gates = rows + j * stride + dim;
    for (int i = 0; i < width; ++i) largest[i] = std::max(largest[i], gates[i]);
  }
  for (size_t j = 0; j < static_cast<size_t>(count); ++j) {
    const float* values = rows + j * stride;
    const float* gates = values + dim;
    for (int i = 0; i < width; ++i) {
      const float share = std::exp(gates[i] - largest[i]);
      sums[i] += share;
      weighted[i] += share * values[i];
    }
  }
  for (int i = 0; i < width; ++i) pooled[i] = weighted[i] / sums[i];
}

}  // namespace

void read_cached_row(Dtype dtype, const std::byte* row, int first, int count, float* to) {
  if (dtype == Dtype::kF32) {
    std::copy_n(reinterpret_cast<const float*>(row) + first, count, to);
    return;
  }
  const Bf16* from = reinterpret_cast<const Bf16*>(row) + first;
  for (int i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

void pool_group(const float* rows, int count, int dim, float* pooled) {
  for (int first = 0; first < dim; first += kElements) {
    pool_elements(rows + first, count, dim, std::min(kElements, dim - first), pooled + first);
  }
}

}  // namespace wideep::model
