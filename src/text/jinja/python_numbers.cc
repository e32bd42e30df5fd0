// SPDX-License-Identifier: Apache-2.0
#include "jinja/python_numbers.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string>

#include "jinja/python_text.h"

namespace wideep::jinja {
namespace {

// The text without its underscores, each of which must stand between two digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || std::isalnum(text[i - 1] & 0x7f) == 0 ||
               std::isalnum(text[i + 1] & 0x7f) == 0) {
      return {};
    }
  }
  return out;
}

bool is_decimal_float(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  size_t at = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  const auto skip_digits = [&] {
    const size_t begin = at;
    at = std::min(text.find_first_not_of(kDigits, at), text.size());
    return at > begin;
  };
  bool digits = skip_digits();
  if (at < text.size() && text[at] == '.') {
    ++at;
    digits = skip_digits() || digits;
  }
  if (digits && at < text.size() && (text[at] | 0x20) == 'e') {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    digits = skip_digits();
  }
  return digits && at == text.size();
}

bool is_named_float(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (text.starts_with('-') || text.starts_with('+')) text.erase(0, 1);
  return text == "inf" || text == "infinity" || text == "nan";
}

}  // namespace

std::optional<Value> integer_in(std::string_view text) {
  text = strip(text, Ends::kBoth);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || digits->find_first_not_of("0123456789") != digits->npos) {
    return {};
  }
  const Result<Value> value = Value::whole((negative ? "-" : "") + *digits);
  return value.ok() ? std::optional(*value) : std::nullopt;
}

std::optional<double> float_in(std::string_view text) {
  const auto plain = without_underscores(strip(text, Ends::kBoth));
  if (!plain || (!is_decimal_float(*plain) && !is_named_float(*plain))) return {};
  return std::strtod(plain->c_str(), nullptr);
}

std::optional<Value> integer_of(double number) {
  if (!std::isfinite(number)) return {};
  return *Value::whole(fmt::format("{:.0f}", std::trunc(number)));
}

}  // namespace wideep::jinja
