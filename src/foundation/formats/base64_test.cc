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

TEST(Base64, IsReadBack) {
  for (const std::string_view bytes : {"", "f", "fo", "foo", "foob"}) {
    EXPECT_EQ(from_base64(base64(bytes)), bytes);
  }
  EXPECT_EQ(from_base64("//4APg=="), std::string("\xff\xfe\x00\x3e", 4));
  // Without padding, with bits that mean nothing, of another alphabet.
  for (const char* text : {"Zg", "Zg=", "Zh==", "Zm9=", "Zm9-", "Zm 9v", "===="}) {
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace wideep::formats
