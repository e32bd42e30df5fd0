// SPDX-License-Identifier: Apache-2.0
#include "kernels/weight_format.h"

#include <array>
#include <utility>

namespace wideep::kernels {
namespace {

constexpr std::array<std::pair<WeightFormat, std::string_view>, 11> kNames = {{
    {WeightFormat::kF32, "f32"},
    {WeightFormat::kBf16, "bf16"},
    {WeightFormat::kFp8, "fp8"},
    {WeightFormat::kInt8, "int8"},
    {WeightFormat::kInt4, "int4"},
    {WeightFormat::kMxfp4, "mxfp4"},
    {WeightFormat::kNvfp4, "nvfp4"},
    {WeightFormat::kInt4m, "int4m"},
    {WeightFormat::kInt8m, "int8m"},
    {WeightFormat::kInt4h, "int4h"},
    {WeightFormat::kInt8h, "int8h"},
}};

}  // namespace

std::string_view weight_format_name(WeightFormat format) {
  for (const auto& [value, name] : kNames) {
    if (value == format) return name;
  }
  return "unknown";
}

std::optional<WeightFormat> weight_format_from_name(std::string_view name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) return value;
  }
  return std::nullopt;
}

}  // namespace wideep::kernels
