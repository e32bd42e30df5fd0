// SPDX-License-Identifier: Apache-2.0
//
// Reference of row_format.h and reduce.h, one value at a time.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/microscaling.h"
#include "kernels/row_scales.h"
#include "kernels/tables.h"

namespace wideep::kernels::ref {
namespace {

float value_at(Dtype dtype, const void* x, int i) {
  return dtype == Dtype::kF32 ? static_cast<const float*>(x)[i]
                              : static_cast<float>(static_cast<const Bf16*>(x)[i]);
}

uint32_t largest_bits(Dtype dtype, const void* x, int begin, int end) {
  uint32_t largest = 0;
  for (int i = begin; i < end; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(value_at(dtype, x, i)) & 0x7fffffffu);
  }
  return largest;
}

void put_float(std::byte* to, float value) { std::memcpy(to, &value, sizeof(value)); }
float get_float(const std::byte* from) {
  float value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
float get_e4m3(const std::byte* from) {
  F8E4M3 value;
  value.bits = std::to_integer<uint8_t>(*from);
  return static_cast<float>(value);
}

void encode_fp8(Dtype dtype, const void* x, int hidden, std::byte* row) {
  std::byte* scales = row + row_scales_offset(RowFormat::kFp8, hidden);
  for (int begin = 0; begin < hidden; begin += kFp8RowGroup, scales += sizeof(float)) {
    const int end = std::min(begin + kFp8RowGroup, hidden);
    const RowScale scale = fp8_scale(largest_bits(dtype, x, begin, end));
    put_float(scales, scale.scale);
    if (scale.to_code == 0.0f) continue;
    for (int i = begin; i < end; ++i) {
      row[i] = std::byte{F8E4M3(value_at(dtype, x, i) * scale.to_code).bits};
    }
  }
}

void encode_nvfp4(Dtype dtype, const void* x, int hidden, std::byte* row) {
  const RowScale of_row = nvfp4_scale(largest_bits(dtype, x, 0, hidden));
  std::byte* scales = row + row_scales_offset(RowFormat::kNvfp4, hidden);
  put_float(row + row_scales_end(RowFormat::kNvfp4, hidden), of_row.scale);
  if (of_row.to_code == 0.0f) return;
  for (int begin = 0; begin < hidden; begin += kNvfp4RowGroup) {
    const int end = std::min(begin + kNvfp4RowGroup, hidden);
    const uint32_t largest = largest_bits(dtype, x, begin, end);
    const F8E4M3 code(std::bit_cast<float>(largest) * of_row.to_code);
    scales[begin / kNvfp4RowGroup] = std::byte{code.bits};
    const float to_steps =
        code.bits == 0 ? 0.0f : kE2m1Steps / (static_cast<float>(code) * of_row.scale);
    for (int i = begin; i < end; ++i) {
      const auto steps = static_cast<int>(std::nearbyint(value_at(dtype, x, i) * to_steps));
      const unsigned element = e2m1_of_steps(std::abs(steps)) | (steps < 0 ? 8u : 0u);
      row[i / 2] |= static_cast<std::byte>(element << (i % 2 * 4));
    }
  }
}

void put(Dtype dtype, void* y, int i, float value) {
  if (dtype == Dtype::kF32) {
    static_cast<float*>(y)[i] = value;
  } else {
    static_cast<Bf16*>(y)[i] = Bf16(value);
  }
}

// Value i of a row is code · scale.
struct Coded {
  float code, scale;
};

Coded coded_at(RowFormat format, const std::byte* row, int hidden, int i) {
  const std::byte* scales = row + row_scales_offset(format, hidden);
  if (format == RowFormat::kFp8) {
    return {get_e4m3(row + i), get_float(scales + size_t(i / kFp8RowGroup) * sizeof(float))};
  }
  const float of_row = get_float(row + row_scales_end(format, hidden));
  return {float_from_e2m1(std::to_integer<unsigned>(row[i / 2]) >> (i % 2 * 4)),
          get_e4m3(scales + i / kNvfp4RowGroup) * of_row};
}

float plain_at(RowFormat format, const std::byte* row, int i) {
  return value_at(format == RowFormat::kF32 ? Dtype::kF32 : Dtype::kBf16, row, i);
}

float row_value(RowFormat format, const std::byte* row, int hidden, int i) {
  if (!is_coded(format)) return plain_at(format, row, i);
  const Coded value = coded_at(format, row, hidden, i);
  return value.code * value.scale;
}

// sum + weight · value i of the row, in the arithmetic of reduce.h.
float add_weighted(RowFormat format, const std::byte* row, int hidden, int i, float weight,
                   float sum) {
  if (!is_coded(format)) return std::fma(weight, plain_at(format, row, i), sum);
  const Coded value = coded_at(format, row, hidden, i);
  return std::fma(weight * value.scale, value.code, sum);
}

}  // namespace

void encode_row(Dtype x_dtype, const void* x, RowFormat format, int hidden, std::byte* row) {
  std::memset(row, 0, row_bytes(format, hidden));
  if (format == RowFormat::kFp8) return encode_fp8(x_dtype, x, hidden, row);
  if (format == RowFormat::kNvfp4) return encode_nvfp4(x_dtype, x, hidden, row);
  for (int i = 0; i < hidden; ++i) {
    put(format == RowFormat::kF32 ? Dtype::kF32 : Dtype::kBf16, row, i, value_at(x_dtype, x, i));
  }
}

void decode_row(RowFormat format, const std::byte* row, int hidden, Dtype y_dtype, void* y) {
  for (int i = 0; i < hidden; ++i) put(y_dtype, y, i, row_value(format, row, hidden, i));
}

void reduce_experts(const ReduceArgs& args) {
  for (int i = 0; i < args.n; ++i) {
    float sum = 0.0f;
    for (int k = 0; k < args.top_k; ++k) {
      sum = add_weighted(args.format, args.rows[k], args.n, i, args.weights[k], sum);
    }
    if (args.shared != nullptr) sum += args.shared[i];
    if (args.x != nullptr) {
      // A scale of 1 makes this a plain addition.
      args.x[i] = std::fma(args.scale, sum, args.x[i]);
    } else {
      args.sum[i] = Bf16(sum);
    }
  }
}

}  // namespace wideep::kernels::ref
