// SPDX-License-Identifier: Apache-2.0
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/dtype.h"

namespace wideep {
namespace {

TEST(Half, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = float_from_f16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float_from_f16(f16_from_float(value))));
    } else {
      ASSERT_EQ(f16_from_float(value), bits);
    }
  }
}

// Between two neighbours: the nearer one, and of equally near ones the even one.
TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = float_from_f16(static_cast<uint16_t>(bits));
    const float high = float_from_f16(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // exact: halves have 13 bits less
    ASSERT_EQ(f16_from_float(middle), bits + bits % 2);
    ASSERT_EQ(f16_from_float(std::nextafter(middle, high)), bits + 1);
    ASSERT_EQ(f16_from_float(std::nextafter(-middle, -low)), 0x8000 | bits);
  }
  EXPECT_EQ(f16_from_float(65519.0f), 0x7bff);
  EXPECT_EQ(f16_from_float(65520.0f), 0x7c00);
  EXPECT_EQ(f16_from_float(-std::numeric_limits<float>::infinity()), 0xfc00);
}

}  // namespace
}  // namespace wideep
