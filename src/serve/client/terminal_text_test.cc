// SPDX-License-Identifier: Apache-2.0
#include "client/terminal_text.h"

#include <gtest/gtest.h>

namespace wideep::client {
namespace {

TEST(TerminalText, KeepsText) {
  for (const char* text : {"", "plain\n\ttext ~", "\u00e4\u4f60\U0001F600\u00a0", "\ufffd"}) {
    EXPECT_EQ(terminal_text(text), text);
  }
}

TEST(TerminalText, LeavesOutWhatDrivesATerminal) {
  EXPECT_EQ(terminal_text("a\x1b[31mb\x1b]0;title\x07"
                          "c"),
            "a[31mb]0;titlec");
  EXPECT_EQ(terminal_text("a\rb\bc\x7f"
                          "d\v\f"),
            "abcd");
  EXPECT_EQ(terminal_text(std::string_view("a\0b", 3)), "ab");
  EXPECT_EQ(terminal_text("a\u0080\u009b31m\u009fb"), "a31mb");    // C1 as UTF-8
  EXPECT_EQ(terminal_text("a\u202eb\u2066c\u2069\u2028"), "abc");  // turns text around
  for (int code = 0; code < 0x20; ++code) {
    const bool stays = code == '\n' || code == '\t';
    EXPECT_EQ(terminal_text(std::string(1, static_cast<char>(code))).size(), stays ? 1u : 0u)
        << code;
  }
}

TEST(TerminalText, MarksWhatIsNotUtf8) {
  EXPECT_EQ(terminal_text("a\x9b"
                          "31m"),
            "a\ufffd31m");  // C1 as a byte
  EXPECT_EQ(terminal_text("\xc2"), "\ufffd");
  EXPECT_EQ(terminal_text("\xc0\x9b"), "\ufffd\ufffd");            // ESC's like in two bytes
  EXPECT_EQ(terminal_text("\xe0\x82\x9b"), "\ufffd\ufffd\ufffd");  // in three
  EXPECT_EQ(terminal_text("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");  // a surrogate
  EXPECT_EQ(terminal_text("\xf5\x80\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");
}

TEST(TerminalText, FindsWhatIsNotUtf8) {
  EXPECT_EQ(no_utf8_at(""), std::nullopt);
  EXPECT_EQ(no_utf8_at("a\u00e4\u4f60\U0001f600\x1b"), std::nullopt);
  EXPECT_EQ(no_utf8_at("f\xfcr"), 1u);
  EXPECT_EQ(no_utf8_at("\u00e4\xc3"), 2u);
}

TEST(TerminalText, ALineIsOneLineAndShort) {
  EXPECT_EQ(terminal_line("a\nb\tc\x1b"), "a b c");
  EXPECT_EQ(terminal_line("abcdef", 3), "abc...");
  EXPECT_EQ(terminal_line("ab\u00e4", 3), "ab...");  // no half characters
  EXPECT_EQ(terminal_line("abc", 3), "abc");
}

}  // namespace
}  // namespace wideep::client
