// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_level.h"

#include <gtest/gtest.h>

#include <string>

namespace wideep::tokenizer {
namespace {

TEST(ByteLevelTest, IsGpt2sAlphabet) {
  EXPECT_EQ(byte_level_char('A'), "A");
  EXPECT_EQ(byte_level_char(' '), "Ġ");
  EXPECT_EQ(byte_level_char('\n'), "Ċ");
  EXPECT_EQ(byte_level_char(0x00), "Ā");
  EXPECT_EQ(byte_level_char(0xAD), "Ń");
  EXPECT_EQ(byte_level_char(0xE9), "é");
  EXPECT_EQ(to_byte_level(" é"), "ĠÃ©");
}

TEST(ByteLevelTest, RoundTrips) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  EXPECT_EQ(bytes_of_token(to_byte_level(bytes)), bytes);
}

TEST(ByteLevelTest, TokenOutsideTheAlphabetIsItsOwnUtf8) {
  EXPECT_EQ(bytes_of_token("<｜User｜>"), "<｜User｜>");
  EXPECT_EQ(bytes_of_token("a b"), "a b");  // the alphabet has no space
}

}  // namespace
}  // namespace wideep::tokenizer
