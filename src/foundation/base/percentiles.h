// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace wideep::base {

// In the unit of the values. Percentiles are interpolated linearly between the two nearest values,
// as in numpy.
struct Percentiles {
  double mean = 0.0;
  double median = 0.0;
  double p90 = 0.0;
  double p95 = 0.0;
  double p99 = 0.0;
  double minimum = 0.0;
  double maximum = 0.0;
};

// All zero if there are no values.
Percentiles percentiles_of(std::vector<double> values);

}  // namespace wideep::base
