// SPDX-License-Identifier: Apache-2.0
#include "advise/arrivals.h"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <random>

namespace wideep::advise {

namespace {

// In [0, 1).
double uniform(std::mt19937_64& rng) { return static_cast<double>(rng() >> 11) * 0x1p-53; }

// Of mean `shape`, by the method of Marsaglia and Tsang. As for exponential gaps, not the standard
// library's distribution.
double gamma(double shape, std::mt19937_64& rng) {
  if (shape < 1.0) return gamma(shape + 1.0, rng) * std::pow(1.0 - uniform(rng), 1.0 / shape);
  const double d = shape - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double radius = std::sqrt(-2.0 * std::log1p(-uniform(rng)));
    const double normal = radius * std::cos(2.0 * std::numbers::pi * uniform(rng));
    const double root = 1.0 + c * normal;
    if (root <= 0.0) continue;
    const double v = root * root * root;
    if (std::log1p(-uniform(rng)) < 0.5 * normal * normal + d - d * v + d * std::log(v))
      return d * v;
  }
}

}  // namespace

// Exponential gaps by inversion, -ln(1 - u) / rate. Not std::exponential_distribution: its results
// differ between standard libraries, so a seed would not name one load.
std::vector<double> arrival_times(const Arrivals& arrivals, int count) {
  std::vector<double> times(static_cast<size_t>(count), 0.0);
  if (std::isinf(arrivals.request_rate)) return times;
  std::mt19937_64 rng(arrivals.seed);
  double now = 0.0;
  for (double& time : times) {
    time = now;
    const double shape = arrivals.burstiness;
    now += (shape == 1.0 ? -std::log1p(-uniform(rng)) : gamma(shape, rng) / shape) /
           arrivals.request_rate;
  }
  return times;
}

}  // namespace wideep::advise
