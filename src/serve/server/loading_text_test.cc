// SPDX-License-Identifier: Apache-2.0
#include "server/loading_text.h"

#include <gtest/gtest.h>

namespace wideep::server {
namespace {

using namespace std::chrono_literals;

TEST(LoadingText, SaysEachPercentAndThatItGoesOn) {
  LoadingText text(1000);
  LoadingText::Clock::time_point now = LoadingText::Clock::now();
  EXPECT_EQ(text.add(5, now), "loading weights 0 %");
  EXPECT_EQ(text.add(4, now), "");
  EXPECT_EQ(text.add(1, now), "loading weights 1 %");
  // A percent that takes ten minutes: a manager would have ended the start after two.
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(text.add(1, now + 29s), "");
    EXPECT_EQ(text.add(0, now + 30s), "loading weights 1 %");
    now += 30s;
  }
  EXPECT_EQ(text.add(2000, now), "loading weights 100 %");
  EXPECT_EQ(LoadingText(0).add(7), "loading weights 0 %");
}

}  // namespace
}  // namespace wideep::server
