// SPDX-License-Identifier: Apache-2.0
//
// Small line charts with two logarithmic axes, side by side, as one SVG file.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace wideep::bench {

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y > 0
};

struct Chart {
  std::string title;
  std::string x;  // what the axis shows
  std::string y;
  std::vector<Line> lines;  // at most six
};

std::string charts_svg(const std::vector<Chart>& charts);

}  // namespace wideep::bench
