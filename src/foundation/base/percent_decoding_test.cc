// SPDX-License-Identifier: Apache-2.0
#include "base/percent_decoding.h"

#include <gtest/gtest.h>

namespace wideep::base {
namespace {

TEST(PercentDecoding, BytesStandForThemselvesOrAreWrittenInHexadecimal) {
  EXPECT_EQ(percent_decoded(""), "");
  EXPECT_EQ(percent_decoded("a+b c"), "a+b c");
  EXPECT_EQ(percent_decoded("%41%c3%A4%25"), "A\xc3\xa4%");
  EXPECT_EQ(percent_decoded("%00x"), std::string("\0x", 2));
}

TEST(PercentDecoding, TwoDigitsFollowEachSign) {
  for (const char* wrong : {"%", "%4", "a%", "%4g", "%g4", "%%41", "%-1", "%@0"}) {
    EXPECT_EQ(percent_decoded(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace wideep::base
