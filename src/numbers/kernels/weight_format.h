// SPDX-License-Identifier: Apache-2.0
//
// The formats of weight matrices, and the type of rows that their products take.
//
//   format   element                                           group  rows of x
//   f32      a float32                                             –  float32 rows
//   bf16     a bfloat16                                            –  bf16 rows
//   fp8      e4m3 · float32 scale of a 128 × 128 block           128  bf16 rows   (DeepSeek-V3)
//   int8     (code − 128) · float32 scale                   8 … 256  quantised rows
//   int4     (code − 8) · float32 scale                     8 … 256  quantised rows
//   int4h    scale · code + minimum, both half floats       8 … 256  quantised rows   (ggml's Q4_1)
//   int8h    the same with codes of a byte                  8 … 256  quantised rows   (Q5_1)
//   int4m    d · scale · code − dmin · minimum, with byte    32, 16  quantised rows   (Q4_K, Q2_K)
//            scales and minimums of groups, and float32 d
//            and dmin of 256
//   int8m    the same with codes of a byte                   32, 16  quantised rows   (Q5_K)
//   mxfp4    e2m1 · 2^(e8m0 scale)                                32  quantised rows   (OCP MX)
//   nvfp4    e2m1 · e4m3 scale · one float32 for the matrix       16  quantised rows   (ModelOpt)
//
// A group is a number of consecutive k of one output column that share a scale. Quantised rows:
// quantized_rows.h.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace wideep::kernels {

enum class WeightFormat : uint8_t {
  kF32,
  kBf16,
  kFp8,
  kInt8,
  kInt4,
  kMxfp4,
  kNvfp4,
  kInt4m,
  kInt8m,
  kInt4h,
  kInt8h
};

// "f32", "bf16", "fp8", "int8", "int4", "mxfp4", "nvfp4", "int4m", "int8m", "int4h",
// "int8h".
std::string_view weight_format_name(WeightFormat format);
std::optional<WeightFormat> weight_format_from_name(std::string_view name);

// Whether groups have a byte for the scale and one for the minimum, with factors for 256 values.
constexpr bool has_two_levels(WeightFormat format) {
  return format == WeightFormat::kInt4m || format == WeightFormat::kInt8m;
}
// Whether groups have a scale and a minimum in half floats.
constexpr bool has_half_scales(WeightFormat format) {
  return format == WeightFormat::kInt4h || format == WeightFormat::kInt8h;
}
// Whether codes start from a minimum of their group, not from zero or an offset.
constexpr bool has_minimums(WeightFormat format) {
  return has_two_levels(format) || has_half_scales(format);
}

// Whether products take rows that are quantised to int8 (quantized_rows.h).
constexpr bool takes_quantized_rows(WeightFormat format) {
  return format == WeightFormat::kInt8 || format == WeightFormat::kInt4 ||
         format == WeightFormat::kMxfp4 || format == WeightFormat::kNvfp4 || has_minimums(format);
}

// The dtype of activation rows in dispatch, and of the KV cache, with weights of this format.
constexpr Dtype row_dtype(WeightFormat format) {
  return format == WeightFormat::kF32 ? Dtype::kF32 : Dtype::kBf16;
}

}  // namespace wideep::kernels
