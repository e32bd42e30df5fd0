// SPDX-License-Identifier: Apache-2.0
#include "cost/expert_cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace wideep::cost {
namespace {

using kernels::WeightFormat;

constexpr double kBytesPerActivation = 2.0;  // bf16

}  // namespace

double bytes_per_weight(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return 4.0;
    case WeightFormat::kBf16:
      return 2.0;
    case WeightFormat::kFp8:
      return 1.0 + 4.0 / (128 * 128);
    case WeightFormat::kInt8:
      return 1.0 + 4.0 / 128;
    case WeightFormat::kInt4:
      return 0.5 + 4.0 / 32;
    case WeightFormat::kMxfp4:
      return 0.5 + 1.0 / 32;
    case WeightFormat::kNvfp4:
      return 0.5 + 1.0 / 16;
    case WeightFormat::kInt4m:
      return 0.5 + 2.0 / 32 + 8.0 / 256;
    case WeightFormat::kInt8m:
      return 1.0 + 2.0 / 32 + 8.0 / 256;
    case WeightFormat::kInt4h:
      return 0.5 + 4.0 / 32;
    case WeightFormat::kInt8h:
      return 1.0 + 4.0 / 32;
  }
  return 0.0;
}

double ExpertShape::bytes() const { return weights() * bytes_per_weight(format); }

ExpertWork expert_work(std::span<const double> rows_of_slots, int tile) {
  ExpertWork work;
  for (const double rows : rows_of_slots) {
    const double reached = std::min(rows, 1.0);
    work.experts += reached;
    work.rows += rows;
    work.tiled_rows += rows < 1.0 ? reached * tile : std::ceil(rows / tile) * tile;
  }
  return work;
}

double ExpertTime::seconds() const {
  return overhead + std::cbrt(bytes * bytes * bytes + compute * compute * compute) + rows;
}

ExpertTime expert_time(const Hardware& hardware, const ProductKernel& kernel,
                       const ExpertShape& shape, const ExpertWork& work) {
  WIDEEP_CHECK(hardware.supports(shape.format));
  const double peak = hardware.peak.at(shape.format);
  const double row_bytes = kBytesPerActivation * (shape.hidden * kernel.row_traffic +
                                                  shape.intermediate * kernel.activation);
  return {
      .overhead = kernel.overhead,
      .bytes = work.experts * shape.bytes() / (hardware.memory_bandwidth * kernel.memory),
      .compute = 2.0 * shape.weights() * work.tiled_rows / (peak * kernel.compute),
      .rows = work.rows * row_bytes / hardware.row_bandwidth(),
  };
}

}  // namespace wideep::cost
