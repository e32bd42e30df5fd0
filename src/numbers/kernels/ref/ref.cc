// SPDX-License-Identifier: Apache-2.0
//
// The reference kernels: one element at a time. Tests compare every other table with them, and they
// run on every processor.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/microscaling.h"
#include "kernels/coded_matrix.h"
#include "kernels/e5m3.h"
#include "kernels/round_small.h"
#include "kernels/tables.h"

namespace wideep::kernels::ref {
namespace {

float element(Dtype dtype, const void* data, size_t index) {
  return dtype == Dtype::kF32 ? static_cast<const float*>(data)[index]
                              : static_cast<float>(static_cast<const Bf16*>(data)[index]);
}

// Locates weight (row, k) in its block.
struct InBlock {
  const std::byte* block;
  size_t lane;  // column in the panel
  size_t at;    // k in the block

  InBlock(const PackedMatrix& w, int row, int k)
      : block(w.panel(row / kPanelWidth) + size_t(k / w.shape.block_k()) * w.shape.block_bytes()),
        lane(static_cast<size_t>(row % kPanelWidth)),
        at(static_cast<size_t>(k % w.shape.block_k())) {}

  template <typename T>
  T value(size_t offset_bytes, size_t index) const {
    T result;
    std::memcpy(&result, block + offset_bytes + index * sizeof(T), sizeof(T));
    return result;
  }
  // The float32 scale after the codes.
  float scale(const PackedMatrix& w) const {
    return value<float>(w.shape.block_bytes() - kScaleBytes, lane);
  }
};
constexpr size_t kByteScales = kGroupsOfBlock * kPanelWidth;  // bytes of scales before the codes

// Bytes of the scales of a block of two levels; as many of minimums follow.
size_t two_level_scales(const PackedShape& shape) {
  return static_cast<size_t>(shape.groups_of_block()) * kPanelWidth;
}

// A code of a byte. codes: offset of the codes in the block.
unsigned byte_code(const InBlock& in, size_t codes) {
  return in.value<uint8_t>(codes, (in.at / 4 * kPanelWidth + in.lane) * 4 + in.at % 4);
}

// A four-bit code.
unsigned nibble(const InBlock& in, size_t codes) {
  const size_t in_row = in.at % 8;
  const auto byte = in.value<uint8_t>(codes, (in.at / 8 * kPanelWidth + in.lane) * 4 + in_row % 4);
  return in_row < 4 ? byte & 15u : byte >> 4;
}

// Half the scale of the group.
float byte_scale(const PackedMatrix& w, const InBlock& in) {
  const auto scale =
      in.value<uint8_t>(0, in.at / static_cast<size_t>(w.shape.group) * kPanelWidth + in.lane);
  if (w.shape.format == WeightFormat::kMxfp4) return float_from_e8m0(scale);
  return float_from_e5m3(scale) / 2.0f;
}

// Weight (row, k), without scales; for mxfp4 and nvfp4 twice the element, which is an integer.
float packed_element(const PackedMatrix& w, int row, int k) {
  const InBlock in(w, row, k);
  const size_t pair = (in.at / 2 * kPanelWidth + in.lane) * 2 + in.at % 2;
  switch (w.shape.format) {
    case WeightFormat::kF32:
      return in.value<float>(0, in.at * kPanelWidth + in.lane);
    case WeightFormat::kBf16:
      return static_cast<float>(in.value<Bf16>(0, pair));
    case WeightFormat::kFp8:
      return static_cast<float>(in.value<F8E4M3>(0, pair));
    case WeightFormat::kInt8:
      return static_cast<float>(byte_code(in, 0)) - 128.0f;
    case WeightFormat::kInt4:
      return static_cast<float>(nibble(in, 0)) - 8.0f;
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
      return 2.0f * float_from_e2m1(nibble(in, kByteScales));
    case WeightFormat::kInt4h:
      return static_cast<float>(nibble(in, 0));
    case WeightFormat::kInt8h:
      return static_cast<float>(byte_code(in, 0));
    case WeightFormat::kInt4m:
      return static_cast<float>(nibble(in, 2 * two_level_scales(w.shape)));
    case WeightFormat::kInt8m:
      return static_cast<float>(byte_code(in, 2 * two_level_scales(w.shape)));
  }
  return 0.0f;
}

float chain_dot(const void* x, const PackedMatrix& w, int column, int begin, int end) {
  const Dtype dtype = w.shape.format == WeightFormat::kF32 ? Dtype::kF32 : Dtype::kBf16;
  float sum = 0.0f;
  for (int k = begin; k < end; ++k) {
    sum = std::fma(element(dtype, x, k), packed_element(w, column, k), sum);
  }
  return sum;
}

float scaled_dot(const void* x, const PackedMatrix& w, int column) {
  float sum = 0.0f;
  for (int k = 0; k < w.k(); k += w.shape.group) {
    const float part = chain_dot(x, w, column, k, std::min(w.k(), k + w.shape.group));
    sum = std::fma(InBlock(w, column, k).scale(w), part, sum);
  }
  return sum;
}

// Exact: an int32 sum of a group, which is less than 2²⁴ and so exact in float32 too.
float integer_dot(const std::byte* codes, const PackedMatrix& w, int column, int begin, int end) {
  int32_t sum = 0;
  for (int k = begin; k < std::min(w.k(), end); ++k) {
    sum += std::to_integer<int8_t>(codes[k]) * static_cast<int>(packed_element(w, column, k));
  }
  return static_cast<float>(sum);
}

// The sum of a group's codes of x.
float sum_of_codes(const std::byte* codes, int begin, int count) {
  int32_t sum = 0;
  for (int k = begin; k < begin + count; ++k) sum += std::to_integer<int8_t>(codes[k]);
  return static_cast<float>(sum);
}

// Adds a block of k to `sum`, of a format with half floats.
float add_block_of_halves(const std::byte* codes, float x_scale, const PackedMatrix& w, int column,
                          int begin, float sum) {
  const InBlock block(w, column, begin);
  const size_t halves = w.shape.block_bytes() - kScaleBytes;
  const float scale = float_from_f16(block.value<uint16_t>(halves, block.lane));
  const float minimum = float_from_f16(block.value<uint16_t>(halves, kPanelWidth + block.lane));
  const float low = minimum * sum_of_codes(codes, begin, w.shape.group);
  const float scaled =
      std::fma(integer_dot(codes, w, column, begin, begin + w.shape.group), scale, low);
  return std::fma(scaled, x_scale, sum);
}

// The same of a format of two levels.
float add_two_level_block(const std::byte* codes, float x_scale, const PackedMatrix& w, int column,
                          int begin, float sum) {
  float scaled = 0.0f, lows = 0.0f;
  const InBlock block(w, column, begin);
  const size_t ends = w.shape.block_bytes() - 2 * kScaleBytes;
  for (int i = 0; i < w.shape.groups_of_block(); ++i) {
    const int k = begin + i * w.shape.group;
    const size_t at = static_cast<size_t>(i) * kPanelWidth + block.lane;
    const auto scale = static_cast<float>(block.value<uint8_t>(0, at));
    const auto minimum = static_cast<float>(block.value<uint8_t>(two_level_scales(w.shape), at));
    scaled = std::fma(integer_dot(codes, w, column, k, k + w.shape.group), scale, scaled);
    lows = std::fma(minimum, sum_of_codes(codes, k, w.shape.group), lows);
  }
  const float d = block.value<float>(ends + kScaleBytes, block.lane);
  const float dmin = block.value<float>(ends, block.lane);
  sum = std::fma(scaled, d * x_scale, sum);
  return std::fma(lows, dmin * -x_scale, sum);
}

float quantized_dot(const void* x, const PackedMatrix& w, int column) {
  const QuantizedRowShape row = quantized_row_shape(w.shape);
  const auto* codes = static_cast<const std::byte*>(x);
  const auto* scales = reinterpret_cast<const float*>(codes + row.scales_offset());
  float sum = 0.0f;
  for (int group = 0; group < row.num_groups(); ++group) {
    const int begin = group * row.group, end = begin + row.group;
    if (has_minimums(w.shape.format)) {
      const auto add = has_two_levels(w.shape.format) ? add_two_level_block : add_block_of_halves;
      sum = add(codes, scales[group], w, column, begin, sum);
      continue;
    }
    if (!has_byte_scales(w.shape.format)) {
      const float scale = InBlock(w, column, begin).scale(w) * scales[group];
      sum = std::fma(integer_dot(codes, w, column, begin, end), scale, sum);
      continue;
    }
    float block = 0.0f;
    for (int k = begin; k < end; k += w.shape.group) {
      block = std::fma(integer_dot(codes, w, column, k, k + w.shape.group),
                       byte_scale(w, InBlock(w, column, k)), block);
    }
    sum = std::fma(block, scales[group], sum);
  }
  return sum;
}

float dot(const void* x, const PackedMatrix& w, int column) {
  if (takes_quantized_rows(w.shape.format)) return w.scale * quantized_dot(x, w, column);
  if (w.shape.format == WeightFormat::kFp8) return w.scale * scaled_dot(x, w, column);
  return w.scale * chain_dot(x, w, column, 0, w.k());
}

float dot(const void* x, const PackedMatrix& w, int column, const float* bias) {
  const float scaled = dot(x, w, column);
  return bias == nullptr ? scaled : scaled + bias[column];
}

float activate(const Activation& activation, float gate, float up) {
  if (activation.kind == Activation::Kind::kSilu) return gate / (1.0f + std::exp(-gate)) * up;
  if (activation.kind == Activation::Kind::kGeluTanh) {
    const float factor = std::fma(gate * gate, -kGeluCubic, -kGeluLinear);
    return gate / (1.0f + std::exp(gate * factor)) * up;
  }
  // Comparisons that keep NaN.
  const float limit = activation.limit;
  if (up > limit) up = limit;
  if (up < -limit) up = -limit;
  if (activation.kind == Activation::Kind::kLimitedSilu) {
    const float silu = gate / (1.0f + std::exp(-gate));
    return (silu > limit ? limit : silu) * up;
  }
  if (gate > limit) gate = limit;
  if (activation.kind == Activation::Kind::kClampedSilu) {
    return gate / (1.0f + std::exp(-gate)) * up;
  }
  return (up + 1.0f) * (gate / (1.0f + std::exp(-activation.alpha * gate)));
}

void write(const OutputRows& y, int row, int column, float value) {
  if (y.dtype == Dtype::kF32) {
    static_cast<float*>(y[row])[column] = value;
  } else {
    static_cast<Bf16*>(y[row])[column] = Bf16(value);
  }
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const int last = std::min(args.last_panel * kPanelWidth, args.w.n());
  for (int row = 0; row < args.m; ++row) {
    for (int column = args.first_panel * kPanelWidth; column < last; ++column) {
      write(args.y, row, column, dot(args.x[row], args.w, column, args.bias));
    }
  }
}

void gated_matmul(const GatedMatmulArgs& args) {
  const int last = std::min(args.last_panel * kPanelWidth, args.gate.n());
  for (int row = 0; row < args.m; ++row) {
    for (int column = args.first_panel * kPanelWidth; column < last; ++column) {
      const float gate = dot(args.x[row], args.gate, column, args.gate_bias);
      const float up = dot(args.x[row], args.up, column, args.up_bias);
      write(args.h, row, column, activate(args.activation, gate, up));
    }
  }
}

void quantize_row(Dtype x_dtype, const void* x, const QuantizedRowShape& shape, std::byte* out) {
  std::memset(out, 0, shape.bytes());
  for (int group = 0; group < shape.num_groups(); ++group) {
    const int begin = group * shape.group, end = std::min(shape.k, begin + shape.group);
    float largest = 0.0f;
    for (int k = begin; k < end && !std::isnan(largest); ++k) {
      const float magnitude = std::abs(element(x_dtype, x, k));
      if (!(magnitude <= largest)) largest = magnitude;
    }
    const float scale = quantized_scale(largest);
    reinterpret_cast<float*>(out + shape.scales_offset())[group] = scale;
    if (!(scale > 0.0f)) continue;
    for (int k = begin; k < end; ++k) {
      const auto code = static_cast<int>(std::nearbyint(element(x_dtype, x, k) * (1.0f / scale)));
      out[k] = static_cast<std::byte>(code);
      reinterpret_cast<int32_t*>(out + shape.sums_offset())[k / shape.sum_group] += code;
    }
  }
}

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  double squares = 0.0;
  for (int i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double scale = 1.0 / std::sqrt(squares / n + eps);
  for (int i = 0; i < n; ++i) {
    y[i] = static_cast<float>(x[i] * scale * (weight == nullptr ? 1.0f : weight[i]));
  }
}

void layer_norm(const float* x, const LayerNorm& norm, int n, float* y) {
  double sum = 0.0, squares = 0.0;
  for (int i = 0; i < n; ++i) sum += x[i];
  const double mean = sum / n;
  for (int i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double scale = 1.0 / std::sqrt(squares / n + norm.eps);
  for (int i = 0; i < n; ++i) {
    const double bias = norm.bias == nullptr ? 0.0 : norm.bias[i];
    y[i] = static_cast<float>((x[i] - mean) * scale * norm.weight[i] + bias);
  }
}

void l2_normalize(const float* x, float eps, int n, float* y) {
  double squares = 0.0;
  for (int i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double scale = 1.0 / std::sqrt(squares + eps);
  for (int i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * scale);
}

void silu(const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = x[i] / (1.0f + std::exp(-x[i]));
}

void silu_multiply(const float* gate, const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = gate[i] / (1.0f + std::exp(-gate[i])) * x[i];
}

void sigmoid_multiply(const float* gate, const float* x, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = 1.0f / (1.0f + std::exp(-gate[i])) * x[i];
}

void scale_row(float scale, int n, float* x) {
  for (int i = 0; i < n; ++i) x[i] *= scale;
}

void square_relu(Dtype dtype, int n, void* x) {
  const auto square = [n](auto* values) {
    for (int i = 0; i < n; ++i) {
      const auto value = static_cast<float>(values[i]);
      const float positive = value < 0.0f ? 0.0f : value;
      values[i] = std::remove_pointer_t<decltype(values)>(positive * positive);
    }
  };
  if (dtype == Dtype::kBf16) return square(static_cast<Bf16*>(x));
  square(static_cast<float*>(x));
}

// Without fused multiply-add (the build forbids contraction), so that all tables have the same
// bits.
void rotate(const float* cos_sin, int dim, bool interleaved, float* x) {
  const int half = dim / 2;
  const float* cosines = cos_sin;
  const float* sines = cos_sin + half;
  if (interleaved) {
    for (int i = 0; i < half; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * cosines[i] - b * sines[i];
      x[2 * i + 1] = b * cosines[i] + a * sines[i];
    }
    return;
  }
  for (int i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cosines[i] - b * sines[i];
    x[half + i] = b * cosines[i] + a * sines[i];
  }
}

int argmax(const float* x, int n) {
  int largest = 0;
  for (int i = 1; i < n; ++i) {
    if (x[i] > x[largest] || (std::isnan(x[largest]) && !std::isnan(x[i]))) largest = i;
  }
  return largest;
}

double sum_of_exp(const float* x, float largest, int n) {
  double sum = 0.0;
  for (int i = 0; i < n; ++i) {
    if (!std::isnan(x[i])) sum += std::exp(double{x[i]} - double{largest});
  }
  return sum;
}

float int4_error(const float* x, int n, float scale, float inverse) {
  float sums[kPanelWidth] = {};
  for (int i = 0; i < n; ++i) {
    const float off = x[i] - scale * std::clamp(round_small(x[i] * inverse), -8.0f, 7.0f);
    sums[i % kPanelWidth] += off * off;
  }
  for (int half = kPanelWidth / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

void add_scaled(Dtype x_dtype, const void* x, float scale, int n, float* y) {
  for (int i = 0; i < n; ++i) y[i] = std::fma(scale, element(x_dtype, x, i), y[i]);
}

void to_bf16(const float* x, int n, Bf16* y) {
  for (int i = 0; i < n; ++i) y[i] = Bf16(x[i]);
}

void interleave_rows(const std::byte* rows, size_t row_bytes, int num_words, std::byte* out,
                     const std::byte* /*next*/) {
  constexpr size_t kWord = 4;
  for (size_t j = 0; j < static_cast<size_t>(num_words); ++j) {
    for (size_t row = 0; row < kPanelWidth; ++row) {
      std::memcpy(out + (j * kPanelWidth + row) * kWord, rows + row * row_bytes + j * kWord, kWord);
    }
  }
}

}  // namespace wideep::kernels::ref
