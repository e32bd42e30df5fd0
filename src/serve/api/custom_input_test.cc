// SPDX-License-Identifier: Apache-2.0
#include "api/custom_input.h"

#include <gtest/gtest.h>

#include <utility>

namespace wideep::server {
namespace {

// The text of arguments that come in pieces of this many bytes.
std::string text_of(std::string_view arguments, size_t piece, bool* is_whole = nullptr) {
  CustomInput input;
  std::string text;
  for (size_t at = 0; at < arguments.size(); at += piece)
    text += input.push(arguments.substr(at, piece));
  text += input.finish();
  if (is_whole != nullptr) *is_whole = input.is_whole();
  return text;
}

TEST(CustomInputTest, TextComesOutOfItsArgumentsInAnyPieces) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"input": "ls -l"})", "ls -l"},
      {R"( {  "input"  :  "a" } )", "a"},
      {R"({"input": ""})", ""},
      {R"({"input": "a\"b\\c\nd\te\/f\u00e9\ud83d\ude00!"})", "a\"b\\c\nd\te/f\u00e9\U0001F600!"},
      {R"({"other": 1, "input": "late"})", "late"},
      // What is of another form is the text.
      {R"({"command": "ls"})", R"({"command": "ls"})"},
      {R"({"input": 5})", R"({"input": 5})"},
      {R"(ls -l)", "ls -l"},
      {R"("ls")", R"("ls")"},
  };
  for (const auto& [arguments, text] : kCases) {
    for (const size_t piece : {1, 2, 3, 7, 100})
      EXPECT_EQ(text_of(arguments, piece), text) << arguments;
  }
}

TEST(CustomInputTest, ItIsTakenAsItComes) {
  CustomInput input;
  EXPECT_EQ(input.push(R"({"inp)"), "");
  EXPECT_EQ(input.push(R"(ut": "*** Begin)"), "*** Begin");
  EXPECT_EQ(input.push(R"( Patch\)"), " Patch");
  EXPECT_EQ(input.push(R"(n+\ud83d)"), "\n+");
  EXPECT_EQ(input.push(R"(\ude00)"), "\U0001F600");
  EXPECT_FALSE(input.is_whole());
  EXPECT_EQ(input.push(R"("})"), "");
  EXPECT_TRUE(input.is_whole());
  EXPECT_EQ(input.finish(), "");
}

TEST(CustomInputTest, WhatIsCutIsNotWhole) {
  bool is_whole = true;
  EXPECT_EQ(text_of(R"({"input": "half of)", 4, &is_whole), "half of");
  EXPECT_FALSE(is_whole);
}

TEST(CustomInputTest, ArgumentsOfATextAreReadAgain) {
  const std::string text = "a \"b\"\n\\ \u00e9";
  EXPECT_EQ(text_of(CustomInput::arguments(text), 3), text);
}

}  // namespace
}  // namespace wideep::server
