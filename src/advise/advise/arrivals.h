// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace wideep::advise {

// Open-loop load: requests arrive at their own times, whether or not earlier ones are answered.
struct Arrivals {
  // Requests per second, as a Poisson process; infinite: all at once.
  double request_rate = std::numeric_limits<double>::infinity();
  uint64_t seed = 0;
  // Shape of the gamma distribution of the gaps between requests: 1: a Poisson process; less: more
  // bursts; more: more even. Above 0.
  double burstiness = 1.0;
};

// Arrival times of `count` requests in seconds from the first; the same on every machine for the
// same seed.
std::vector<double> arrival_times(const Arrivals& arrivals, int count);

}  // namespace wideep::advise
