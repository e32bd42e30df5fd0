// SPDX-License-Identifier: Apache-2.0
#include "formats/base64.h"

#include <gtest/gtest.h>

namespace wideep::formats {
namespace {

// The examples of RFC 4648, section 10.
TEST(Base64, IsThatOfTheRfc) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

TEST(Base64, TakesEveryByte) {
  EXPECT_EQ(base64(std::string_view("\xff\xfe\x00\x3e", 4)), "//4APg==");
}

}  // namespace
}  // namespace wideep::formats
