// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <gtest/gtest.h>

namespace wideep::base {
namespace {

TEST(Printable, KeepsPlainText) { EXPECT_EQ(printable("hidden_size = 3!"), "hidden_size = 3!"); }

TEST(Printable, StaysOnOneLineOfAscii) {
  EXPECT_EQ(printable("a\nb\tc\x1b[31m\xff\x7f"), R"(a\nb\tc\x1b[31m\xff\x7f)");
  EXPECT_EQ(printable(std::string_view("\0", 1)), R"(\x00)");
}

TEST(Printable, ShortensLongText) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abcdef...");
}

}  // namespace
}  // namespace wideep::base
