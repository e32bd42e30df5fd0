// SPDX-License-Identifier: Apache-2.0
//
// Literals of Python, in which some models write the arguments of their calls: None, True, False,
// numbers, texts in one or two quotes, lists, tuples, and dicts with texts as keys. JSON's words
// null, true and false are taken, too, for models that mix both.
//
// Thread safety: pure functions; a PythonScanner is a plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace wideep::answer {

// The literal as JSON; nullopt: it is none of the above, or nested deeper than
// formats::kMaxJsonDepth. White space around it is left out.
std::optional<std::string> python_literal_json(std::string_view text);

// Finds, byte by byte, where an argument of a call ends.
class PythonScanner {
 public:
  // Whether the byte is the ',' or ')' after the argument.
  bool ends_at(char byte);

 private:
  char quote_ = '\0';  // of the text around the place
  bool is_escaped_ = false;
  int depth_ = 0;  // of brackets
};

}  // namespace wideep::answer
