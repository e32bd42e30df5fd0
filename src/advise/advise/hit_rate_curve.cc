// SPDX-License-Identifier: Apache-2.0
#include "advise/hit_rate_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace wideep::advise {
namespace {

constexpr std::array kTokens = {1.0, 8.0, 32.0};
// By kTokens and curve_shares(): `wideep balance cache --trace … --batch 1,8,32
// --experts-in-memory 0.05,0.1,…` (docs/beyond_memory.md).
using RecordedRates = std::array<std::array<double, 12>, kTokens.size()>;
constexpr RecordedRates kDeepSeekV2Lite = {
    {{0.197, 0.313, 0.482, 0.547, 0.605, 0.703, 0.785, 0.851, 0.905, 0.927, 0.946, 0.980},
     {0.097, 0.184, 0.339, 0.407, 0.469, 0.585, 0.685, 0.773, 0.850, 0.884, 0.915, 0.968},
     {0.058, 0.116, 0.232, 0.289, 0.345, 0.456, 0.562, 0.666, 0.764, 0.811, 0.856, 0.938}}};
constexpr RecordedRates kGptOss20b = {
    {{0.243, 0.398, 0.615, 0.697, 0.767, 0.869, 0.932, 0.968, 0.986, 0.991, 0.995, 0.999},
     {0.094, 0.188, 0.365, 0.447, 0.526, 0.671, 0.790, 0.881, 0.945, 0.967, 0.982, 0.997},
     {0.063, 0.128, 0.256, 0.319, 0.383, 0.511, 0.636, 0.756, 0.862, 0.906, 0.942, 0.989}}};

HitRateCurve curve_of(const RecordedRates& rates, double tokens, const std::string& name) {
  const double place = std::clamp(tokens, kTokens.front(), kTokens.back());
  size_t above = 1;
  while (kTokens[above] < place) ++above;
  const double part =
      std::log(place / kTokens[above - 1]) / std::log(kTokens[above] / kTokens[above - 1]);
  HitRateCurve curve{.source = fmt::format("recorded routing of {}", name), .points = {}};
  for (size_t i = 0; i < curve_shares().size(); ++i) {
    curve.points.push_back(
        {curve_shares()[i], std::lerp(rates[above - 1][i], rates[above][i], part)});
  }
  return curve;
}

}  // namespace

double HitRateCurve::at(double share) const {
  HitRatePoint below{0.0, 0.0}, above{1.0, 1.0};
  for (const HitRatePoint& point : points) {
    if (point.share <= share) {
      below = point;
    } else {
      above = point;
      break;
    }
  }
  if (share >= 1.0) return 1.0;
  const double part = (share - below.share) / (above.share - below.share);
  return std::lerp(below.rate, above.rate, part);
}

const std::vector<double>& curve_shares() {
  static const std::vector<double> shares = {0.05, 0.1, 0.2, 0.25, 0.3, 0.4,
                                             0.5,  0.6, 0.7, 0.75, 0.8, 0.9};
  return shares;
}

HitRates recorded_hit_rates(double tokens) {
  return {.expected = curve_of(kDeepSeekV2Lite, tokens, "DeepSeek-V2-Lite"),
          .upper = curve_of(kGptOss20b, tokens, "gpt-oss-20b")};
}

}  // namespace wideep::advise
