// SPDX-License-Identifier: Apache-2.0
#include "jinja/escape.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "tokenizer/utf8.h"

namespace wideep::jinja {
namespace {

// What HTML makes of the numbers 0x80 to 0x9f: the characters of Windows-1252.
constexpr char32_t kWindows[] = {0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021,
                                 0x2c6,  0x2030, 0x160,  0x2039, 0x152,  0x8d,   0x17d,  0x8f,
                                 0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};

// The character of a number; none for the control characters and what Unicode has reserved.
std::string numbered(uint32_t number) {
  const bool is_space = number == '\t' || number == '\n' || number == '\f' || number == '\r';
  const bool is_control = (number > 0 && number < 0x20 && !is_space) || number == 0x7f;
  const bool is_reserved =
      (number >= 0xfdd0 && number <= 0xfdef) || (number <= 0x10ffff && (number & 0xfffe) == 0xfffe);
  if (is_control || is_reserved) return "";
  const bool is_none = number == 0 || (number >= 0xd800 && number <= 0xdfff) || number > 0x10ffff;
  const bool is_windows = number >= 0x80 && number <= 0x9f;
  std::string out;
  tokenizer::append_utf8(is_none      ? 0xfffd
                         : is_windows ? kWindows[number - 0x80]
                                      : static_cast<char32_t>(number),
                         &out);
  return out;
}

// Reads "#38;" or "#x26;" at the front; nothing: it is none.
std::string take_number(std::string_view& rest) {
  std::string_view at = rest.substr(1);
  const bool hexadecimal = at.starts_with('x') || at.starts_with('X');
  if (hexadecimal) at.remove_prefix(1);
  const std::string_view set = hexadecimal ? "0123456789abcdefABCDEF" : "0123456789";
  const std::string_view digits = at.substr(0, at.find_first_not_of(set));
  if (digits.empty()) return "&";
  uint32_t number = 0;
  for (const char c : digits) {
    const uint32_t digit = static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    number = std::min(number * (hexadecimal ? 16 : 10) + digit, 0x200000u);
  }
  at.remove_prefix(digits.size());
  if (at.starts_with(';')) at.remove_prefix(1);
  rest = at;
  return numbered(number);
}

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

// Reads "amp;" at the front. HTML has two thousand names, some of them without ";".
Result<std::string> take_name(std::string_view& rest) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"amp;", "&"},         {"lt;", "<"},         {"gt;", ">"},         {"quot;", "\""},
      {"apos;", "'"},        {"nbsp;", "\u00a0"},  {"copy;", "\u00a9"},  {"reg;", "\u00ae"},
      {"hellip;", "\u2026"}, {"ndash;", "\u2013"}, {"mdash;", "\u2014"}, {"raquo;", "\u00bb"},
      {"laquo;", "\u00ab"},  {"euro;", "\u20ac"}};
  const char c = rest.empty() ? '\0' : static_cast<char>(rest[0] | 0x20);
  if (c < 'a' || c > 'z') return std::string("&");
  for (const auto& [name, character] : kNames) {
    if (!rest.starts_with(name)) continue;
    rest.remove_prefix(name.size());
    return std::string(character);
  }
  return invalid_input(fmt::format("the reference '&{}' is not supported",
                                   rest.substr(0, rest.find_first_not_of(kLetters))));
}

}  // namespace

Result<std::string> unescaped(std::string_view text) {
  std::string out;
  for (;;) {
    const size_t at = text.find('&');
    out += text.substr(0, at);
    if (at == text.npos) return out;
    text.remove_prefix(at + 1);
    if (text.starts_with('#')) {
      out += take_number(text);
      continue;
    }
    WIDEEP_TRY_ASSIGN(const std::string character, take_name(text));
    out += character;
  }
}

std::string escaped(std::string_view text, Budget& budget) {
  constexpr size_t kMaxEscaped = 5;  // bytes of the longest escape
  if (!budget.spend_bytes(kMaxEscaped * text.size())) return "";
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string escaped_value(const Value& value, Budget& budget) {
  const std::string text = to_text(value, budget);
  return value.is_safe() ? text : escaped(text, budget);
}

}  // namespace wideep::jinja
