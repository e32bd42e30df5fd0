// SPDX-License-Identifier: Apache-2.0
#include "formats/range.h"

#include <fmt/format.h>

#include <cmath>

namespace wideep::formats {
namespace {

// Only ends that differ from the default are named.
template <typename Range>
std::string describe_as(const char* noun, const Range& range) {
  const bool has_min = range.min != Range{}.min;
  const bool has_max = range.max != Range{}.max;
  if (has_min && has_max) return fmt::format("{} from {} to {}", noun, range.min, range.max);
  if (has_min) return fmt::format("{} of at least {}", noun, range.min);
  if (has_max) return fmt::format("{} of at most {}", noun, range.max);
  return noun;
}

}  // namespace

std::string describe(const IntegerRange& range) { return describe_as("an integer", range); }
std::string describe(const NumberRange& range) { return describe_as("a number", range); }

std::optional<int64_t> exact_integer(double value) {
  // Above 2^53 doubles cannot represent every integer: the text may have held another one.
  if (!(std::abs(value) <= 0x1p53) || std::trunc(value) != value) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace wideep::formats
