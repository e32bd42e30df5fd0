// SPDX-License-Identifier: Apache-2.0
#include "server/histogram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace wideep::server {
namespace {

// "1e+06", "2.097152e+06": with as few digits as say the same number.
std::string shortest_exponential(double value) {
  constexpr int kMaxDigits = 17;
  std::string text;
  for (int digits = 0; digits < kMaxDigits; ++digits) {
    text = fmt::format("{:.{}e}", value, digits);
    if (std::strtod(text.c_str(), nullptr) == value) break;
  }
  return text;
}

// As Prometheus' client libraries write it: "1.0", "0.25", "1e+06". Buckets of several servers add
// up only where the texts of their bounds are the same.
std::string bound_text(double bound) {
  if (bound >= 1e6) return shortest_exponential(bound);
  std::string text = fmt::format("{}", bound);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

}  // namespace

void Histogram::add(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bound - bounds_.begin())];
  sum_ += value;
}

std::string Histogram::text(std::string_view name, std::string_view labels) const {
  std::string text;
  const std::string before = labels.empty() ? "" : std::string(labels) + ",";
  const std::string all = labels.empty() ? "" : fmt::format("{{{}}}", labels);
  uint64_t up_to = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    up_to += counts_[i];
    const std::string bound = i < bounds_.size() ? bound_text(bounds_[i]) : "+Inf";
    text += fmt::format("{}_bucket{{{}le=\"{}\"}} {}\n", name, before, bound, up_to);
  }
  return text + fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, all, sum_, up_to);
}

}  // namespace wideep::server
