// SPDX-License-Identifier: Apache-2.0
//
// Numbers between bounds, as they may be written: digit by digit, without exponents.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "grammar/expression.h"
#include "wideep/status.h"

namespace wideep::grammar {

// A decimal number, exact.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0";  // no zeros before it, but for this one
  std::string fraction;     // no zeros behind it

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// Of a JSON number, also of a formats::large_integer(). Errors (invalid input): no number; more
// than kMaxDigits digits before or behind the point.
Result<Decimal> read_decimal(const nlohmann::ordered_json& value);
inline constexpr size_t kMaxDigits = 40;

struct Bound {
  Decimal value;
  bool is_exclusive = false;
};
struct NumberBounds {
  std::optional<Bound> min, max;
};

// nothing() where there are none. A fraction may have more digits than the bounds have.
Expression integers_between(const NumberBounds& bounds);
Expression numbers_between(const NumberBounds& bounds);

// Whole multiples of a whole number. REQUIRES: at least 1.
Expression multiples_of(int step, Rules* rules);
// Numbers with at most so many digits behind the point.
Expression numbers_with_digits(int max);

}  // namespace wideep::grammar
