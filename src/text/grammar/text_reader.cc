// SPDX-License-Identifier: Apache-2.0
//
// Dialects of patterns differ most in escapes and bounds. What they read alike is taken, what they
// read differently is refused with the way to write it that all understand, so that a pattern means
// here what it means to the program that checks the answer.
#include "grammar/text_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/printable.h"
#include "base/try.h"
#include "grammar/expression.h"
#include "tokenizer/utf8.h"

namespace wideep::grammar {

Status TextReader::error(std::string_view what) const {
  return invalid_input(fmt::format("at byte {}: {}", at_, what));
}

Result<char32_t> TextReader::character() {
  const tokenizer::Utf8Unit unit = tokenizer::first_unit(rest());
  if (unit.kind != tokenizer::Utf8Kind::kValid) return error("is not UTF-8");
  const char32_t c = tokenizer::first_code_point(rest().substr(0, unit.bytes));
  at_ += unit.bytes;
  return c;
}

Result<char32_t> TextReader::hex(int digits) {
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const char digit = at_end() ? ' ' : peek();
    if (std::isxdigit(static_cast<unsigned char>(digit)) == 0) {
      return error(fmt::format("expected {} hexadecimal digits", digits));
    }
    const int lower = std::tolower(static_cast<unsigned char>(digit));
    value = value * 16 + static_cast<char32_t>(lower <= '9' ? lower - '0' : lower - 'a' + 10);
    ++at_;
  }
  return value;
}

Result<char32_t> TextReader::escaped_character() {
  if (at_end()) return error("a \\ at the end");
  constexpr std::string_view kLetters = "tnrfv0", kMeanings("\t\n\r\f\v\0", 6);
  if (const size_t found = kLetters.find(peek()); found != std::string_view::npos) {
    ++at_;
    return static_cast<char32_t>(kMeanings[found]);
  }
  if (take('x')) return hex(2);
  char32_t c = 0;
  if (take("u{")) {
    while (!at_end() && peek() != '}' && c <= kLastCharacter) {
      WIDEEP_TRY_ASSIGN(const char32_t digit, hex(1));
      c = c * 16 + digit;
    }
    if (!take('}')) return error("a \\u{ without its }");
  } else if (take('u')) {
    WIDEEP_TRY_ASSIGN(c, hex(4));
    if (c >= 0xd800 && c < 0xdc00 && take("\\u")) {
      WIDEEP_TRY_ASSIGN(const char32_t low, hex(4));
      if (low < 0xdc00 || low > 0xdfff) return error("half of a surrogate pair");
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
  } else if (take('U')) {
    WIDEEP_TRY_ASSIGN(c, hex(8));
  } else {
    if (std::isalnum(static_cast<unsigned char>(peek())) != 0) {
      return error(fmt::format("\\{} is not known", peek()));
    }
    return character();
  }
  if (c > kLastCharacter || (c >= 0xd800 && c <= 0xdfff))
    return error("no character has this code");
  return c;
}

bool TextReader::begins_bounds() const {
  if (!rest().starts_with('{')) return false;
  const size_t end = rest().find_first_not_of("0123456789, ", 1);
  if (end == std::string_view::npos || rest()[end] != '}') return false;
  return rest().substr(1, end - 1).find_first_not_of(' ') != std::string_view::npos;
}

Result<TextReader::Bounds> TextReader::take_bounds() {
  constexpr size_t kMaxDigits = 9;
  const size_t end = rest().find('}');
  const std::string_view inside = rest().substr(1, end - 1);
  const size_t comma = inside.find(',');
  const std::string_view min = inside.substr(0, comma);
  const bool has_comma = comma != std::string_view::npos;
  const std::string_view max = has_comma ? inside.substr(comma + 1) : min;
  if (min.empty() || inside.find(' ') != std::string_view::npos ||
      max.find(',') != std::string_view::npos) {
    return error(
        fmt::format("dialects differ in {{{}}}: write {{m,n}} with both numbers and without "
                    "spaces, or \\{{ for the text",
                    base::printable(inside, 30)));
  }
  if (min.size() > kMaxDigits || max.size() > kMaxDigits) {
    return error(fmt::format("more than {} digits of a number of repeats", kMaxDigits));
  }
  const auto number = [](std::string_view digits) {
    int value = 0;
    for (const char digit : digits) value = value * 10 + (digit - '0');
    return value;
  };
  at_ += end + 1;
  return Bounds{number(min), max.empty() ? kNoMax : number(max)};
}

}  // namespace wideep::grammar
