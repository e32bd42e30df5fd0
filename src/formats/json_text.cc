// SPDX-License-Identifier: Apache-2.0
#include "formats/json_text.h"

#include <nlohmann/json.hpp>

namespace wideep::formats {
namespace {

// The escape sequence of a control character, a quote or a backslash.
std::string escape(char each) {
  constexpr std::string_view kSpecial = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  if (const size_t at = kSpecial.find(each); at != kSpecial.npos) return {'\\', kNames[at]};
  constexpr const char* kDigits = "0123456789abcdef";
  return {'\\', 'u', '0', '0', kDigits[each >> 4], kDigits[each & 15]};
}

}  // namespace

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void add_json_characters(std::string_view text, std::string* out) {
  size_t done = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char each = text[at];
    if (static_cast<unsigned char>(each) >= 0x20 && each != '"' && each != '\\') continue;
    *out += text.substr(done, at - done);
    *out += escape(each);
    done = at + 1;
  }
  *out += text.substr(done);
}

}  // namespace wideep::formats
