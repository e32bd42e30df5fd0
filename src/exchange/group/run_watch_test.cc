// SPDX-License-Identifier: Apache-2.0
#include "group/run_watch.h"

#include <gtest/gtest.h>

namespace wideep::transport {
namespace {

// A process that was started a moment ago may not have run at all.
TEST(RunWatch, TheFirstLookIsNoSilence) {
  RunWatch watch;
  const auto none = [] { return uint64_t{0}; };
  EXPECT_EQ(watch.note(0, none), 0);
  EXPECT_EQ(watch.note(0, none), 1);
  EXPECT_EQ(watch.note(0, none), 2);
  EXPECT_EQ(watch.note(5, none), 0);
}

TEST(RunWatch, AnyThreadThatRunsIsEnough) {
  RunWatch watch;
  uint64_t all = 7;
  const auto of_all = [&] { return all; };
  EXPECT_EQ(watch.note(5, of_all), 0);
  EXPECT_EQ(watch.note(5, of_all), 0);  // nothing to compare the other threads with
  EXPECT_EQ(watch.note(5, of_all), 1);
  all = 8;
  EXPECT_EQ(watch.note(5, of_all), 0);
  EXPECT_EQ(watch.note(5, of_all), 1);
}

}  // namespace
}  // namespace wideep::transport
