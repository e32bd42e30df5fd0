// SPDX-License-Identifier: Apache-2.0
//
// The formats of activation rows in dispatch and combine: plain values, or codes and scales.
//
//   format  value                                              row of `hidden` values
//   f32     a float32                                          [hidden] float32
//   bf16    a bfloat16                                         [hidden] bf16
//   fp8     e4m3 · float32 scale of 128 values                 [width] e4m3
//                                                              [width / 128] float32
//   nvfp4   e2m1 · (e4m3 scale of 16 values · float32 scale    [width / 2] e2m1, low nibble first
//           of the row)                                        [width / 16] e4m3
//                                                              [1] float32
//
// Coded rows have a width of whole groups (128 or 16 values that share a scale): `hidden` values,
// then zeros. They are padded with zero bytes to a multiple of 16. The bytes of a row depend on
// that row only, and are the same on every instruction set.
//
// Scales: fp8, of 128 values: max / 448, whose inverse is rounded to bf16 (row_scales.h explains
// why). nvfp4: of the row, max / (6 · 448); of 16 values, max / 6 in units of the row's scale,
// rounded to e4m3. Values are rounded to the nearest, ties to even (nvfp4 in steps of 1/18 of the
// scale, see row_scales.h). A 4-bit value above 6, possible if rounding made its scale smaller,
// becomes 6.
//
// If all values of a scale (nvfp4: of the row) are below 2⁻¹⁰⁰, they become zero. If one is
// infinite, NaN, or at least 2¹²⁷, all of them become NaN: an overflow is never hidden.
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

// The format of plain rows of this dtype.
constexpr RowFormat row_format(Dtype dtype) {
  return dtype == Dtype::kF32 ? RowFormat::kF32 : RowFormat::kBf16;
}
constexpr bool is_coded(RowFormat format) { return format >= RowFormat::kFp8; }

// Number of values that share a scale; 1 if there are no scales.
constexpr int row_group(RowFormat format) {
  if (format == RowFormat::kFp8) return kFp8RowGroup;
  return format == RowFormat::kNvfp4 ? kNvfp4RowGroup : 1;
}

// Number of groups, of which the last may be short; and the number of values in whole groups.
constexpr int row_groups(RowFormat format, int hidden) {
  return (hidden + row_group(format) - 1) / row_group(format);
}
constexpr int row_width(RowFormat format, int hidden) {
  return row_groups(format, hidden) * row_group(format);
}

// Offsets in a row, in bytes: of its scales, and of the end of the scales.
constexpr size_t row_scales_offset(RowFormat format, int hidden) {
  const auto values = static_cast<size_t>(row_width(format, hidden));
  if (format == RowFormat::kFp8) return values;
  if (format == RowFormat::kNvfp4) return values / 2;
  return values * (format == RowFormat::kF32 ? 4 : 2);
}
constexpr size_t row_scales_end(RowFormat format, int hidden) {
  const auto groups = static_cast<size_t>(row_groups(format, hidden));
  const size_t offset = row_scales_offset(format, hidden);
  if (format == RowFormat::kFp8) return offset + groups * sizeof(float);
  return format == RowFormat::kNvfp4 ? offset + groups : offset;
}
// Size of a row; for coded rows a multiple of kRowAlignment.
constexpr size_t row_bytes(RowFormat format, int hidden) {
  const size_t end = row_scales_end(format, hidden);
  if (!is_coded(format)) return end;
  const size_t used = end + (format == RowFormat::kNvfp4 ? sizeof(float) : 0);
  return (used + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

// Errors (invalid input): hidden below 1.
Status check_row_format(RowFormat format, int hidden);

}  // namespace wideep::kernels
