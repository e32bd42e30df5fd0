// SPDX-License-Identifier: Apache-2.0
//
// The latest measured times, for quantiles of the present.
//
// Not thread safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <utility>

namespace wideep::server {

// Since 1970.
inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class RecentTimes {
 public:
  static constexpr size_t kMax = 8192;

  // at: when it was measured; must not decrease. seconds: the measured time.
  void add(double at, double seconds);

  struct Quantiles {
    size_t count = 0;
    double p50 = 0.0, p90 = 0.0, p99 = 0.0;  // seconds; 0 if count is 0
  };
  // The quantiles of the times with at ≥ from.
  Quantiles since(double from) const;

 private:
  std::deque<std::pair<double, double>> times_;
};

}  // namespace wideep::server
