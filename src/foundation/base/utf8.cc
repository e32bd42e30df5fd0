// SPDX-License-Identifier: Apache-2.0
//
// The second byte of a sequence decides what the first one cannot: its range is narrower behind E0,
// ED, F0 and F4, which leaves out overlong forms, surrogates and numbers beyond U+10FFFF. With that
// table one function tells valid, invalid and cut short apart, and all others are loops over it.
#include "base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace wideep::base {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// The length of the sequence that a lead byte begins, and the range of its second byte; further
// bytes are always 80..BF. Length 0: not a lead byte.
struct Lead {
  size_t bytes;
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};  // continuation bytes and overlong forms
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // no overlong forms
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};  // no overlong forms
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // up to U+10FFFF
  return {0};
}

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

Utf8Unit first_unit(std::string_view text) {
  const Lead lead = lead_of(static_cast<uint8_t>(text[0]));
  if (lead.bytes == 0) return {Utf8Kind::kInvalid, 1};
  const size_t available = std::min(lead.bytes, text.size());
  for (size_t i = 1; i < available; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Kind::kInvalid, i};
  }
  return {available == lead.bytes ? Utf8Kind::kValid : Utf8Kind::kCutShort, available};
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Unit unit = first_unit(text);
    if (unit.kind != Utf8Kind::kValid) return false;
    text.remove_prefix(unit.bytes);
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Unit unit = first_unit(text);
    out += unit.kind == Utf8Kind::kValid ? text.substr(0, unit.bytes) : kReplacement;
    text.remove_prefix(unit.bytes);
  }
  return out;
}

size_t cut_short_bytes(std::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
    const std::string_view tail = text.substr(text.size() - bytes);
    if (is_continuation(tail[0])) continue;  // look for the lead byte further left
    const Utf8Unit unit = first_unit(tail);
    return unit.kind == Utf8Kind::kCutShort && unit.bytes == bytes ? bytes : 0;
  }
  return 0;
}

char32_t first_code_point(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return lead;
  const size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code_point = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) code_point = code_point << 6 | (byte(i) & 0x3Fu);
  return code_point;
}

char32_t last_code_point(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && is_continuation(text[start])) --start;
  return first_code_point(text.substr(start));
}

void append_utf8(char32_t code_point, std::string* out) {
  const auto push = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  const auto push_tail = [push](char32_t bits) { push(0x80 | (bits & 0x3F)); };
  if (code_point < 0x80) {
    push(code_point);
  } else if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
    push_tail(code_point);
  } else if (code_point < 0x10000) {
    push(0xE0 | code_point >> 12);
    push_tail(code_point >> 6);
    push_tail(code_point);
  } else {
    push(0xF0 | code_point >> 18);
    push_tail(code_point >> 12);
    push_tail(code_point >> 6);
    push_tail(code_point);
  }
}

}  // namespace wideep::base
