// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace wideep::base {
namespace {

TEST(ByteSize, UsesTheLargestUnitThatFits) {
  EXPECT_EQ(byte_size(0), "0 B");
  EXPECT_EQ(byte_size(1023), "1023 B");
  EXPECT_EQ(byte_size(1024), "1.0 KiB");
  EXPECT_EQ(byte_size(1536), "1.5 KiB");
  EXPECT_EQ(byte_size(uint64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(byte_size(UINT64_MAX), "16.0 EiB");
}

TEST(ByteSize, NeverPrints1024OfAUnit) {
  EXPECT_EQ(byte_size((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(byte_size((1 << 30) - 1), "1.0 GiB");
}

}  // namespace
}  // namespace wideep::base
