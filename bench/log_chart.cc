// SPDX-License-Identifier: Apache-2.0
#include "log_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace wideep::bench {
namespace {

constexpr double kWidth = 420, kHeight = 340;  // of a chart
constexpr double kLeft = 64, kRight = 14, kTop = 34, kBottom = 44;
constexpr std::array kColors = {"#0b6e99", "#c2570c", "#3f7d20", "#7b3fa0", "#a3243b", "#6b6b6b"};

// A logarithmic axis of whole powers of a base.
struct Axis {
  double base;
  int first, last;       // exponents
  double start, length;  // in the picture; negative length: upwards

  double at(double value) const {
    const double exponent = std::log(value) / std::log(base);
    return start + length * (exponent - first) / std::max(1, last - first);
  }
};

Axis axis_of(const Chart& chart, bool is_x, double base, double start, double length) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const Line& line : chart.lines) {
    for (const auto& [x, y] : line.points) {
      low = std::min(low, is_x ? x : y);
      high = std::max(high, is_x ? x : y);
    }
  }
  const auto exponent = [base](double value) { return std::log(value) / std::log(base); };
  return {base, static_cast<int>(std::floor(exponent(low) + 1e-9)),
          static_cast<int>(std::ceil(exponent(high) - 1e-9)), start, length};
}

std::string text(double x, double y, const char* anchor, const std::string& content) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     content);
}

std::string grid_line(double x1, double y1, double x2, double y2) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", x1, y1,
      x2, y2);
}

std::string axes(const Chart& chart, const Axis& x, const Axis& y) {
  const double right = x.start + x.length, top = y.start + y.length;
  std::string svg;
  for (int e = x.first; e <= x.last; ++e) {
    const double value = std::pow(x.base, e), at = x.at(value);
    svg += grid_line(at, y.start, at, top) +
           text(at, y.start + 16, "middle", fmt::format("{:g}", value));
  }
  for (int e = y.first; e <= y.last; ++e) {
    const double value = std::pow(y.base, e), at = y.at(value);
    svg += grid_line(x.start, at, right, at) +
           text(x.start - 6, at + 4, "end", fmt::format("{:g}", value));
  }
  return svg + text((x.start + right) / 2, y.start + 34, "middle", chart.x) +
         text(x.start - 50, top - 8, "start", chart.y) +
         fmt::format(
             "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" "
             "font-weight=\"bold\">{}</text>\n",
             (x.start + right) / 2, top - 18, chart.title);
}

std::string line_svg(const Line& line, size_t idx, const Axis& x, const Axis& y) {
  std::string points;
  std::string dots;
  for (const auto& [px, py] : line.points) {
    points += fmt::format("{:.1f},{:.1f} ", x.at(px), y.at(py));
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n", x.at(px),
                        y.at(py), kColors[idx % kColors.size()]);
  }
  const double key_y = kTop + 14 + 15 * static_cast<double>(idx);
  return fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>\n",
                     points, kColors[idx % kColors.size()]) +
         dots +
         fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\">{}</text>\n", x.start + 8, key_y,
                     kColors[idx % kColors.size()], line.name);
}

}  // namespace

std::string charts_svg(const std::vector<Chart>& charts) {
  const double width = kWidth * static_cast<double>(charts.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
      width, kHeight);
  for (size_t i = 0; i < charts.size(); ++i) {
    const double left = kWidth * static_cast<double>(i) + kLeft;
    const Axis x = axis_of(charts[i], true, 2, left, kWidth - kLeft - kRight);
    const Axis y = axis_of(charts[i], false, 10, kHeight - kBottom, kTop + kBottom - kHeight);
    svg += axes(charts[i], x, y);
    for (size_t k = 0; k < charts[i].lines.size(); ++k) {
      svg += line_svg(charts[i].lines[k], k, x, y);
    }
  }
  return svg + "</svg>\n";
}

}  // namespace wideep::bench
