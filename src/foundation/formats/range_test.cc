// SPDX-License-Identifier: Apache-2.0
#include "formats/range.h"

#include <gtest/gtest.h>

#include <cmath>

namespace wideep::formats {
namespace {

TEST(Range, EndsAreIncluded) {
  const IntegerRange integers = {.min = 1, .max = 8};
  EXPECT_TRUE(integers.contains(1) && integers.contains(8));
  EXPECT_FALSE(integers.contains(0) || integers.contains(9));
  const NumberRange numbers = {.min = 0, .max = 1};
  EXPECT_TRUE(numbers.contains(0) && numbers.contains(1));
  EXPECT_FALSE(numbers.contains(-1e-9) || numbers.contains(1.1) || numbers.contains(NAN));
}

TEST(Range, DefaultsHoldEveryIntegerAndEveryFiniteNumber) {
  EXPECT_TRUE(IntegerRange{}.contains(INT64_MIN) && IntegerRange{}.contains(INT64_MAX));
  EXPECT_TRUE(NumberRange{}.contains(-1e308) && NumberRange{}.contains(5e-324));
  EXPECT_FALSE(NumberRange{}.contains(INFINITY) || NumberRange{}.contains(-INFINITY));
}

TEST(Range, DescribesTheEndsThatAreSet) {
  EXPECT_EQ(describe(IntegerRange{}), "an integer");
  EXPECT_EQ(describe(IntegerRange{.min = 1}), "an integer of at least 1");
  EXPECT_EQ(describe(IntegerRange{.max = -1}), "an integer of at most -1");
  EXPECT_EQ(describe(NumberRange{.min = 0.5, .max = 1}), "a number from 0.5 to 1");
}

TEST(ExactInteger, OnlyIntegersThatADoubleHoldsExactly) {
  EXPECT_EQ(exact_integer(10000.0), 10000);
  EXPECT_EQ(exact_integer(-0.0), 0);
  EXPECT_EQ(exact_integer(0x1p53), int64_t{1} << 53);
  EXPECT_EQ(exact_integer(-0x1p53), -(int64_t{1} << 53));
  for (const double value : {0.5, 0x1p53 + 2, 0x1p63, -0x1p63, 1e300, double(NAN), HUGE_VAL}) {
    EXPECT_EQ(exact_integer(value), std::nullopt) << value;
  }
}

}  // namespace
}  // namespace wideep::formats
