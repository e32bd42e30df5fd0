// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.h"

#include <array>
#include <utility>

namespace wideep {
namespace {

constexpr std::array<std::pair<Dtype, std::string_view>, 12> kNames = {{
    {Dtype::kF32, "F32"},
    {Dtype::kBf16, "BF16"},
    {Dtype::kF16, "F16"},
    {Dtype::kF8E4M3, "F8_E4M3"},
    {Dtype::kF8E8M0, "F8_E8M0"},
    {Dtype::kI64, "I64"},
    {Dtype::kI32, "I32"},
    {Dtype::kI16, "I16"},
    {Dtype::kI8, "I8"},
    {Dtype::kU8, "U8"},
    {Dtype::kBool, "BOOL"},
    {Dtype::kF64, "F64"},
}};

}  // namespace

std::string_view dtype_name(Dtype dtype) {
  for (const auto& [candidate, name] : kNames) {
    if (candidate == dtype) return name;
  }
  return "?";
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const auto& [dtype, candidate] : kNames) {
    if (candidate == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace wideep
