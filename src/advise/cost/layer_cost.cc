// SPDX-License-Identifier: Apache-2.0
#include "cost/layer_cost.h"

#include <algorithm>
#include <cmath>

#include "cost/expert_cost.h"

namespace wideep::cost {
namespace {

constexpr double kActivationBytes = 2.0;  // bf16

// The peak of attention's products: their operands are bf16, or what the machine has instead.
double attention_peak(const Hardware& hardware) {
  const auto bf16 = hardware.peak.find(kernels::WeightFormat::kBf16);
  return bf16 != hardware.peak.end() ? bf16->second : hardware.peak.begin()->second;
}

}  // namespace

double product_seconds(const Hardware& hardware, const ProductKernel& kernel,
                       kernels::WeightFormat format, const DenseWork& work) {
  const double bytes =
      work.weights * bytes_per_weight(format) / (hardware.memory_bandwidth * kernel.memory);
  const double tiled = std::ceil(work.rows / kernel.tile) * kernel.tile;
  const double compute = 2.0 * work.weights * tiled / (hardware.peak.at(format) * kernel.compute);
  const double copies =
      work.hidden * work.matrices * kernel.row_traffic + work.intermediate * kernel.activation;
  const double traffic = work.rows * copies * kActivationBytes / hardware.row_bandwidth();
  return kernel.overhead + work.matrices * kernel.matrix +
         std::cbrt(bytes * bytes * bytes + compute * compute * compute) + traffic;
}

double attention_seconds(const Hardware& hardware, double cached_bytes, double multiply_adds) {
  const AttentionKernel& kernel = hardware.attention;
  return kernel.overhead +
         std::max(cached_bytes / (hardware.memory_bandwidth * kernel.memory),
                  2.0 * multiply_adds / (attention_peak(hardware) * kernel.compute));
}

}  // namespace wideep::cost
