// SPDX-License-Identifier: Apache-2.0
//
// Python's integers have no end, and these have 64 bits: a result beyond them is refused by name,
// for a wrapped or rounded one would be a wrong prompt without an error. So is "%" of a text, which
// no chat template uses. What "+", "*" and "~" make is charged to the budget of the rendering, as a
// template comes from outside and could double a text at each step.
#include "jinja/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/try.h"

namespace wideep::jinja {
namespace {

Status too_large(std::string_view operation) {
  return invalid_input(fmt::format("{}: the result is too large", operation));
}

// In int64; nothing: it overflows, or the operation is another one.
std::optional<int64_t> small_arithmetic(std::string_view operation, int64_t a, int64_t b) {
  int64_t result = 0;
  if (operation == "+" && !__builtin_add_overflow(a, b, &result)) return result;
  if (operation == "-" && !__builtin_sub_overflow(a, b, &result)) return result;
  if (operation == "*" && !__builtin_mul_overflow(a, b, &result)) return result;
  // Division rounds towards −∞, and a remainder has the sign of the divisor, as in Python. The
  // processor's division by −1 may overflow, and traps then.
  if (operation != "//" && operation != "%") return {};
  if (b == -1 && operation == "%") return 0;
  if (b == -1) return __builtin_sub_overflow(0, a, &result) ? std::nullopt : std::optional(result);
  const int64_t rest = a % b;
  const bool rounds_down = rest != 0 && (a < 0) != (b < 0);
  if (operation == "//") return a / b - (rounds_down ? 1 : 0);
  return rounds_down ? rest + b : rest;
}

// The double that is nearest to the quotient, as Python's is. By way of long doubles it would be
// rounded twice.
double quotient(int64_t a, int64_t b) {
  __extension__ using Wide = unsigned __int128;
  constexpr int64_t kExact = int64_t{1} << 53;  // up to here doubles have all integers
  const auto is_exact = [](int64_t number) { return -kExact <= number && number <= kExact; };
  if (a == 0 || (is_exact(a) && is_exact(b))) {
    return static_cast<double>(a) / static_cast<double>(b);
  }
  const auto size_of = [](int64_t number) {
    return number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  };
  // At least 64 bits, of which the last one also stands for all behind it.
  const int shift = 64 + std::countl_zero(size_of(a));
  const Wide dividend = Wide{size_of(a)} << shift;
  const Wide bits = dividend / size_of(b) | (dividend % size_of(b) != 0 ? 1 : 0);
  const double size = std::ldexp(static_cast<double>(bits), -shift);
  return (a < 0) == (b < 0) ? size : -size;
}

// A large integer is passed on, into a text or JSON, but no chat template computes with one.
ValueResult whole_arithmetic(std::string_view operation, const Value& a, const Value& b) {
  const bool divides = operation == "/" || operation == "//" || operation == "%";
  if (divides && !b.truth()) return invalid_input(fmt::format("{}: division by zero", operation));
  if (!a.is_large() && !b.is_large()) {
    if (operation == "/") return quotient(a.integer(), b.integer());
    if (const auto small = small_arithmetic(operation, a.integer(), b.integer())) return *small;
  }
  return invalid_input(
      fmt::format("{}: chat templates do not compute with integers beyond 64 bits", operation));
}

// "//" and "%" round towards −∞, as for integers, and are for infinite ones what they are in
// Python: −1.0 // inf is −1.0, as of any other divisor that is so much larger.
ValueResult float_arithmetic(std::string_view operation, double a, double b) {
  if (operation == "+") return a + b;
  if (operation == "-") return a - b;
  if (operation == "*") return a * b;
  if (b == 0) return invalid_input(fmt::format("{}: division by zero", operation));
  if (operation == "/") return a / b;
  const double rest = std::fmod(a, b);  // with the sign of a
  const bool rounds_down = rest != 0 && (rest < 0) != (b < 0);
  if (operation == "%") return rest == 0 ? std::copysign(0.0, b) : rounds_down ? rest + b : rest;
  // Whole but for the rounding of the difference.
  const double whole = (a - rest) / b - (rounds_down ? 1.0 : 0.0);
  if (whole == 0) return std::copysign(0.0, a / b);
  return std::floor(whole) + (whole - std::floor(whole) > 0.5 ? 1.0 : 0.0);
}

ValueResult repeated(const Value& value, int64_t times, Budget& budget) {
  const int64_t size =
      static_cast<int64_t>(value.is_string() ? value.string().size() : value.list().size());
  // An empty value may be repeated any number of times. The division avoids an overflow of the
  // product.
  if (size == 0 || times <= 0) times = 0;
  if (size > 0 && times > kMaxRepeated / size) return too_large("*");
  const size_t made = static_cast<size_t>(size * times);
  if (!(value.is_string() ? budget.spend_bytes(made) : budget.spend(made))) {
    return budget.status();
  }
  std::string text;
  List list;
  for (int64_t i = 0; i < times; ++i) {
    if (value.is_string()) {
      text += value.string();
    } else {
      list.insert(list.end(), value.list().begin(), value.list().end());
    }
  }
  return value.is_string() ? value.with_text(std::move(text))
                           : Value(std::move(list), value.list_kind());
}

// str(value) with escapes for HTML, as Python's markupsafe writes them, unless it is marked as
// safe.
std::string escaped(const Value& value, Budget& budget) {
  const std::string text = to_text(value, budget);
  constexpr size_t kMaxEscaped = 5;  // bytes of the longest escape
  if (value.is_safe() || !budget.spend_bytes(kMaxEscaped * text.size())) return text;
  constexpr std::pair<char, std::string_view> kEscapes[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
  std::string out;
  for (const char c : text) {
    const auto* found = std::ranges::find(kEscapes, c, &std::pair<char, std::string_view>::first);
    if (found == std::end(kEscapes)) {
      out += c;
    } else {
      out += found->second;
    }
  }
  return out;
}

ValueResult joined(const Value& a, const Value& b, Budget& budget) {
  if (a.is_safe() || b.is_safe()) {
    return Value::safe(escaped(a, budget) + escaped(b, budget));
  }
  if (!budget.spend_bytes(a.string().size() + b.string().size())) return budget.status();
  return a.string() + b.string();
}

}  // namespace

Status unsupported(std::string_view operation, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return invalid_input(value->undefined().what);
  }
  return invalid_input(
      fmt::format("{}: not supported for {} and {}", operation, a.type_name(), b.type_name()));
}

ValueResult arithmetic(std::string_view operation, const Value& a, const Value& b, Budget& budget) {
  if (operation == "~") return to_text(a, budget) + to_text(b, budget);
  if (a.is_whole() && b.is_whole()) return whole_arithmetic(operation, a, b);
  if (a.is_number() && b.is_number()) return float_arithmetic(operation, a.number(), b.number());
  if (operation == "+" && a.is_string() && b.is_string()) return joined(a, b, budget);
  if (operation == "%" && a.is_string()) {
    return invalid_input("operator '%': chat templates do not use it of a text");
  }
  const bool lists = a.is_list_or_tuple() && b.is_list_or_tuple() && a.list_kind() == b.list_kind();
  if (operation == "+" && lists) {
    if (!budget.spend(a.list().size() + b.list().size())) return budget.status();
    List both = a.list();
    both.insert(both.end(), b.list().begin(), b.list().end());
    return Value(std::move(both), a.list_kind());
  }
  if (operation == "*") {
    if ((a.is_large() || b.is_large()) && !(a.is_number() && b.is_number())) return too_large("*");
    if ((a.is_string() || a.is_list_or_tuple()) && b.is_whole())
      return repeated(a, b.integer(), budget);
    if ((b.is_string() || b.is_list_or_tuple()) && a.is_whole())
      return repeated(b, a.integer(), budget);
  }
  return unsupported(operation, a, b);
}

}  // namespace wideep::jinja
