// SPDX-License-Identifier: Apache-2.0
#include "jinja/arithmetic.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/try.h"
#include "jinja/escape.h"
#include "jinja/python_format.h"
#include "jinja/whole_number.h"

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
  // Division rounds towards −∞, and a remainder has the sign of the divisor, as in Python. By −1 it
  // may overflow, which traps on x86.
  if ((operation != "//" && operation != "%") || b == -1) return {};
  const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  return operation == "//" ? quotient : a - quotient * b;
}

WholeNumber whole_number(const Value& value) {
  return WholeNumber(value.is_large() ? value.digits() : fmt::format("{}", value.integer()));
}

// Charged for the product of both sizes, which bounds the work of every operation but a power.
ValueResult large_arithmetic(std::string_view operation, const WholeNumber& a, const WholeNumber& b,
                             Budget& budget) {
  if (!budget.spend((1 + a.size()) * (1 + b.size()))) return budget.status();
  if (operation == "+") return Value::whole((a + b).digits());
  if (operation == "-") return Value::whole((a - b).digits());
  if (operation == "*") return Value::whole((a * b).digits());
  const WholeNumber::Division division = a.divided_by(b);
  return Value::whole((operation == "//" ? division.quotient : division.remainder).digits());
}

// A result that is too large, or no real number, is an error, as in Python (which has complex
// ones).
ValueResult float_power(double base, double exponent) {
  if (base == 0 && exponent < 0) return invalid_input("**: division by zero");
  const double power = std::pow(base, exponent);
  const bool from_numbers = std::isfinite(base) && std::isfinite(exponent);
  if (from_numbers && std::isinf(power)) return too_large("**");
  if (from_numbers && std::isnan(power)) {
    return invalid_input("**: a negative number to a power that is not whole is not supported");
  }
  return power;
}

ValueResult whole_power(const Value& base, const Value& exponent, Budget& budget) {
  if (exponent.integer() < 0) {
    const bool fit = std::isfinite(base.number()) && std::isfinite(exponent.number());
    return fit ? float_power(base.number(), exponent.number()) : too_large("**");
  }
  const bool is_unit = !base.is_large() && base.integer() >= -1 && base.integer() <= 1;
  if (is_unit) {  // of any exponent
    const bool odd =
        exponent.is_large() ? exponent.digits().back() % 2 != 0 : exponent.integer() % 2 != 0;
    if (!exponent.truth()) return int64_t{1};
    return base.integer() < 0 && !odd ? int64_t{1} : base.integer();
  }
  constexpr int64_t kMaxExponent = 15'000;  // 2 to a larger one has more than kMaxDigits
  if (exponent.is_large() || exponent.integer() > kMaxExponent) return too_large("**");
  Value result(int64_t{1});
  for (int64_t i = 0; i < exponent.integer(); ++i) {
    WIDEEP_TRY_ASSIGN(result, arithmetic("*", result, base, budget));
  }
  return result;
}

ValueResult whole_arithmetic(std::string_view operation, const Value& a, const Value& b,
                             Budget& budget) {
  if (operation == "**") return whole_power(a, b, budget);
  const bool divides = operation == "/" || operation == "//" || operation == "%";
  if (divides && !b.truth()) return invalid_input(fmt::format("{}: division by zero", operation));
  if (operation == "/") {
    // A double has too few digits for some integers; the quotient is rounded once more only rarely.
    const auto precise = [](const Value& value) {
      return value.is_large() ? std::strtold(value.digits().c_str(), nullptr)
                              : static_cast<long double>(value.integer());
    };
    const auto quotient = static_cast<double>(precise(a) / precise(b));
    return std::isfinite(quotient) ? ValueResult(quotient) : too_large("/");
  }
  if (!a.is_large() && !b.is_large()) {
    if (const auto small = small_arithmetic(operation, a.integer(), b.integer())) return *small;
  }
  return large_arithmetic(operation, whole_number(a), whole_number(b), budget);
}

// "//" and "%" round towards −∞, as for integers.
ValueResult float_arithmetic(std::string_view operation, double a, double b) {
  if (operation == "+") return a + b;
  if (operation == "-") return a - b;
  if (operation == "*") return a * b;
  if (operation == "**") return float_power(a, b);
  if (b == 0) return invalid_input(fmt::format("{}: division by zero", operation));
  if (operation == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (operation == "%") return rest == 0 ? std::copysign(0.0, b) : rest;
  return std::round((a - rest) / b);
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

ValueResult joined(const Value& a, const Value& b, Budget& budget) {
  if (a.is_safe() || b.is_safe()) {
    return Value::safe(escaped_value(a, budget) + escaped_value(b, budget));
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
  if (a.is_whole() && b.is_whole()) return whole_arithmetic(operation, a, b, budget);
  if (a.is_number() && b.is_number()) return float_arithmetic(operation, a.number(), b.number());
  if (operation == "+" && a.is_string() && b.is_string()) return joined(a, b, budget);
  if (operation == "%" && a.is_string()) return percent_format(a, b, budget);
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
