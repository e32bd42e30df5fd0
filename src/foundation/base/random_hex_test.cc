// SPDX-License-Identifier: Apache-2.0
#include "base/random_hex.h"

#include <gtest/gtest.h>

#include <set>

namespace wideep::base {
namespace {

TEST(RandomHex, HasTwoDigitsOfEachByteAndDiffers) {
  std::set<std::string> all;
  for (int i = 0; i < 1000; ++i) all.insert(random_hex(8));
  EXPECT_EQ(all.size(), 1000u);
  std::set<char> digits;
  for (const std::string& each : all) {
    EXPECT_EQ(each.size(), 16u);
    digits.insert(each.begin(), each.end());
  }
  const std::string_view expected = "0123456789abcdef";
  EXPECT_EQ(digits, std::set<char>(expected.begin(), expected.end()));
  EXPECT_EQ(random_hex(32).size(), 64u);
}

TEST(RandomHex, IsNeverZero) {
  for (int i = 0; i < 10'000; ++i) ASSERT_NE(random_hex(1), "00");
}

}  // namespace
}  // namespace wideep::base
