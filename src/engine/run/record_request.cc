// SPDX-License-Identifier: Apache-2.0
#include "run/record_request.h"

#include <fmt/format.h>

#include <charconv>

namespace wideep::run {
namespace {

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

Result<IterationRange> IterationRange::parse(const std::string& text, const std::string& name) {
  const size_t dash = text.find('-');
  if (dash != std::string::npos) {
    const auto first = whole_number(std::string_view(text).substr(0, dash));
    const auto last = whole_number(std::string_view(text).substr(dash + 1));
    if (first && last && *first < *last) return IterationRange{*first, *last};
  }
  return invalid_input(fmt::format(
      "{}: expected a range A-B of iterations with A < B (B is not recorded), found \"{}\"", name,
      text));
}

}  // namespace wideep::run
