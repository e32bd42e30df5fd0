// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/printable.h"

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

namespace {

// Bytes of a unit in lower case; 0: there is no such unit.
uint64_t bytes_of_unit(std::string_view unit) {
  constexpr std::string_view kPrefixes = "kmgtpe";
  if (unit.empty() || unit == "b") return 1;
  const size_t prefix = kPrefixes.find(unit[0]);
  const std::string_view rest = unit.substr(1);
  if (prefix == std::string_view::npos) return 0;
  if (rest != "" && rest != "b" && rest != "ib" && rest != "i") return 0;
  uint64_t bytes = 1;
  for (size_t i = 0; i <= prefix; ++i) bytes *= rest == "b" ? 1000 : 1024;
  return bytes;
}

}  // namespace

Result<uint64_t> parse_byte_size(std::string_view text) {
  const auto wrong = [&] {
    return invalid_input(
        fmt::format("expected bytes, as 8G, 512M or 1.5GiB, found {}", printable(text)));
  };
  double number = 0.0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || std::signbit(number)) return wrong();
  std::string unit;
  for (const char* at = stop; at != end; ++at) {
    if (*at == ' ' && unit.empty()) continue;
    unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
  }
  const uint64_t each = bytes_of_unit(unit);
  if (each == 0) return wrong();
  // Whole numbers beyond 2^53 are not those of a double, but such sizes are no memory either.
  constexpr double kLimit = 18446744073709551616.0;  // 2^64
  const double bytes = number * static_cast<double>(each);
  if (!(bytes < kLimit)) return wrong();
  return static_cast<uint64_t>(bytes);
}

}  // namespace wideep::base
