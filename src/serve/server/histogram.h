// SPDX-License-Identifier: Apache-2.0
//
// Counts of values up to each bound, and their sum: a histogram of Prometheus.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace wideep::server {

class Histogram {
 public:
  // Ascending.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void add(double value);
  // Lines "<name>_bucket{<labels>,le=…}", "<name>_sum{<labels>}", "<name>_count{<labels>}".
  std::string text(std::string_view name, std::string_view labels = {}) const;

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;  // the last: above all bounds
  double sum_ = 0.0;
};

}  // namespace wideep::server
