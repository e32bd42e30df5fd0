// SPDX-License-Identifier: Apache-2.0
#include "formats/json_text.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace wideep::formats {
namespace {

// The escape sequence of a control character, a quote or a backslash.
std::string escape(char each) {
  constexpr std::string_view kSpecial = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  if (const size_t at = kSpecial.find(each); at != kSpecial.npos) return {'\\', kNames[at]};
  constexpr const char* kDigits = "0123456789abcdef";
  return {'\\', 'u', '0', '0', kDigits[each >> 4], kDigits[each & 15]};
}

void add_exact(const nlohmann::ordered_json& value, std::string* out) {
  const char* comma = "";
  if (value.is_binary()) {  // the digits of a large integer (large_integer() of json_parse.h)
    out->append(value.get_binary().begin(), value.get_binary().end());
  } else if (value.is_array()) {
    *out += '[';
    for (const auto& each : value) {
      *out += std::exchange(comma, ",");
      add_exact(each, out);
    }
    *out += ']';
  } else if (value.is_object()) {
    *out += '{';
    for (const auto& [name, each] : value.items()) {
      *out += std::exchange(comma, ",");
      *out += json_text(nlohmann::ordered_json(name)) + ':';
      add_exact(each, out);
    }
    *out += '}';
  } else {
    *out += json_text(value);
  }
}

}  // namespace

std::string json_text(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string exact_json_text(const nlohmann::ordered_json& value) {
  std::string text;
  add_exact(value, &text);
  return text;
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
