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
       {Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF8E4M3, Dtype::kI64, Dtype::kI32,
        Dtype::kI16, Dtype::kI8, Dtype::kU8, Dtype::kBool, Dtype::kF64}) {
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_from_name("F33").has_value());
}

}  // namespace
}  // namespace wideep
