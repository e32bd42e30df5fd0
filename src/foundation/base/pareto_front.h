// SPDX-License-Identifier: Apache-2.0
//
// The points of which no other is better in one of two figures and at least as good in the other.
// More is better in both.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace wideep {

// x, y: members or functions of a point. The largest x first; of equal points one is kept.
template <typename Point, typename X, typename Y>
std::vector<Point> pareto_front(std::vector<Point> points, X x, Y y) {
  std::ranges::sort(points, std::greater(), [&](const Point& point) {
    return std::pair(std::invoke(x, point), std::invoke(y, point));
  });
  std::vector<Point> front;
  for (Point& point : points) {
    if (front.empty() || std::invoke(y, point) > std::invoke(y, front.back())) {
      front.push_back(std::move(point));
    }
  }
  return front;
}

}  // namespace wideep
