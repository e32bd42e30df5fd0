// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace wideep::base {
namespace {

// Expected values: Python's bytes.decode(errors="replace") and table 3-8 of the Unicode standard.
TEST(Utf8Test, ReplacesMaximalSubparts) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("\x80"), r);
  EXPECT_EQ(replace_invalid_utf8("\xC0\x80"), r + r);
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), r);
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82x"), r + "x");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
}

TEST(Utf8Test, KeepsEveryCodePoint) {
  std::string all;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string one;
    append_utf8(c, &one);
    ASSERT_EQ(first_code_point(one), c);
    ASSERT_EQ(last_code_point("a" + one), c);
    ASSERT_EQ(first_unit(one).bytes, one.size());
    all += one;
  }
  EXPECT_TRUE(is_valid_utf8(all));
  EXPECT_EQ(replace_invalid_utf8(all), all);
}

TEST(Utf8Test, CountsTheBytesOfAnIncompleteEnd) {
  EXPECT_EQ(cut_short_bytes(""), 0u);
  EXPECT_EQ(cut_short_bytes("a"), 0u);
  EXPECT_EQ(cut_short_bytes("a\xC3"), 1u);
  EXPECT_EQ(cut_short_bytes("\xC3\xA9"), 0u);
  EXPECT_EQ(cut_short_bytes("\xE2\x82"), 2u);
  EXPECT_EQ(cut_short_bytes("\xF0\x9F\x98"), 3u);
  EXPECT_EQ(cut_short_bytes("\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(cut_short_bytes("\xED\xA0"), 0u);  // no continuation makes it valid
  EXPECT_EQ(cut_short_bytes("\x80\x80\x80"), 0u);
  EXPECT_EQ(cut_short_bytes("\xF5"), 0u);
}

}  // namespace
}  // namespace wideep::base
