// SPDX-License-Identifier: Apache-2.0
#include "client/terminal_text.h"

#include <algorithm>
#include <cstdint>

#include "base/utf8.h"

namespace wideep::client {
namespace {

bool is_shown(char32_t code) {
  if (code == '\n' || code == '\t') return true;
  if (code < 0x20 || (code >= 0x7F && code <= 0x9F)) return false;
  const bool turns_around =
      (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return !turns_around && code != 0x2028 && code != 0x2029;
}

}  // namespace

std::string terminal_text(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const base::Utf8Unit unit = base::first_unit(text);
    const bool is_character = unit.kind == base::Utf8Kind::kValid;
    const std::string_view piece = text.substr(0, is_character ? unit.bytes : 1);
    if (!is_character) {
      shown += "\xEF\xBF\xBD";
    } else if (is_shown(base::first_code_point(piece))) {
      shown += piece;
    }
    text.remove_prefix(piece.size());
  }
  return shown;
}

std::string terminal_line(std::string_view text, size_t max_bytes) {
  const bool is_long = text.size() > max_bytes;
  size_t end = std::min(text.size(), max_bytes);
  while (is_long && end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  std::string line = terminal_text(text.substr(0, end));
  std::ranges::replace_if(line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return is_long ? line + "..." : line;
}

std::optional<size_t> no_utf8_at(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const base::Utf8Unit unit = base::first_unit(text.substr(at));
    if (unit.kind != base::Utf8Kind::kValid) return at;
    at += unit.bytes;
  }
  return std::nullopt;
}

}  // namespace wideep::client
