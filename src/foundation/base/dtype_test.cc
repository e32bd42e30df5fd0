// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace wideep {
namespace {

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(Bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(Bf16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie: to even, down
  EXPECT_EQ(Bf16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);  // tie: to even, up
  EXPECT_EQ(Bf16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(Bf16(std::numeric_limits<float>::max()).bits, 0x7f80);  // overflows to infinity
  EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = std::bit_cast<float>(bits << 16);
    if (!std::isnan(value)) {
      ASSERT_EQ(Bf16(value).bits, bits);
    }
  }
}

TEST(Dtype, NamesRoundTrip) {
  for (Dtype dtype :
       {Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF8E4M3, Dtype::kF8E8M0, Dtype::kI64,
        Dtype::kI32, Dtype::kI16, Dtype::kI8, Dtype::kU8, Dtype::kBool, Dtype::kF64}) {
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_from_name("F33").has_value());
}

TEST(F8E4M3, RoundsToTheNearest) {
  std::vector<float> finite;
  for (int bits = 0; bits < 0x7f; ++bits) {
    F8E4M3 element;
    element.bits = static_cast<uint8_t>(bits);
    finite.push_back(static_cast<float>(element));
    EXPECT_EQ(F8E4M3(finite.back()).bits, bits);
    EXPECT_EQ(F8E4M3(-finite.back()).bits, bits | 0x80);
  }
  EXPECT_EQ(finite[1], 0x1p-9f);
  EXPECT_EQ(finite[8], 0x1p-6f);
  EXPECT_EQ(finite[0x38], 1.0f);
  EXPECT_EQ(finite.back(), 448.0f);
  for (size_t i = 0; i + 1 < finite.size(); ++i) {
    const float middle = (finite[i] + finite[i + 1]) / 2;
    EXPECT_EQ(F8E4M3(std::nextafter(middle, 0.0f)).bits, i);
    EXPECT_EQ(F8E4M3(middle).bits, i + i % 2);  // ties to even
    EXPECT_EQ(F8E4M3(std::nextafter(middle, 1e9f)).bits, i + 1);
  }
}

TEST(F8E4M3, SaturatesAndKeepsNan) {
  EXPECT_EQ(F8E4M3(449.0f).bits, 0x7e);
  EXPECT_EQ(F8E4M3(-1e30f).bits, 0xfe);
  EXPECT_EQ(F8E4M3(INFINITY).bits, 0x7e);
  EXPECT_EQ(F8E4M3(NAN).bits & 0x7f, 0x7f);
  EXPECT_TRUE(std::isnan(static_cast<float>(F8E4M3(NAN))));
}

}  // namespace
}  // namespace wideep
