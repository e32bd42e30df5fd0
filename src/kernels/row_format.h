// SPDX-License-Identifier: Apache-2.0
//
// In what form rows of activations travel between ranks: as they are, or as codes and scales.
//
//   format  a value is                                         row of `hidden` values
//   f32     a float32                                          [hidden] float32
//   bf16    a bfloat16                                         [hidden] bf16
//   fp8     e4m3 · float32 scale of 128 values                 [hidden] e4m3
//                                                              [hidden / 128] float32
//   nvfp4   e2m1 · (e4m3 scale of 16 values · float32 scale    [hidden / 2] e2m1, low nibble first
//           of the row)                                        [hidden / 16] e4m3
//                                                              [1] float32
//
// coded rows followed by zero bytes up to a multiple of 16. A row's bytes depend on that row only,
// and are the same on every instruction set.
//
// Scales are the least that hold the largest magnitude, but for rounding: fp8 max / 448 of 128
// values, whose inverse is rounded to bf16 (row_scales.h says why); nvfp4 the row's max / (6 ·
// 448), and of 16 values max / 6 in units of that, rounded to e4m3. Values are rounded to the
// nearest, ties to even (nvfp4 by way of 18ths of the scale, see row_scales.h); 4-bit values beyond
// 6 (where rounding made the scale smaller) become 6.
//
// Where all of a scale's values (for nvfp4: of the row) are below 2⁻¹⁰⁰ they become zero, and where
// one is infinite, NaN, or 2¹²⁷ or more they all become NaN: an overflow is never hidden.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"
#include "wideep/status.h"

namespace wideep::kernels {

enum class RowFormat : uint8_t { kF32, kBf16, kFp8, kNvfp4 };

inline constexpr int kFp8RowGroup = 128;
inline constexpr int kNvfp4RowGroup = 16;
inline constexpr size_t kRowAlignment = 16;

// "f32", "bf16", "fp8", "nvfp4".
std::string_view row_format_name(RowFormat format);
std::optional<RowFormat> row_format_from_name(std::string_view name);

// Of rows that are not coded.
constexpr RowFormat row_format(Dtype dtype) {
  return dtype == Dtype::kF32 ? RowFormat::kF32 : RowFormat::kBf16;
}
constexpr bool is_coded(RowFormat format) { return format >= RowFormat::kFp8; }

// Values that share a scale; 1 where there are none. `hidden` is a multiple of it.
constexpr int row_group(RowFormat format) {
  if (format == RowFormat::kFp8) return kFp8RowGroup;
  return format == RowFormat::kNvfp4 ? kNvfp4RowGroup : 1;
}

// From the row's start: of its scales, and of what comes behind them.
constexpr size_t row_scales_offset(RowFormat format, int hidden) {
  const auto values = static_cast<size_t>(hidden);
  if (format == RowFormat::kFp8) return values;
  if (format == RowFormat::kNvfp4) return values / 2;
  return values * (format == RowFormat::kF32 ? 4 : 2);
}
constexpr size_t row_scales_end(RowFormat format, int hidden) {
  const auto groups = static_cast<size_t>(hidden / row_group(format));
  const size_t offset = row_scales_offset(format, hidden);
  if (format == RowFormat::kFp8) return offset + groups * sizeof(float);
  return format == RowFormat::kNvfp4 ? offset + groups : offset;
}
// Of coded rows a multiple of kRowAlignment.
constexpr size_t row_bytes(RowFormat format, int hidden) {
  const size_t end = row_scales_end(format, hidden);
  if (!is_coded(format)) return end;
  const size_t used = end + (format == RowFormat::kNvfp4 ? sizeof(float) : 0);
  return (used + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

// Errors (invalid input): hidden below 1, or not a multiple of the group.
Status check_row_format(RowFormat format, int hidden);

}  // namespace wideep::kernels
