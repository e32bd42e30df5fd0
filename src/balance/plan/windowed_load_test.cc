// SPDX-License-Identifier: Apache-2.0
#include "plan/windowed_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::balance {
namespace {

using ::testing::ElementsAre;

TEST(PartsOfWindows, EveryWindowCountsTheSame) {
  const Windows windows = {{1, 3}, {0, 0}, {50, 150}};
  EXPECT_THAT(parts_of_windows(windows),
              ElementsAre(ElementsAre(0.25, 0.75), ElementsAre(0, 0), ElementsAre(0.25, 0.75)));
}

}  // namespace
}  // namespace wideep::balance
