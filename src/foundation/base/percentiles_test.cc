// SPDX-License-Identifier: Apache-2.0
#include "base/percentiles.h"

#include <gtest/gtest.h>

namespace wideep::base {
namespace {

TEST(Percentiles, AreInterpolated) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Percentiles all = percentiles_of(values);
  EXPECT_DOUBLE_EQ(all.mean, 50.0);
  EXPECT_DOUBLE_EQ(all.median, 50.0);
  EXPECT_DOUBLE_EQ(all.p90, 90.0);
  EXPECT_DOUBLE_EQ(all.p95, 95.0);
  EXPECT_DOUBLE_EQ(all.p99, 99.0);
  EXPECT_DOUBLE_EQ(all.minimum, 0.0);
  EXPECT_DOUBLE_EQ(all.maximum, 100.0);
  EXPECT_DOUBLE_EQ(percentiles_of({1.0, 2.0}).median, 1.5);
  EXPECT_DOUBLE_EQ(percentiles_of({}).p99, 0.0);
}

}  // namespace
}  // namespace wideep::base
