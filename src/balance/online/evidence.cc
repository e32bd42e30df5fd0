// SPDX-License-Identifier: Apache-2.0
#include "online/evidence.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace wideep::online {
namespace {

double log_choose(int n, int k) {
  return std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0);
}

}  // namespace

Evidence::Evidence(double false_alarm_rate, const balance::PlanShape& shape, int num_layers)
    : needed_(false_alarm_rate > 0.0 ? -std::log(false_alarm_rate)
                                     : std::numeric_limits<double>::infinity()),
      num_ranks_(shape.num_live_ranks()),
      layers_(static_cast<size_t>(num_layers)),
      shares_(static_cast<size_t>(shape.num_slots)) {}

Evidence::Look Evidence::look(int layer_idx, const balance::Placement& placement,
                              std::span<const double> counts) {
  const double rows = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (rows == 0.0) return {};
  Layer& layer = layers_[static_cast<size_t>(layer_idx)];
  if (layer.placement != placement) {
    layer.placement = placement;
    layer.resplitter.reset(placement);
  }
  const double expected = rows / num_ranks_;
  const double ratio = layer.resplitter.resplit(counts, shares_) / expected;
  const int set = static_cast<int>(layer.resplitter.bottleneck_ranks().size());
  if (set == 0 || set >= num_ranks_) return {};
  const double evidence = set * expected * (ratio * std::log(ratio) - ratio + 1.0);
  return {.imbalance = ratio - 1.0,
          .significant =
              evidence >= needed_ + log_choose(num_ranks_, set) + std::log(num_ranks_ - 1.0)};
}

}  // namespace wideep::online
