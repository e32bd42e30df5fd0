// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <fmt/format.h>

#include <array>

namespace wideep::base {

std::string byte_size(uint64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  // 1023.95 and more would be printed as 1024.0: such a value moves on to the next unit.
  constexpr double kLargest = 1023.95;
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  for (; value >= kLargest && unit + 1 < kUnits.size(); ++unit) value /= 1024.0;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace wideep::base
