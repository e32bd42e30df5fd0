// SPDX-License-Identifier: Apache-2.0
//
// Buckets by hand: which of them a value at a bound is in, and the text of bounds, which must be the
// one that Prometheus' client libraries write.
#include "server/histogram.h"

#include <gtest/gtest.h>

namespace wideep::server {
namespace {

TEST(Histogram, AValueAtABoundIsBelowIt) {
  Histogram times({0.5, 1, 2.5});
  for (const double each : {0.25, 1.0, 1.25, 4.0}) times.add(each);
  EXPECT_EQ(times.text("t"),
            "t_bucket{le=\"0.5\"} 1\n"
            "t_bucket{le=\"1.0\"} 2\n"
            "t_bucket{le=\"2.5\"} 3\n"
            "t_bucket{le=\"+Inf\"} 4\n"
            "t_sum 6.5\n"
            "t_count 4\n");
}

TEST(Histogram, LabelsComeFirstAndLargeBoundsHaveExponents) {
  Histogram tokens({500'000, 1'000'000, 2'000'000});
  tokens.add(1'500'000);
  EXPECT_EQ(tokens.text("n", "model_name=\"m\""),
            "n_bucket{model_name=\"m\",le=\"500000.0\"} 0\n"
            "n_bucket{model_name=\"m\",le=\"1e+06\"} 0\n"
            "n_bucket{model_name=\"m\",le=\"2e+06\"} 1\n"
            "n_bucket{model_name=\"m\",le=\"+Inf\"} 1\n"
            "n_sum{model_name=\"m\"} 1500000\n"
            "n_count{model_name=\"m\"} 1\n");
}

}  // namespace
}  // namespace wideep::server
