// SPDX-License-Identifier: Apache-2.0
//
// Numbers from a to b as strings of digits: for each length the strings from one to another, by the
// first digit in which both ends differ (DigitStrings), as expression.cc does it with bytes. A
// fraction is a whole number with a point put in, so one algorithm serves both; signs are split off
// first, with bounds mirrored behind a minus.
//
// Fractions may have more digits than their bounds. So they are cut at the digits that the bounds
// have: what is strictly inside goes on with any digits, the bounds themselves only with zeros, or,
// where they are excluded below, with any but zeros alone.
//
// Multiples are an automaton of remainders, a rule for each.
#include "grammar/json_number.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/try.h"
#include "formats/json_parse.h"

namespace wideep::grammar {
namespace {

Expression digit() { return byte_range('0', '9'); }
Expression digits() { return repeat(digit(), 0, kNoMax); }
uint8_t byte(char c) { return static_cast<uint8_t>(c); }

// ---- digits as numbers ----

int compare(const std::string& a, const std::string& b) {  // without zeros before them
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a < b ? -1 : a == b ? 0 : 1;
}

std::string trimmed(std::string value) {
  const size_t first = value.find_first_not_of('0');
  return first == std::string::npos ? "0" : value.substr(first);
}

std::string plus_one(std::string value) {
  for (size_t i = value.size(); i-- > 0;) {
    if (value[i] != '9') {
      ++value[i];
      return value;
    }
    value[i] = '0';
  }
  return "1" + value;
}

// REQUIRES: not "0".
std::string minus_one(std::string value) {
  for (size_t i = value.size(); i-- > 0;) {
    if (value[i] != '0') {
      --value[i];
      break;
    }
    value[i] = '9';
  }
  return trimmed(value);
}

// ---- strings of digits ----

// Strings of digits, with a point before the last `behind` of them.
struct DigitStrings {
  size_t behind = 0;
  std::vector<Expression> all;

  // Adds those of equal length from `low` to `high`. before: their first `at` digits, of which both
  // ends have the same. REQUIRES: low ≤ high.
  void add_between(const std::string& low, const std::string& high, size_t at = 0,
                   std::vector<Expression> before = {});
};

void DigitStrings::add_between(const std::string& low, const std::string& high, size_t at,
                               std::vector<Expression> before) {
  if (at == low.size()) return all.push_back(sequence(std::move(before)));
  if (behind > 0 && at == low.size() - behind) before.push_back(text("."));
  const auto with = [&](char first, char last) {
    std::vector<Expression> longer = before;
    longer.push_back(byte_range(byte(first), byte(last)));
    return longer;
  };
  if (low[at] == high[at]) {
    return add_between(low, high, at + 1, with(low[at], low[at]));
  }
  const auto ends_with = [&](const std::string& value, char each) {
    return value.find_first_not_of(each, at + 1) == std::string::npos;
  };
  char first = low[at], last = high[at];
  if (!ends_with(low, '0')) {
    const std::string end = low.substr(0, at + 1) + std::string(low.size() - at - 1, '9');
    add_between(low, end, at + 1, with(first, first));
    ++first;
  }
  if (!ends_with(high, '9')) --last;
  if (first <= last) {
    std::vector<Expression> whole = with(first, last);
    for (size_t i = at + 1; i < low.size(); ++i) {
      if (behind > 0 && i == low.size() - behind) whole.push_back(text("."));
      whole.push_back(digit());
    }
    all.push_back(sequence(std::move(whole)));
  }
  if (!ends_with(high, '9')) {
    const std::string begin = high.substr(0, at + 1) + std::string(low.size() - at - 1, '0');
    add_between(begin, high, at + 1, with(high[at], high[at]));
  }
}

// Numbers from low to high (nullopt: without an end), of which the last `behind` digits come behind
// a point. At least one comes before it.
Expression from_to(const std::string& low, const std::optional<std::string>& high, size_t behind) {
  DigitStrings strings{.behind = behind};
  const auto padded = [&](const std::string& value) {
    const size_t min = behind + 1;
    return value.size() < min ? std::string(min - value.size(), '0') + value : value;
  };
  const std::string first = padded(low);
  const std::string last = high ? padded(*high) : std::string(first.size(), '9');
  for (size_t length = first.size(); length <= last.size(); ++length) {
    const std::string begin = length == first.size() ? first : "1" + std::string(length - 1, '0');
    const std::string end = length == last.size() ? last : std::string(length, '9');
    if (begin <= end) strings.add_between(begin, end);
  }
  if (!high) {
    const int more = static_cast<int>(first.size() - behind);
    strings.all.push_back(sequence(
        {byte_range('1', '9'), repeat(digit(), more, kNoMax), behind > 0 ? text(".") : text(""),
         repeat(digit(), static_cast<int>(behind), static_cast<int>(behind))}));
  }
  return choice(std::move(strings.all));
}

// ---- bounds ----

Bound negated(Bound bound) {
  bound.value.is_negative = !bound.value.is_negative;
  return bound;
}

// Bounds of what comes behind a minus sign.
NumberBounds mirrored(const NumberBounds& bounds) {
  NumberBounds mirror;
  if (bounds.max) mirror.min = negated(*bounds.max);
  if (bounds.min) mirror.max = negated(*bounds.min);
  return mirror;
}

// Bounds of numbers from zero on; nullopt: there are none. Negative zero is zero.
std::optional<NumberBounds> from_zero(NumberBounds bounds) {
  if (bounds.max && bounds.max->value.is_negative && !bounds.max->value.is_zero()) return {};
  if (!bounds.min || (bounds.min->value.is_negative && !bounds.min->value.is_zero())) {
    bounds.min = Bound{};
  }
  return bounds;
}

// Behind a minus sign zero is left out: it has another way to be written.
NumberBounds above_zero(NumberBounds bounds) {
  if (bounds.min->value.is_zero()) bounds.min->is_exclusive = true;
  return bounds;
}

// What a bound says of numbers with so many digits behind the point, as whole numbers. nullopt:
// none is that small.
std::string min_with(const Bound& min, size_t behind) {
  const std::string& fraction = min.value.fraction;
  const bool is_cut = fraction.size() > behind;
  const std::string digits = trimmed(min.value.whole + fraction.substr(0, behind) +
                                     std::string(behind - std::min(behind, fraction.size()), '0'));
  return is_cut || min.is_exclusive ? plus_one(digits) : digits;
}
std::optional<std::string> max_with(const Bound& max, size_t behind) {
  const std::string& fraction = max.value.fraction;
  const bool is_cut = fraction.size() > behind;
  const std::string digits = trimmed(max.value.whole + fraction.substr(0, behind) +
                                     std::string(behind - std::min(behind, fraction.size()), '0'));
  if (is_cut || !max.is_exclusive) return digits;
  if (digits == "0") return {};
  return minus_one(digits);
}

Expression with_digits(const NumberBounds& bounds, size_t behind) {
  const std::string low = min_with(*bounds.min, behind);
  if (!bounds.max) return from_to(low, std::nullopt, behind);
  const auto high = max_with(*bounds.max, behind);
  return high && compare(low, *high) <= 0 ? from_to(low, high, behind) : nothing();
}

Expression integers_from_zero(const NumberBounds& bounds) { return with_digits(bounds, 0); }

// With a point. Fewer digits behind it than the bounds have, or as many; or more, which are any if
// the number before them is not the upper bound, and is not excluded as the lower one.
Expression fractions_from_zero(const NumberBounds& bounds) {
  const Bound& min = *bounds.min;
  size_t behind = std::max<size_t>(1, min.value.fraction.size());
  if (bounds.max) behind = std::max(behind, bounds.max->value.fraction.size());
  std::vector<Expression> all;
  for (size_t fewer = 1; fewer <= behind; ++fewer) all.push_back(with_digits(bounds, fewer));
  NumberBounds before_more{.min = Bound{min.value, false}, .max = {}};
  if (bounds.max) before_more.max = Bound{bounds.max->value, true};
  const std::string low = min_with(*before_more.min, behind);
  const bool has_room =
      !bounds.max || compare(low, max_with(*before_more.max, behind).value_or("0")) <= 0;
  const bool excludes_all =
      bounds.max && bounds.max->value.is_zero();  // nothing is below zero here
  if (has_room && !excludes_all) {
    if (min.is_exclusive) {
      const Expression not_zero = sequence({digits(), byte_range('1', '9'), digits()});
      all.push_back(sequence({from_to(low, low, behind), not_zero}));
      before_more.min->is_exclusive = true;
    }
    all.push_back(sequence({with_digits(before_more, behind), digits()}));
  }
  // The upper bound, with zeros.
  if (bounds.max && !bounds.max->is_exclusive) {
    const Bound exactly{bounds.max->value, false};
    NumberBounds only = bounds;
    only.min = compare(min_with(min, behind), *max_with(exactly, behind)) <= 0
                   ? exactly
                   : Bound{bounds.max->value, true};
    all.push_back(sequence({with_digits(only, behind), repeat(text("0"), 0, kNoMax)}));
  }
  return choice(std::move(all));
}

Expression both_signs(const NumberBounds& bounds, Expression (*from)(const NumberBounds&)) {
  std::vector<Expression> all;
  if (const auto up = from_zero(bounds)) all.push_back(from(*up));
  if (const auto down = from_zero(mirrored(bounds))) {
    all.push_back(sequence({text("-"), from(above_zero(*down))}));
  }
  return choice(std::move(all));
}

}  // namespace

Result<Decimal> read_decimal(const nlohmann::ordered_json& value) {
  std::string text;
  if (const auto* large = formats::large_integer(value)) {
    text.assign(large->begin(), large->end());
  } else if (value.is_number_unsigned()) {
    text = fmt::format("{}", value.get<uint64_t>());
  } else if (value.is_number_integer()) {
    text = fmt::format("{}", value.get<int64_t>());
  } else if (value.is_number()) {
    text = fmt::format("{}", value.get<double>());
  } else {
    return invalid_input("expected a number");
  }
  Decimal decimal;
  decimal.is_negative = text.starts_with('-');
  if (decimal.is_negative) text.erase(0, 1);
  int exponent = 0;
  if (const size_t e = text.find('e'); e != std::string::npos) {
    exponent = std::stoi(text.substr(e + 1));
    text.resize(e);
  }
  const size_t point = text.find('.');
  std::string whole = text.substr(0, point);
  std::string fraction = point == std::string::npos ? "" : text.substr(point + 1);
  const auto shift = static_cast<size_t>(std::abs(exponent));
  if (shift > 2 * kMaxDigits) return invalid_input("has too many digits");
  if (exponent > 0) fraction.append(shift, '0');
  if (exponent < 0) whole.insert(0, shift, '0');
  const std::string all = whole + fraction;
  const size_t split =
      exponent > 0 ? whole.size() + shift : whole.size() - (exponent < 0 ? shift : 0);
  decimal.whole = trimmed(all.substr(0, split));
  decimal.fraction = all.substr(split);
  decimal.fraction.resize(decimal.fraction.find_last_not_of('0') + 1);
  if (decimal.whole.size() > kMaxDigits || decimal.fraction.size() > kMaxDigits) {
    return invalid_input(fmt::format("has more than {} digits", kMaxDigits));
  }
  return decimal;
}

Expression integers_between(const NumberBounds& bounds) {
  return both_signs(bounds, integers_from_zero);
}

Expression numbers_between(const NumberBounds& bounds) {
  return choice({integers_between(bounds), both_signs(bounds, fractions_from_zero)});
}

// A rule for each remainder: what may follow digits that leave it.
Expression multiples_of(int step, Rules* rules) {
  std::vector<int> numbers;
  for (int i = 0; i < step; ++i) numbers.push_back(rules->add(fmt::format("remainder {}", i)));
  const auto next = [&](int remainder, char first) {
    std::vector<Expression> all;
    for (char c = first; c <= '9'; ++c) {
      const int to = (10 * remainder + (c - '0')) % step;
      all.push_back(
          sequence({byte_range(byte(c), byte(c)), call(numbers[static_cast<size_t>(to)])}));
    }
    return all;
  };
  for (int i = 0; i < step; ++i) {
    std::vector<Expression> all = next(i, '0');
    if (i == 0) all.push_back(text(""));
    rules->define(numbers[static_cast<size_t>(i)], choice(std::move(all)));
  }
  return choice({text("0"), sequence({optional(text("-")), choice(next(0, '1'))})});
}

Expression numbers_with_digits(int max) {
  const Expression whole = choice({text("0"), sequence({byte_range('1', '9'), digits()})});
  Expression all = sequence({optional(text("-")), whole});
  if (max == 0) return all;
  return sequence({all, optional(sequence({text("."), repeat(digit(), 1, max)}))});
}

}  // namespace wideep::grammar
