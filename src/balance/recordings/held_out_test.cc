// SPDX-License-Identifier: Apache-2.0
#include "recordings/held_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace wideep::recordings {
namespace {

using ::testing::HasSubstr;

// Counts 0, 1, 2, ... of two layers and three experts, from iteration 10 on.
ExpertStatistics statistics_of(int num_iterations) {
  ExpertStatistics statistics{.num_experts = 3,
                              .iter_start = 10,
                              .iter_stop = 10 + num_iterations,
                              .layers = {1, 2},
                              .counts = {}};
  statistics.counts.resize(static_cast<size_t>(num_iterations) * 6);
  std::iota(statistics.counts.begin(), statistics.counts.end(), 0);
  return statistics;
}

TEST(HoldOutLast, CutsTheEndOff) {
  const ExpertStatistics all = statistics_of(5);
  const Result<HeldOut> cut = hold_out_last(all, 0.4);
  ASSERT_TRUE(cut.ok()) << cut.status().message();
  EXPECT_EQ(cut->earlier.iter_start, 10);
  EXPECT_EQ(cut->earlier.iter_stop, 13);
  EXPECT_EQ(cut->later.iter_start, 13);
  EXPECT_EQ(cut->later.iter_stop, 15);
  std::vector<int64_t> counts = cut->earlier.counts;
  counts.insert(counts.end(), cut->later.counts.begin(), cut->later.counts.end());
  EXPECT_EQ(counts, all.counts);
}

TEST(HoldOutLast, LeavesAnIterationOnBothSides) {
  EXPECT_EQ(hold_out_last(statistics_of(3), 1e-9)->later.num_iterations(), 1);
  EXPECT_EQ(hold_out_last(statistics_of(3), 0.999)->earlier.num_iterations(), 1);
}

TEST(HoldOutLast, RefusesInvalidFractionsAndSingleIterations) {
  for (const double fraction : {0.0, 1.0, -0.5, 1.5, std::nan("")}) {
    const Result<HeldOut> cut = hold_out_last(statistics_of(4), fraction);
    ASSERT_FALSE(cut.ok()) << fraction;
    EXPECT_THAT(cut.status().message(), HasSubstr("between 0 and 1"));
  }
  const Result<HeldOut> cut = hold_out_last(statistics_of(1), 0.5);
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.status().message(), HasSubstr("found 1"));
}

TEST(CheckSameExperts, NamesWhatDiffers) {
  const ExpertStatistics expected = statistics_of(1);
  EXPECT_TRUE(check_same_experts(expected, statistics_of(7)).ok());
  ExpertStatistics other = expected;
  other.num_experts = 4;
  EXPECT_THAT(check_same_experts(expected, other).message(), HasSubstr("found 4"));
  other = expected;
  other.layers = {1, 2, 3};
  EXPECT_THAT(check_same_experts(expected, other).message(),
              HasSubstr("layer 3 is in the held-out"));
  EXPECT_THAT(check_same_experts(other, expected).message(),
              HasSubstr("layer 3 is in the statistics planned on"));
}

}  // namespace
}  // namespace wideep::recordings
