// SPDX-License-Identifier: Apache-2.0
//
// Jinja's filters of numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/try.h"
#include "jinja/arguments.h"
#include "jinja/arithmetic.h"
#include "jinja/filters.h"
#include "jinja/python_numbers.h"

namespace wideep::jinja {
namespace {

Status not_finite() { return invalid_input("infinity and nan are no integers"); }

ValueResult int_filter(const Value& input, ArgumentReader& arguments) {
  const Value fallback = arguments.value_or("default", int64_t{0});
  const Value base = arguments.value_or("base", int64_t{10});
  if (input.is_undefined()) return invalid_input(input.undefined().what);
  if (input.is_large()) return input;
  if (input.is_integer() || input.is_bool()) return input.integer();
  if (input.is_float()) {
    const auto whole = integer_of(input.number());
    return whole ? ValueResult(*whole) : not_finite();
  }
  if (!input.is_string()) return fallback;
  // As in Jinja, a base that is none, like 1 or a text, leaves the other way: by float.
  if (base.is_whole() && base.integer() >= 2 && base.integer() <= 36) {
    if (const auto whole = integer_in(input.string(), base.integer())) return *whole;
  }
  const auto number = float_in(input.string());
  const auto whole = number ? integer_of(*number) : std::nullopt;
  return whole ? *whole : fallback;
}

ValueResult float_filter(const Value& input, ArgumentReader& arguments) {
  const Value fallback = arguments.value_or("default", 0.0);
  if (input.is_undefined()) return invalid_input(input.undefined().what);
  if (input.is_large() && !std::isfinite(input.number())) return invalid_input("too large");
  if (input.is_number()) return input.number();
  const auto number = input.is_string() ? float_in(input.string()) : std::nullopt;
  return number ? Value(*number) : fallback;
}

ValueResult abs_filter(const Value& input, ArgumentReader& arguments) {
  if (input.is_float()) return std::abs(input.number());
  if (!input.is_whole()) return invalid_input("expected a number");
  const Value zero(int64_t{0});
  return arithmetic(input.integer() < 0 ? "-" : "+", zero, input, arguments.budget());
}

// Rounds an integer to a power of ten, halves to even, as Python's round().
ValueResult rounded_whole(const Value& number, int64_t precision, Budget& budget) {
  if (precision >= 0) return arithmetic("+", int64_t{0}, number, budget);
  if (precision < -static_cast<int64_t>(Value::kMaxDigits)) return int64_t{0};
  WIDEEP_TRY_ASSIGN(const Value unit, arithmetic("**", int64_t{10}, -precision, budget));
  WIDEEP_TRY_ASSIGN(const Value rest, arithmetic("%", number, unit, budget));
  WIDEEP_TRY_ASSIGN(const Value below, arithmetic("-", number, rest, budget));
  WIDEEP_TRY_ASSIGN(const Value twice, arithmetic("*", rest, int64_t{2}, budget));
  WIDEEP_TRY_ASSIGN(const Value units, arithmetic("//", below, unit, budget));
  WIDEEP_TRY_ASSIGN(const Value odd, arithmetic("%", units, int64_t{2}, budget));
  WIDEEP_TRY_ASSIGN(const int order, compare(twice, unit, budget));
  return order > 0 || (order == 0 && odd.truth()) ? arithmetic("+", below, unit, budget)
                                                  : ValueResult(below);
}

// Rounds the decimal value, as Python does; a multiplication by a power of ten would round twice.
double rounded_float(double number, int64_t precision) {
  constexpr int64_t kAllDigits = 330;
  if (!std::isfinite(number) || precision > kAllDigits) return number;
  if (precision >= 0)
    return std::strtod(fmt::format("{:.{}f}", number, precision).c_str(), nullptr);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::isfinite(unit) ? std::nearbyint(number / unit) * unit : 0.0;
}

ValueResult common_rounded(const Value& input, const Value& precision, Budget& budget) {
  if (!precision.is_none() && !precision.is_whole()) {
    return unfit("precision", "an integer or none", precision);
  }
  if (input.is_whole())
    return rounded_whole(input, precision.is_none() ? 0 : precision.integer(), budget);
  if (!precision.is_none()) return rounded_float(input.number(), precision.integer());
  const auto whole = integer_of(std::nearbyint(input.number()));
  return whole ? ValueResult(*whole) : not_finite();
}

ValueResult round_filter(const Value& input, ArgumentReader& arguments) {
  const Value precision = arguments.value_or("precision", int64_t{0});
  const Value method = arguments.value_or("method", "common");
  const std::string name = method.is_string() ? method.string() : "";
  if (name != "common" && name != "ceil" && name != "floor") {
    return invalid_input("method: expected common, ceil or floor");
  }
  if (!input.is_number()) return unfit("input", "a number", input);
  if (name == "common") return common_rounded(input, precision, arguments.budget());
  WIDEEP_TRY_ASSIGN(const Value unit, arithmetic("**", int64_t{10}, precision, arguments.budget()));
  WIDEEP_TRY_ASSIGN(const Value scaled, arithmetic("*", input, unit, arguments.budget()));
  if (!scaled.is_float()) return arithmetic("/", scaled, unit, arguments.budget());
  const double whole = name == "ceil" ? std::ceil(scaled.number()) : std::floor(scaled.number());
  return std::isfinite(whole) ? arithmetic("/", whole, unit, arguments.budget()) : not_finite();
}

}  // namespace

const Filters& number_filters() {
  static const Filters filters = {
      {"abs", abs_filter},
      {"float", float_filter},
      {"int", int_filter},
      {"round", round_filter},
  };
  return filters;
}

}  // namespace wideep::jinja
