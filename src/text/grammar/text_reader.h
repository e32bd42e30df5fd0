// SPDX-License-Identifier: Apache-2.0
//
// What the readers of patterns and of grammars have in common: characters, escapes, repeats.
//
// Not thread safe.
#pragma once

#include <string_view>

#include "wideep/status.h"

namespace wideep::grammar {

class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  std::string_view rest() const { return text_.substr(at_); }
  char peek() const { return text_[at_]; }  // REQUIRES: not at the end
  void skip(size_t bytes) { at_ += bytes; }
  bool take(char byte) { return take(std::string_view(&byte, 1)); }
  bool take(std::string_view bytes) {
    if (!rest().starts_with(bytes)) return false;
    at_ += bytes.size();
    return true;
  }

  // Invalid input: "at byte 5: …".
  Status error(std::string_view what) const;

  // Errors: not UTF-8. REQUIRES: not at the end.
  Result<char32_t> character();
  // Behind a \: t n r f v 0 xHH uHHHH (with a second one for a surrogate) u{H…} UHHHHHHHH, or any
  // sign. Errors: any other letter or digit.
  Result<char32_t> escaped_character();

  struct Bounds {
    int min = 0, max = 0;  // kNoMax
  };
  // Whether a { follows that is the beginning of bounds, in any dialect.
  bool begins_bounds() const;
  // {m}, {m,}, {m,n}. Errors: too many digits; what dialects read in several ways, as {,n} and
  // spaces inside. REQUIRES: begins_bounds().
  Result<Bounds> take_bounds();

 private:
  Result<char32_t> hex(int digits);

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace wideep::grammar
