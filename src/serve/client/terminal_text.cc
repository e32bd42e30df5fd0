// SPDX-License-Identifier: Apache-2.0
#include "client/terminal_text.h"

#include <algorithm>
#include <cstdint>

namespace wideep::client {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: the byte begins no character of UTF-8
};

Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(at);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || at + bytes > text.size()) return {};
  uint32_t code = first & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(at + i) & 0x3Fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[bytes] || code > 0x10FFFF || is_surrogate) return {};
  return {code, bytes};
}

bool is_shown(uint32_t code) {
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
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    if (character.bytes == 0) {
      shown += "\xEF\xBF\xBD";
      ++at;
      continue;
    }
    if (is_shown(character.code)) shown += text.substr(at, character.bytes);
    at += character.bytes;
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
    const size_t bytes = character_at(text, at).bytes;
    if (bytes == 0) return at;
    at += bytes;
  }
  return std::nullopt;
}

}  // namespace wideep::client
