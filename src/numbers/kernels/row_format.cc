// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_format.h"

#include <fmt/format.h>

#include <array>

namespace wideep::kernels {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"f32", "bf16", "fp8", "nvfp4"};

}  // namespace

std::string_view row_format_name(RowFormat format) { return kNames[static_cast<size_t>(format)]; }

std::optional<RowFormat> row_format_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<RowFormat>(i);
  }
  return {};
}

Status check_row_format(RowFormat format, int hidden) {
  if (hidden >= 1) return {};
  return invalid_input(fmt::format("rows of {} values in {}: expected at least one", hidden,
                                   row_format_name(format)));
}

}  // namespace wideep::kernels
