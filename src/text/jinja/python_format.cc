// SPDX-License-Identifier: Apache-2.0
//
// Both ways share Spec: what stands between "%" or ":" and the end of a conversion.
#include "jinja/python_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "base/try.h"
#include "jinja/escape.h"
#include "jinja/python_numbers.h"
#include "jinja/python_text.h"
#include "jinja/whole_number.h"

namespace wideep::jinja {
namespace {

constexpr int kMaxWidth = 10'000;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '='; '\0': by the type
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  bool comma = false;
  int width = 0;
  int precision = -1;
  char type = '\0';
};

bool is_one_of(char c, std::string_view set) { return c != '\0' && set.find(c) != set.npos; }

// Reads text from front to back.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  bool at_end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }
  char peek() const { return rest_.empty() ? '\0' : rest_[0]; }
  char next() {
    const char c = peek();
    if (!rest_.empty()) rest_.remove_prefix(1);
    return c;
  }
  bool take(char c) {
    const bool found = !rest_.empty() && rest_[0] == c;
    if (found) rest_.remove_prefix(1);
    return found;
  }
  std::string_view take_until(size_t end) {
    const std::string_view part = rest_.substr(0, end);
    rest_.remove_prefix(part.size());
    return part;
  }
  // A number of at most kMaxWidth; −1: there is none. A larger one is a status.
  Result<int> number() {
    int value = -1;
    while (is_one_of(peek(), "0123456789")) {
      value = std::max(value, 0) * 10 + (next() - '0');
      if (value > kMaxWidth) {
        return invalid_input(fmt::format("a width or precision above {}", kMaxWidth));
      }
    }
    return value;
  }

 private:
  std::string_view rest_;
};

// ---- one value ----

std::string padded(const std::string& text, const Spec& spec, char by_default) {
  const auto size = static_cast<size_t>(Characters(text).count());
  const auto width = static_cast<size_t>(spec.width);
  if (size >= width) return text;
  const size_t missing = width - size;
  const char align = spec.align == '\0' ? by_default : spec.align;
  const size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  for (size_t i = 0; i < before; ++i) out += spec.fill;
  out += text;
  for (size_t i = before; i < missing; ++i) out += spec.fill;
  return out;
}

std::string with_commas(const std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(whole);
}

// digits: without a sign.
std::string number_text(std::string digits, bool negative, const Spec& spec,
                        const std::string& prefix = "") {
  if (spec.comma) digits = with_commas(digits);
  std::string head = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  head += prefix;
  const bool inside = spec.align == '=' || (spec.zero && spec.align == '\0');
  if (!inside) return padded(head + digits, spec, '>');
  Spec rest = spec;
  rest.align = '>';
  rest.width = std::max(0, spec.width - static_cast<int>(head.size()));
  if (spec.zero) rest.fill = "0";
  return head + padded(digits, rest, '>');
}

std::string in_base(const std::string& decimal, uint32_t base) {
  WholeNumber number(decimal);
  const WholeNumber divisor(fmt::format("{}", base));
  std::string out;
  do {
    const WholeNumber::Division division = number.divided_by(divisor);
    out += "0123456789abcdef"[std::stoul(division.remainder.digits())];
    number = division.quotient;
  } while (!number.is_zero());
  std::reverse(out.begin(), out.end());
  return out;
}

ValueResult whole_text(const Value& value, const Spec& spec, Budget& budget) {
  std::string digits = value.is_large() ? value.digits() : fmt::format("{}", value.integer());
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  const char kind = static_cast<char>(spec.type | 0x20);
  const uint32_t base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  if (base == 10) return number_text(digits, negative, spec);
  if (!budget.spend(digits.size() * digits.size())) return budget.status();
  digits = in_base(digits, base);
  std::string prefix = spec.alternate ? std::string("0") + kind : "";
  if (spec.type == 'X') {
    digits = upper(digits);
    prefix = upper(prefix);
  }
  return number_text(digits, negative, spec, prefix);
}

ValueResult float_text(double number, const Spec& spec) {
  const bool percent = spec.type == '%';
  if (percent) number *= 100;
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const char form[] = {'%', '.', '*', percent ? 'f' : spec.type, '\0'};
  const double size = std::abs(number);
  const int bytes = std::snprintf(nullptr, 0, form, precision, size);
  std::string digits(static_cast<size_t>(bytes) + 1, '\0');
  std::snprintf(digits.data(), digits.size(), form, precision, size);
  digits.pop_back();
  if (percent) digits += '%';
  return number_text(digits, std::signbit(number) && !std::isnan(number), spec);
}

Status unfit(const Spec& spec, const Value& value) {
  return invalid_input(
      fmt::format("'{}' does not take a value of type {}", spec.type, value.type_name()));
}

ValueResult text_text(std::string text, const Spec& spec) {
  if (spec.precision >= 0) {
    const Characters all(text);
    const auto kept = std::min<int64_t>(spec.precision, all.count());
    std::string cut;
    auto at = all.begin();
    for (int64_t i = 0; i < kept; ++i, ++at) cut += *at;
    text = std::move(cut);
  }
  return padded(text, spec, '<');
}

ValueResult numeric_text(const Value& value, const Spec& spec, Budget& budget) {
  if (!value.is_number()) return unfit(spec, value);
  if (is_one_of(spec.type, "eEfFgG%")) return float_text(value.number(), spec);
  if (!value.is_whole()) return unfit(spec, value);
  return whole_text(value, spec, budget);
}

// ---- "%…" ----

// Hands out the values of a "%" operation.
class PercentValues {
 public:
  explicit PercentValues(const Value& values) : values_(values) {}

  Result<Value> next() {
    if (values_.is_tuple() && at_ < values_.list().size()) return values_.list()[at_++];
    if (!values_.is_tuple() && at_++ == 0) return values_;
    return invalid_input("not enough arguments for the format");
  }
  Result<Value> named(std::string_view name) {
    by_name_ = true;
    if (!values_.is_dict()) return invalid_input("the format expects a dict");
    const Value* found = values_.dict().find(name);
    if (found != nullptr) return *found;
    return invalid_input(fmt::format("the format has no value '{}'", name));
  }
  Status status() const {
    const size_t given = values_.is_tuple() ? values_.list().size() : 1;
    // Python takes what has items for a dict, also Jinja's undefined value.
    const bool may_be_left = by_name_ || values_.is_dict() || values_.is_undefined() ||
                             (values_.is_list() && !values_.is_view());
    if (at_ >= given || (may_be_left && !values_.is_tuple())) return {};
    return invalid_input("not all arguments are used by the format");
  }

 private:
  const Value& values_;
  size_t at_ = 0;
  bool by_name_ = false;
};

Result<int> percent_size(Reader& reader, PercentValues& values) {
  if (!reader.take('*')) return reader.number();
  WIDEEP_TRY_ASSIGN(const Value size, values.next());
  if (!size.is_whole() || std::abs(size.integer()) > kMaxWidth) {
    return invalid_input("'*' expects an integer");
  }
  return static_cast<int>(size.integer());
}

Result<Spec> percent_spec(Reader& reader, PercentValues& values) {
  Spec spec;
  while (is_one_of(reader.peek(), "-+ #0")) {
    const char flag = reader.next();
    if (flag == '-') spec.align = '<';
    if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
    if (flag == '#') spec.alternate = true;
    if (flag == '0') spec.zero = true;
  }
  WIDEEP_TRY_ASSIGN(const int width, percent_size(reader, values));
  if (width < -1) spec.align = '<';
  spec.width = width == -1 ? 0 : std::abs(width);
  if (reader.take('.')) {
    WIDEEP_TRY_ASSIGN(const int precision, percent_size(reader, values));
    spec.precision = std::max(precision, 0);
  }
  while (is_one_of(reader.peek(), "hlL")) reader.next();
  spec.type = reader.next();
  return spec;
}

// What a safe text's "%" makes of a value before it converts it, as markupsafe does: texts are
// escaped, and numbers are int(value) or float(value), which take texts, too.
ValueResult safe_value(const Value& value, char type, Budget& budget) {
  if (type == 's' && value.is_safe()) return value;
  if (type == 's') return Value(escaped(to_text(value, budget), budget));
  if (type == 'r') return Value(escaped(to_repr(value, budget), budget));
  if (!value.is_string()) return value;
  if (is_one_of(type, "diu")) {
    if (const auto whole = integer_in(value.string(), 10)) return *whole;
  }
  if (is_one_of(type, "eEfFgG")) {
    if (const auto number = float_in(value.string())) return *number;
  }
  return value;
}

ValueResult percent_value(const Value& value, Spec spec, Budget& budget) {
  if (spec.type == 's' || spec.type == 'r') {
    if (spec.align == '\0') spec.align = '>';
    return text_text(spec.type == 's' ? to_text(value, budget) : to_repr(value, budget), spec);
  }
  if (is_one_of(spec.type, "diu")) {
    const auto whole = value.is_float() ? integer_of(value.number()) : std::optional<Value>(value);
    if (!whole || !whole->is_whole()) return unfit(spec, value);
    return whole_text(*whole, spec, budget);
  }
  if (is_one_of(spec.type, "xXoeEfFgG")) return numeric_text(value, spec, budget);
  return invalid_input(fmt::format("the format character '{}' is not supported", spec.type));
}

// ---- "{…}" ----

Result<Spec> brace_spec(std::string_view text) {
  Spec spec;
  Reader reader(text);
  const Characters all(text);
  const size_t first = text.empty() ? 0 : (*all.begin()).size();
  if (text.size() > first && is_one_of(text[first], "<>^=")) {
    spec.fill = std::string(reader.take_until(first));
    spec.align = reader.next();
  } else if (is_one_of(reader.peek(), "<>^=")) {
    spec.align = reader.next();
  }
  if (is_one_of(reader.peek(), "+- ")) spec.sign = reader.next();
  spec.alternate = reader.take('#');
  spec.zero = reader.take('0');
  WIDEEP_TRY_ASSIGN(const int width, reader.number());
  spec.width = std::max(width, 0);
  spec.comma = reader.take(',');
  if (reader.take('.')) {
    WIDEEP_TRY_ASSIGN(spec.precision, reader.number());
    if (spec.precision < 0) return invalid_input("a format lacks its precision");
  }
  spec.type = reader.next();
  if (reader.at_end()) return spec;
  return invalid_input(fmt::format("the format '{}' is not supported", text));
}

ValueResult brace_value(const Value& value, std::string_view format, Budget& budget) {
  if (format.empty()) return Value(to_text(value, budget));
  WIDEEP_TRY_ASSIGN(Spec spec, brace_spec(format));
  if (value.is_string() && (spec.type == 's' || spec.type == '\0') && spec.align != '=') {
    return text_text(value.string(), spec);
  }
  const bool plain = spec.type == '\0' && spec.precision < 0;
  if (value.is_float() && plain) {
    const std::string digits = to_text(std::abs(value.number()), budget);
    return number_text(digits, std::signbit(value.number()), spec);
  }
  if (!value.is_bool() && value.is_whole() && plain) return whole_text(value, spec, budget);
  if (is_one_of(spec.type, "dxXobeEfFgG%")) return numeric_text(value, spec, budget);
  return invalid_input(
      fmt::format("the format '{}' does not take a value of type {}", format, value.type_name()));
}

// How the fields of a text name their values: "{}" in order, or "{0}".
struct Numbering {
  size_t next = 0;
  bool manual = false;
  bool only_names = false;
};

Result<Value> brace_argument(std::string_view name, Numbering& numbering,
                             const Arguments& arguments) {
  const bool is_index = name.find_first_not_of("0123456789") == name.npos && name.size() < 9;
  if (is_index && numbering.only_names) {
    return invalid_input("format_map: a field without a name");
  }
  if (is_index) {
    const size_t at = name.empty() ? numbering.next++ : std::stoul(std::string(name));
    numbering.manual = numbering.manual || !name.empty();
    if (numbering.manual && numbering.next > 0) {
      return invalid_input("format: fields with and without a number");
    }
    if (at < arguments.positional.size()) return arguments.positional[at];
    return invalid_input(fmt::format("format: there is no argument {}", at));
  }
  for (const auto& [given, value] : arguments.named) {
    if (given == name) return value;
  }
  return invalid_input(fmt::format("format: there is no argument '{}'", name));
}

// Where the text is safe, fields are escaped, and safe values take no format.
ValueResult field_text(const Value& value, std::string_view format, bool is_safe, Budget& budget) {
  if (is_safe && value.is_safe()) {
    if (format.empty()) return value;
    return invalid_input("format: text marked as safe takes no format");
  }
  WIDEEP_TRY_ASSIGN(Value text, brace_value(value, format, budget));
  return is_safe ? Value(escaped(text.string(), budget)) : text;
}

ValueResult brace_field(std::string_view field, Numbering& numbering, const Arguments& arguments,
                        bool is_safe) {
  if (field.find('{') != field.npos)
    return invalid_input("format: nested fields are not supported");
  Reader reader(field);
  const std::string_view name = reader.take_until(field.find_first_of("!:"));
  WIDEEP_TRY_ASSIGN(Value value, brace_argument(name, numbering, arguments));
  if (reader.take('!')) {
    const char conversion = reader.next();
    if (conversion == 'r') value = to_repr(value, arguments.budget);
    if (conversion == 's') value = to_text(value, arguments.budget);
    if (conversion != 'r' && conversion != 's') return invalid_input("format: expected !r or !s");
  }
  if (!reader.at_end() && !reader.take(':')) return invalid_input("format: expected ':'");
  return field_text(value, reader.rest(), is_safe, arguments.budget);
}

}  // namespace

ValueResult percent_format(const Value& text, const Value& values, Budget& budget) {
  PercentValues given(values);
  Reader reader(text.string());
  std::string out;
  while (!reader.at_end() && !budget.spent()) {
    out += reader.take_until(reader.rest().find('%'));
    if (reader.at_end()) break;
    reader.next();
    if (reader.take('%')) {
      out += '%';
      continue;
    }
    std::optional<Value> value;
    if (reader.take('(')) {
      WIDEEP_TRY_ASSIGN(value, given.named(reader.take_until(reader.rest().find(')'))));
      reader.take(')');
    }
    WIDEEP_TRY_ASSIGN(Spec spec, percent_spec(reader, given));
    if (!value) {
      WIDEEP_TRY_ASSIGN(value, given.next());
    }
    if (!budget.spend_bytes(64 + static_cast<size_t>(spec.width))) break;
    if (text.is_safe()) {
      if (is_one_of(spec.type, "xXoc")) return invalid_input("no integer for safe text");
      WIDEEP_TRY_ASSIGN(value, safe_value(*value, spec.type, budget));
      if (spec.type == 'r') spec.type = 's';
    }
    WIDEEP_TRY_ASSIGN(const Value part, percent_value(*value, spec, budget));
    out += part.string();
  }
  WIDEEP_TRY(given.status());
  return text.with_text(std::move(out));
}

ValueResult brace_format(const Value& text, const Arguments& arguments, FieldNames names) {
  Reader reader(text.string());
  std::string out;
  Numbering numbering{.only_names = names == FieldNames::kOnlyNames};
  while (!reader.at_end() && !arguments.budget.spent()) {
    out += reader.take_until(reader.rest().find_first_of("{}"));
    if (reader.at_end()) break;
    const char brace = reader.next();
    if (reader.take(brace)) {
      out += brace;
      continue;
    }
    const size_t end = reader.rest().find('}');
    if (brace == '}' || end == std::string_view::npos) {
      return invalid_input(fmt::format("format: a single '{}' in the text", brace));
    }
    if (!arguments.budget.spend_bytes(64 + kMaxWidth / 16)) break;
    WIDEEP_TRY_ASSIGN(const Value part,
                      brace_field(reader.take_until(end), numbering, arguments, text.is_safe()));
    reader.take('}');
    out += part.string();
  }
  return text.with_text(std::move(out));
}

}  // namespace wideep::jinja
