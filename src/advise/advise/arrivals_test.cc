// SPDX-License-Identifier: Apache-2.0
#include "advise/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>

namespace wideep::advise {
namespace {

TEST(Arrivals, PoissonProcessIsTheSameForTheSameSeed) {
  const std::vector<double> times = arrival_times({.request_rate = 50.0, .seed = 3}, 20'000);
  EXPECT_EQ(times, arrival_times({.request_rate = 50.0, .seed = 3}, 20'000));
  EXPECT_NE(times, arrival_times({.request_rate = 50.0, .seed = 4}, 20'000));
  EXPECT_EQ(times.front(), 0.0);
  // Gaps are exponential: mean and deviation 1/50, a share of 1/e of them longer than that.
  double sum = 0.0, squares = 0.0;
  int longer = 0;
  for (size_t i = 1; i < times.size(); ++i) {
    const double gap = times[i] - times[i - 1];
    ASSERT_GE(gap, 0.0);
    sum += gap;
    squares += gap * gap;
    if (gap > 0.02) ++longer;
  }
  const double gaps = static_cast<double>(times.size() - 1), mean = sum / gaps;
  EXPECT_NEAR(mean, 0.02, 0.0005);
  EXPECT_NEAR(std::sqrt(squares / gaps - mean * mean), 0.02, 0.0005);
  EXPECT_NEAR(longer / gaps, std::exp(-1.0), 0.01);
}

// Gaps of a gamma distribution: the mean is that of the rate, the variance mean² ÷ burstiness.
TEST(Arrivals, BurstinessIsTheShapeOfTheGaps) {
  for (const double shape : {0.3, 1.0, 4.0}) {
    const Arrivals arrivals{.request_rate = 50.0, .seed = 3, .burstiness = shape};
    const std::vector<double> times = arrival_times(arrivals, 40'000);
    EXPECT_EQ(times, arrival_times(arrivals, 40'000));
    double sum = 0.0, squares = 0.0;
    for (size_t i = 1; i < times.size(); ++i) {
      const double gap = times[i] - times[i - 1];
      ASSERT_GE(gap, 0.0);
      sum += gap;
      squares += gap * gap;
    }
    const double gaps = static_cast<double>(times.size() - 1), mean = sum / gaps;
    EXPECT_NEAR(mean, 0.02, 0.001) << shape;
    EXPECT_NEAR((squares / gaps - mean * mean) / (mean * mean), 1.0 / shape, 0.08 / shape) << shape;
  }
}

TEST(Arrivals, InfiniteRateMeansAllAtOnce) {
  EXPECT_EQ(arrival_times({}, 3), (std::vector<double>{0.0, 0.0, 0.0}));
}

}  // namespace
}  // namespace wideep::advise
