// SPDX-License-Identifier: Apache-2.0
#include "server/iteration_watch.h"

#include <gtest/gtest.h>

namespace wideep::server {
namespace {

TEST(IterationWatch, BeforeTheFirstIterationHalfTheTimeoutCounts) {
  IterationWatch watch(30);
  EXPECT_FALSE(watch.overdue(114.9, 100));
  EXPECT_DOUBLE_EQ(watch.overdue(115.5, 100).value(), 15.5);
}

TEST(IterationWatch, TheLimitFollowsTheLongestIteration) {
  IterationWatch watch(30);
  watch.ended(1, 0.01);
  EXPECT_FALSE(watch.overdue(2.9, 0));  // short iterations: 2 s
  EXPECT_TRUE(watch.overdue(3.1, 0));
  watch.ended(4, 0.5);
  watch.ended(5, 0.01);
  EXPECT_FALSE(watch.overdue(9.9, 0));
  EXPECT_TRUE(watch.overdue(10.1, 0));
  watch.ended(20, 9);
  EXPECT_FALSE(watch.overdue(34.9, 0));
  EXPECT_TRUE(watch.overdue(35.1, 0));  // half the timeout, not ten times 9 s
}

TEST(IterationWatch, IdleTimeDoesNotCount) {
  IterationWatch watch(30);
  watch.ended(1, 0.01);
  EXPECT_FALSE(watch.overdue(1001, 1000));
  EXPECT_TRUE(watch.overdue(1002.5, 1000));
}

TEST(IterationWatch, AShortTimeoutBoundsTheLimit) {
  IterationWatch watch(1);
  watch.ended(1, 0.01);
  EXPECT_TRUE(watch.overdue(1.6, 0));
}

}  // namespace
}  // namespace wideep::server
