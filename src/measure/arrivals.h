// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace wideep::measure {

// Requests that come by themselves, whether or not those before have been answered.
struct Arrivals {
  // A second, as a Poisson process; infinite: all at once.
  double request_rate = std::numeric_limits<double>::infinity();
  uint64_t seed = 0;
};

// When each of `count` requests comes, in seconds from the first: the same for the same seed.
std::vector<double> arrival_times(const Arrivals& arrivals, int count);

}  // namespace wideep::measure
