// SPDX-License-Identifier: Apache-2.0
//
// A simplex needs no derivatives, which a mean of absolute values does not have at its kinks. It
// may shrink where there is no minimum: so four descents follow each other, each from the best
// point of the one before with edges of another length. Nothing is random, so the same measurements
// give the same constants.
#include "cost/fit.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace wideep::cost {
namespace {

using Point = std::vector<double>;  // logarithms of the constants

struct Vertex {
  Point at;
  double error = 0.0;
};

// from + factor · (to − from)
Point along(const Point& from, const Point& to, double factor) {
  Point point(from.size());
  for (size_t i = 0; i < from.size(); ++i) point[i] = from[i] + factor * (to[i] - from[i]);
  return point;
}

Point centre_but_last(const std::vector<Vertex>& simplex) {
  Point centre(simplex[0].at.size(), 0.0);
  for (size_t v = 0; v + 1 < simplex.size(); ++v) {
    for (size_t i = 0; i < centre.size(); ++i) centre[i] += simplex[v].at[i];
  }
  for (double& each : centre) each /= static_cast<double>(simplex.size() - 1);
  return centre;
}

// One descent from `start`, whose simplex has edges of `edge`.
Vertex descend(const Vertex& start, double edge, const std::function<Vertex(Point)>& judge) {
  constexpr int kMaxSteps = 2000;
  constexpr double kSmallestGain = 1e-7;
  std::vector<Vertex> simplex = {start};
  for (size_t i = 0; i < start.at.size(); ++i) {
    Point at = start.at;
    at[i] += edge;
    simplex.push_back(judge(std::move(at)));
  }
  const auto by_error = [](const Vertex& a, const Vertex& b) { return a.error < b.error; };
  for (int step = 0; step < kMaxSteps; ++step) {
    std::ranges::sort(simplex, by_error);
    Vertex& worst = simplex.back();
    if (worst.error - simplex[0].error < kSmallestGain) break;
    const Point centre = centre_but_last(simplex);
    Vertex reflected = judge(along(centre, worst.at, -1.0));
    if (reflected.error < simplex[0].error) {
      Vertex expanded = judge(along(centre, worst.at, -2.0));
      worst = expanded.error < reflected.error ? std::move(expanded) : std::move(reflected);
    } else if (reflected.error < simplex[simplex.size() - 2].error) {
      worst = std::move(reflected);
    } else if (Vertex inside = judge(along(centre, worst.at, 0.5)); inside.error < worst.error) {
      worst = std::move(inside);
    } else {
      for (size_t v = 1; v < simplex.size(); ++v) {
        simplex[v] = judge(along(simplex[0].at, simplex[v].at, 0.5));
      }
    }
  }
  return *std::ranges::min_element(simplex, by_error);
}

Point exponentials(const Point& logarithms) {
  Point values(logarithms.size());
  std::ranges::transform(logarithms, values.begin(), [](double each) { return std::exp(each); });
  return values;
}

}  // namespace

std::vector<double> fit_constants(
    std::vector<double> start, const std::function<double(std::span<const double>)>& mean_error) {
  const auto judge = [&](Point at) {
    const double error = mean_error(exponentials(at));
    return Vertex{std::move(at), error};
  };
  for (double& each : start) {
    WIDEEP_CHECK(each > 0.0);
    each = std::log(each);
  }
  Vertex best = judge(std::move(start));
  // A simplex may shrink where there is no minimum; a new one from there goes on.
  for (const double edge : {0.7, 0.3, -0.5, 0.1}) best = descend(best, edge, judge);
  return exponentials(best.at);
}

double mean_log_error(std::span<const double> predicted, std::span<const double> measured) {
  WIDEEP_CHECK(predicted.size() == measured.size() && !measured.empty());
  double sum = 0.0;
  for (size_t i = 0; i < measured.size(); ++i)
    sum += std::abs(std::log(predicted[i] / measured[i]));
  return sum / static_cast<double>(measured.size());
}

std::vector<double> relative_errors(std::span<const double> predicted,
                                    std::span<const double> measured) {
  WIDEEP_CHECK(predicted.size() == measured.size());
  std::vector<double> errors(measured.size());
  for (size_t i = 0; i < errors.size(); ++i) errors[i] = std::abs(predicted[i] / measured[i] - 1.0);
  std::ranges::sort(errors);
  return errors;
}

}  // namespace wideep::cost
