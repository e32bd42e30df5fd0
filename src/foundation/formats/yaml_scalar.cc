// SPDX-License-Identifier: Apache-2.0
#include "formats/yaml_scalar.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>

#include "formats/range.h"

namespace wideep::formats {
namespace {

// yaml-cpp tags a plain scalar "?" and a quoted one "!".
bool is_plain(const YAML::Node& node) { return node.IsScalar() && node.Tag() == "?"; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The text for std::from_chars, or "" if it is no decimal number: without '+', which from_chars
// does not accept, and without "inf" and "nan", which it does.
std::string_view number_text(const YAML::Node& node) {
  if (!is_plain(node)) return {};
  std::string_view text = node.Scalar();
  if (text.starts_with('+')) text.remove_prefix(1);
  std::string_view digits = text;
  if (digits.starts_with('-') && text.size() == node.Scalar().size()) digits.remove_prefix(1);
  const bool leading_zero = digits.size() > 1 && digits[0] == '0' && is_digit(digits[1]);
  if (digits.empty() || leading_zero) return {};
  const bool begins = is_digit(digits[0]) || (digits[0] == '.' && digits.size() > 1);
  return begins && (digits[0] != '.' || is_digit(digits[1])) ? text : std::string_view{};
}

template <typename T>
std::optional<T> whole_text_as(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

template <size_t N>
bool is_one_of(const std::string& text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

constexpr std::array<std::string_view, 9> kTrue = {"true", "True", "TRUE", "yes", "Yes",
                                                   "YES",  "on",   "On",   "ON"};
constexpr std::array<std::string_view, 9> kFalse = {"false", "False", "FALSE", "no", "No",
                                                    "NO",    "off",   "Off",   "OFF"};

}  // namespace

std::optional<bool> yaml_boolean(const YAML::Node& node) {
  if (!is_plain(node)) return std::nullopt;
  if (is_one_of(node.Scalar(), kTrue)) return true;
  if (is_one_of(node.Scalar(), kFalse)) return false;
  return std::nullopt;
}

std::optional<int64_t> yaml_integer(const YAML::Node& node) {
  const std::string_view text = number_text(node);
  if (const auto integer = whole_text_as<int64_t>(text)) return integer;
  // Digits only, but too large for int64: a double would lose the last digits.
  if (text.find_first_of(".eE") == text.npos) return std::nullopt;
  const auto number = whole_text_as<double>(text);
  return number ? exact_integer(*number) : std::nullopt;
}

std::optional<double> yaml_number(const YAML::Node& node) {
  return whole_text_as<double>(number_text(node));
}

}  // namespace wideep::formats
