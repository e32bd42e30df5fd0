// SPDX-License-Identifier: Apache-2.0
#include "formats/python_json.h"

#include <gtest/gtest.h>

namespace wideep::formats {
namespace {

std::string quoted(std::string text) {
  quote_python_numbers(&text);
  return text;
}

TEST(PythonJson, NumbersThatJsonDoesNotHaveBecomeStrings) {
  EXPECT_EQ(quoted(R"({"a": NaN, "b": [Infinity,-Infinity], "c": 1})"),
            R"({"a": "NaN", "b": ["Infinity","-Infinity"], "c": 1})");
  EXPECT_EQ(quoted("NaN"), "\"NaN\"");
}

TEST(PythonJson, AllElseStaysAsItIs) {
  for (const char* text : {R"({"NaN": "Infinity, \" NaN, -Infinity", "b\\": 2})", "NaNs", "xNaN",
                           "_Infinity", R"(["\\", "NaN"])", "--Infinit", "", "\"", "\"\\"}) {
    EXPECT_EQ(quoted(text), text);
  }
}

}  // namespace
}  // namespace wideep::formats
