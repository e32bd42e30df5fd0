// SPDX-License-Identifier: Apache-2.0
#include "api/custom_input.h"

#include <algorithm>

#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

constexpr const char* kName = "input";

// The length of the escape that begins a text; 0: it has not come to its end. Both halves of a pair
// of surrogates are one.
size_t escape_length(std::string_view text) {
  constexpr size_t kHex = 6;  // \uXXXX
  if (text.size() < 2) return 0;
  if (text[1] != 'u') return 2;
  if (text.size() < kHex) return 0;
  const bool is_high = (text[2] == 'd' || text[2] == 'D') &&
                       std::string_view("89abAB").find(text[3]) != std::string_view::npos;
  if (!is_high) return kHex;
  if (text.size() < 2 * kHex) return text.size() > kHex && text[kHex] != '\\' ? kHex : 0;
  return text.substr(kHex, 2) == "\\u" ? 2 * kHex : kHex;
}

// As the inside of a JSON text; what is none stays as it is.
std::string unescaped(std::string_view inside) {
  std::string quoted = "\"";
  quoted += inside;
  quoted += '"';
  const ordered_json text = ordered_json::parse(quoted, nullptr, false);
  return text.is_string() ? text.get<std::string>() : std::string(inside);
}

}  // namespace

ordered_json CustomInput::parameters() {
  return {{"type", "object"},
          {"properties", {{kName, {{"type", "string"}}}}},
          {"required", ordered_json::array({kName})},
          {"additionalProperties", false}};
}

std::string CustomInput::arguments(const std::string& text) {
  return formats::json_text(ordered_json{{kName, text}});
}

// Finds the begin of the text in {"input": "…, with white space anywhere.
void CustomInput::find_text() {
  constexpr std::string_view kParts[] = {"{", "\"input\"", ":", "\""};
  constexpr std::string_view kSpace = " \t\r\n";
  size_t at = 0;
  for (const std::string_view part : kParts) {
    at = std::min(all_.find_first_not_of(kSpace, at), all_.size());
    const std::string_view rest = std::string_view(all_).substr(at);
    if (!rest.starts_with(part)) {
      if (!part.starts_with(rest)) state_ = State::kOther;
      return;
    }
    at += part.size();
  }
  state_ = State::kText;
  at_ = at;
}

std::string CustomInput::push(std::string_view arguments) {
  all_ += arguments;
  if (state_ == State::kStart) find_text();
  if (state_ != State::kText) return "";
  size_t end = at_;
  while (end < all_.size() && all_[end] != '"') {
    const size_t length = all_[end] == '\\' ? escape_length(std::string_view(all_).substr(end)) : 1;
    if (length == 0) break;
    end += length;
  }
  if (end < all_.size() && all_[end] == '"') state_ = State::kEnded;
  const std::string text = unescaped(std::string_view(all_).substr(at_, end - at_));
  at_ = end;
  return text;
}

std::string CustomInput::finish() {
  if (state_ == State::kText || state_ == State::kEnded) return "";
  const ordered_json arguments = ordered_json::parse(all_, nullptr, false);
  const auto found = arguments.is_object() ? arguments.find(kName) : arguments.end();
  const bool has_text = found != arguments.end() && found->is_string();
  if (has_text) state_ = State::kEnded;
  return has_text ? found->get<std::string>() : all_;
}

}  // namespace wideep::server
