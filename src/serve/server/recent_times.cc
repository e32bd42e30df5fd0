// SPDX-License-Identifier: Apache-2.0
#include "server/recent_times.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace wideep::server {

void RecentTimes::add(double at, double seconds) {
  times_.emplace_back(at, seconds);
  if (times_.size() > kMax) times_.pop_front();
}

RecentTimes::Quantiles RecentTimes::since(double from) const {
  std::vector<double> values;
  for (auto each = times_.rbegin(); each != times_.rend() && each->first >= from; ++each) {
    values.push_back(each->second);
  }
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  // Nearest rank: the smallest value with at least this share of the values at or below it.
  const auto quantile = [&](double share) {
    const double place = std::ceil(share * static_cast<double>(values.size())) - 1.0;
    return values[static_cast<size_t>(std::max(place, 0.0))];
  };
  return {
      .count = values.size(), .p50 = quantile(0.5), .p90 = quantile(0.9), .p99 = quantile(0.99)};
}

}  // namespace wideep::server
