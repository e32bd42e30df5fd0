// SPDX-License-Identifier: Apache-2.0
#include "advise/arrivals.h"

#include <cmath>
#include <cstddef>
#include <random>

namespace wideep::advise {

// Exponential gaps by inversion, -ln(1 - u) / rate. Not std::exponential_distribution: its results
// differ between standard libraries, so a seed would not name one load.
std::vector<double> arrival_times(const Arrivals& arrivals, int count) {
  std::vector<double> times(static_cast<size_t>(count), 0.0);
  if (std::isinf(arrivals.request_rate)) return times;
  std::mt19937_64 rng(arrivals.seed);
  double now = 0.0;
  for (double& time : times) {
    time = now;
    const double uniform = static_cast<double>(rng() >> 11) * 0x1p-53;  // [0, 1)
    now -= std::log1p(-uniform) / arrivals.request_rate;
  }
  return times;
}

}  // namespace wideep::advise
