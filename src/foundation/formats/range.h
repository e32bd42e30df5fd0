// SPDX-License-Identifier: Apache-2.0
//
// Ranges of numbers in settings, both ends included, and their descriptions for messages.
//
// Thread safety: pure functions and plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace wideep::formats {

struct IntegerRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();

  bool contains(int64_t value) const { return value >= min && value <= max; }
};

struct NumberRange {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();

  // False for NaN and, with the default ends, for the infinities.
  bool contains(double value) const { return value >= min && value <= max; }
};

// "an integer", "an integer from 1 to 8", "a number of at least 0.5", "a number of at most 1".
std::string describe(const IntegerRange& range);
std::string describe(const NumberRange& range);

// `value` as an integer (10000.0 is one); none if it is no integer or larger than 2^53 in
// magnitude.
std::optional<int64_t> exact_integer(double value);

}  // namespace wideep::formats
