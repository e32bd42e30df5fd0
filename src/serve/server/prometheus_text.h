// SPDX-License-Identifier: Apache-2.0
//
// Metrics in Prometheus' text format
// (https://prometheus.io/docs/instrumenting/exposition_formats/): help and type of a metric once,
// then a line for each of its values.
//
// Thread safety: pure functions.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace wideep::server {

// type: "counter", "gauge" or "histogram".
inline std::string metric_head(std::string_view name, std::string_view type,
                               std::string_view help) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

// One that has a single value, without labels.
template <typename T>
std::string metric(std::string_view name, std::string_view type, std::string_view help,
                   const T& value) {
  return metric_head(name, type, help) + fmt::format("{} {}\n", name, value);
}

// A value of a label, without its quotes.
std::string label_text(std::string_view value);

}  // namespace wideep::server
