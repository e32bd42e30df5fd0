// SPDX-License-Identifier: Apache-2.0
#include "base/microscaling.h"

#include <gtest/gtest.h>

#include <cmath>

namespace wideep {
namespace {

TEST(E2m1, AllSixteenCodesRoundTrip) {
  // OCP Microscaling Formats 1.0, section 5.3.3: S EE M, bias 1, no infinity, no NaN.
  for (unsigned code = 0; code < 16; ++code) {
    const unsigned exponent = code >> 1 & 3u, fraction = code & 1u;
    const double magnitude =
        exponent == 0 ? fraction * 0.5 : std::ldexp(1.0 + fraction * 0.5, int(exponent) - 1);
    const float value = float_from_e2m1(code);
    EXPECT_EQ(std::abs(value), magnitude);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(e2m1_from_float(value), code);
  }
}

TEST(E2m1, RoundsToTheNearestTiesToEvenAndSaturates) {
  for (unsigned code = 0; code < 7; ++code) {
    const float middle = (kE2m1Magnitudes[code] + kE2m1Magnitudes[code + 1]) / 2;
    EXPECT_EQ(e2m1_from_float(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(e2m1_from_float(middle), code + code % 2);
    EXPECT_EQ(e2m1_from_float(std::nextafter(middle, 9.0f)), code + 1);
  }
  EXPECT_EQ(e2m1_from_float(1e30f), 7);
  EXPECT_EQ(e2m1_from_float(-INFINITY), 15);
}

TEST(E8m0, IsAPowerOfTwo) {
  EXPECT_EQ(float_from_e8m0(127), 1.0f);
  EXPECT_EQ(float_from_e8m0(0), 0x1p-127f);
  EXPECT_EQ(float_from_e8m0(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(float_from_e8m0(255)));
}

}  // namespace
}  // namespace wideep
