// SPDX-License-Identifier: Apache-2.0
//
// Each quantiser goes over the groups of all rows and rounds the scale to what is stored before it
// computes a code: codes are made with the inverse of the scale that decoding uses, or the
// rounding of the scale would be an error on top of that of the codes. Where a scale covers more
// than a group of one row (fp8's blocks, the upper of two levels, nvfp4's matrix), a first pass
// finds the largest value and a second one writes.
//
// Scales of int8 and int4, and d and dmin of two levels, are rounded to bf16, possibly down; codes
// that would then be too large are clamped. Scales too small for a finite inverse give codes of
// zero.
//
// CodedMatrix's own functions (group_scale(), element(), …) read one element at a time and know
// all formats: what a code means is said there once, and dequantize_rows() only goes through them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/dtype.h"
#include "base/half.h"
#include "base/microscaling.h"
#include "kernels/coded_matrix.h"
#include "kernels/kernels.h"
#include "kernels/round_small.h"

namespace wideep::kernels {
namespace {

template <typename Count>
float largest_of(const float* x, Count count) {
  float largest = 0.0f;
  for (Count i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

// 0 if the inverse would not be finite: then all codes become zero.
float inverse_of(float scale) { return scale > 0x1p-126f ? 1.0f / scale : 0.0f; }

float round_to_bf16(float x) { return static_cast<float>(Bf16(x)); }

// A coded matrix that is being filled.
struct Output {
  static constexpr int kNibblesAtOnce = 64;
  QuantizedMatrix matrix;

  Output(WeightFormat format, int group, int n, int k, int scale_rows) {
    matrix.view = {.format = format, .n = n, .k = k, .group = group, .scale_rows = scale_rows};
    const CodedMatrix& view = matrix.view;
    matrix.codes.resize(static_cast<size_t>(n) * view.row_bytes());
    const size_t scales =
        static_cast<size_t>((n + scale_rows - 1) / scale_rows) * size_t(view.num_groups());
    matrix.scales.resize(scales * scale_bytes(format));
  }
  void set_scale(int row, int group, float scale) {
    std::memcpy(matrix.scales.data() + matrix.view.scale_index(row, group) * sizeof(float), &scale,
                sizeof(scale));
  }
  void set_scale(int row, int group, uint16_t scale, uint16_t minimum) {
    const uint16_t halves[2] = {scale, minimum};
    std::memcpy(matrix.scales.data() + matrix.view.scale_index(row, group) * sizeof(halves), halves,
                sizeof(halves));
  }
  void set_scale(int row, int group, uint8_t scale) {
    matrix.scales[matrix.view.scale_index(row, group)] = std::byte{scale};
  }
  uint8_t* bytes(int row, int k) {
    return reinterpret_cast<uint8_t*>(matrix.codes.data()) +
           static_cast<size_t>(row) * matrix.view.row_bytes() + k;
  }
  // Writes code(0) … code(count − 1) from element k on. REQUIRES: k is even.
  template <typename Code>
  void set_nibbles(int row, int k, int count, Code code) {
    uint8_t* out = bytes(row, 0) + k / 2;
    for (int begin = 0; begin < count; begin += kNibblesAtOnce) {
      const int n = std::min(kNibblesAtOnce, count - begin);
      uint8_t codes[kNibblesAtOnce] = {};
      for (int i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(code(begin + i));
      for (int i = 0; i < (n + 1) / 2; ++i) {
        *out++ = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
      }
    }
  }
  // What the view points to so far.
  void update_view() {
    matrix.view.codes = matrix.codes.data();
    matrix.view.scales = matrix.scales.data();
    matrix.view.minimums = matrix.minimums.data();
    matrix.view.block_scales = matrix.block_scales.data();
  }
  QuantizedMatrix finish() {
    update_view();
    return std::move(matrix);
  }
};

// Calls visit(row, group, x, count) for each group of each row.
template <typename Visit>
void for_each_group(const CodedMatrix& view, const float* rows, Visit visit) {
  for (int row = 0; row < view.n; ++row) {
    const float* x = rows + static_cast<size_t>(row) * static_cast<size_t>(view.k);
    for (int k0 = 0; k0 < view.k; k0 += view.group) {
      visit(row, k0 / view.group, x + k0, std::min(view.group, view.k - k0));
    }
  }
}

// A scale is of a block of rows × k, so a first pass over all rows finds the maxima of blocks. 448
// is the largest e4m3.
QuantizedMatrix quantize_fp8(int group, const float* rows, int n, int k) {
  Output out(WeightFormat::kFp8, group, n, k, group);
  const CodedMatrix& view = out.matrix.view;
  std::vector<float> largest(static_cast<size_t>((n + group - 1) / group) *
                             static_cast<size_t>(view.num_groups()));
  for_each_group(view, rows, [&](int row, int index, const float* x, int count) {
    float& block = largest[view.scale_index(row, index)];
    block = std::max(block, largest_of(x, count));
  });
  for_each_group(view, rows, [&](int row, int index, const float* x, int count) {
    const float scale = largest[view.scale_index(row, index)] / 448.0f;
    out.set_scale(row, index, scale);
    const float inverse = inverse_of(scale);
    uint8_t* codes = out.bytes(row, index * group);
    for (int i = 0; i < count; ++i) codes[i] = F8E4M3(x[i] * inverse).bits;
  });
  return out.finish();
}

// Scales are rounded to bf16, possibly down. Then the largest value exceeds 127 steps and is
// clamped.
QuantizedMatrix quantize_int8(int group, const float* rows, int n, int k) {
  Output out(WeightFormat::kInt8, group, n, k, 1);
  for_each_group(out.matrix.view, rows, [&](int row, int index, const float* x, int count) {
    const float scale = round_to_bf16(largest_of(x, count) / 127.0f);
    out.set_scale(row, index, scale);
    const float inverse = inverse_of(scale);
    uint8_t* codes = out.bytes(row, index * group);
    for (int i = 0; i < count; ++i) {
      const float code = std::clamp(round_small(x[i] * inverse), -127.0f, 127.0f);
      codes[i] = static_cast<uint8_t>(static_cast<int>(code) + 128);
    }
  });
  return out.finish();
}

// With 16 levels, clipping the largest values can cost less than coarser steps for all values.
// Tries scales from max |x| / 7 down to 62.5 % of it and takes the one with the least squared
// error.
float int4_scale(const Kernels& kernels, const float* x, int count) {
  constexpr int kCandidates = 16;
  const float widest = largest_of(x, count) / 7.0f;
  float best = round_to_bf16(widest), min = INFINITY;
  for (int i = 0; i < kCandidates; ++i) {
    const float scale = round_to_bf16(widest * (1.0f - 0.025f * static_cast<float>(i)));
    const float error = kernels.int4_error(x, count, scale, inverse_of(scale));
    if (error < min) best = scale, min = error;
  }
  return best;
}

QuantizedMatrix quantize_int4(int group, const float* rows, int n, int k) {
  // int4_error has the same bits on every instruction set, so the choice does not change the codes.
  static const Kernels& kernels = *select_kernels(nullptr).value();
  Output out(WeightFormat::kInt4, group, n, k, 1);
  for_each_group(out.matrix.view, rows, [&](int row, int index, const float* x, int count) {
    const float scale = int4_scale(kernels, x, count), inverse = inverse_of(scale);
    out.set_scale(row, index, scale);
    out.set_nibbles(row, index * group, count, [&](int i) {
      return static_cast<int>(std::clamp(round_small(x[i] * inverse), -8.0f, 7.0f)) + 8;
    });
  });
  return out.finish();
}

QuantizedMatrix quantize_mxfp4(int group, const float* rows, int n, int k) {
  Output out(WeightFormat::kMxfp4, group, n, k, 1);
  for_each_group(out.matrix.view, rows, [&](int row, int index, const float* x, int count) {
    const float largest = largest_of(x, count);
    // −2: the largest power of two of an e2m1 is 2² (OCP Microscaling Formats 1.0, section 6.3).
    const int exponent = largest > 0.0f ? std::ilogb(largest) - 2 : -126;
    const auto code = static_cast<uint8_t>(std::clamp(exponent + 127, 1, 252));
    out.set_scale(row, index, code);
    const float scale = float_from_e8m0(code);
    const float inverse = 1.0f / scale;  // exact
    out.set_nibbles(row, index * group, count,
                    [&](int i) { return e2m1_from_float(x[i] * inverse); });
  });
  return out.finish();
}

QuantizedMatrix quantize_nvfp4(int group, const float* rows, int n, int k, float matrix_scale) {
  Output out(WeightFormat::kNvfp4, group, n, k, 1);
  if (matrix_scale == 0.0f)
    matrix_scale =
        nvfp4_matrix_scale(largest_of(rows, static_cast<size_t>(n) * static_cast<size_t>(k)));
  out.matrix.view.scale = matrix_scale;
  for_each_group(out.matrix.view, rows, [&](int row, int index, const float* x, int count) {
    const F8E4M3 code(largest_of(x, count) / kE2m1Max / matrix_scale);
    out.set_scale(row, index, code.bits);
    // The inverse of the rounded scale, with which the codes will be decoded.
    const float inverse = inverse_of(static_cast<float>(code) * matrix_scale);
    out.set_nibbles(row, index * group, count,
                    [&](int i) { return e2m1_from_float(x[i] * inverse); });
  });
  return out.finish();
}

// The largest code of a format with minimums.
float levels_of(WeightFormat format) { return is_four_bit(format) ? 15.0f : 255.0f; }

// The codes of a group, which start at -added.
void set_codes(int row, int k, const float* x, int count, float inverse, float added, Output* out) {
  const WeightFormat format = out->matrix.view.format;
  const auto code = [&](int i) {
    return static_cast<int>(
        std::clamp(round_small((x[i] + added) * inverse), 0.0f, levels_of(format)));
  };
  if (is_four_bit(format)) return out->set_nibbles(row, k, count, code);
  uint8_t* codes = out->bytes(row, k);
  for (int i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(code(i));
}

// Ranges beyond what a half float holds are clamped.
QuantizedMatrix quantize_with_halves(WeightFormat format, int group, const float* rows, int n,
                                     int k) {
  constexpr float kLargest = 65504.0f;
  Output out(format, group, n, k, 1);
  out.update_view();
  for_each_group(out.matrix.view, rows, [&](int row, int index, const float* x, int count) {
    const auto [min, max] = std::minmax_element(x, x + count);
    const float low = std::clamp(*min, -kLargest, kLargest);
    const float scale = std::min((*max - low) / levels_of(format), kLargest);
    out.set_scale(row, index, f16_from_float(scale), f16_from_float(low));
    set_codes(row, index * group, x, count, inverse_of(out.matrix.view.group_scale(row, index)),
              out.matrix.view.group_minimum(row, index), &out);
  });
  return out.finish();
}

// Codes, scales and minimums are not negative, so that groups of positive values have no minimum.
QuantizedMatrix quantize_two_levels(WeightFormat format, int group, const float* rows, int n,
                                    int k) {
  constexpr float kSteps = 63.0f;
  const float levels = levels_of(format);
  Output out(format, group, n, k, 1);
  const CodedMatrix& view = out.matrix.view;
  out.matrix.minimums.resize(out.matrix.scales.size());
  out.matrix.block_scales.resize(2 * static_cast<size_t>(n) *
                                 static_cast<size_t>(view.num_blocks()));
  out.update_view();
  // The scale and the minimum of a group.
  const auto range = [&](const float* x, int count) {
    const auto [min, max] = std::minmax_element(x, x + count);
    const float minimum = std::max(0.0f, -*min);
    return std::pair((std::max(0.0f, *max) + minimum) / levels, minimum);
  };
  const auto scales_of = [&](int row, int index) {
    return out.matrix.block_scales.data() + (view.block_scale(row, index) - view.block_scales);
  };
  for_each_group(view, rows, [&](int row, int index, const float* x, int count) {
    const auto [scale, minimum] = range(x, count);
    float* of_block = scales_of(row, index);
    of_block[0] = std::max(of_block[0], scale / kSteps);
    of_block[1] = std::max(of_block[1], minimum / kSteps);
  });
  // Few bits, so that products with steps and codes are exact.
  for (float& scale : out.matrix.block_scales) scale = round_to_bf16(scale);
  for_each_group(view, rows, [&](int row, int index, const float* x, int count) {
    const auto [scale, minimum] = range(x, count);
    const float* of_block = scales_of(row, index);
    const auto steps = [&](float value, float step) {
      return static_cast<uint8_t>(std::min(kSteps, round_small(value * inverse_of(step))));
    };
    out.set_scale(row, index, steps(scale, of_block[0]));
    out.matrix.minimums[view.scale_index(row, index)] = std::byte{steps(minimum, of_block[1])};
    set_codes(row, index * group, x, count, inverse_of(view.group_scale(row, index)),
              view.group_minimum(row, index), &out);
  });
  return out.finish();
}

}  // namespace

CodedMatrix CodedMatrix::slice(int begin, int end) const {
  CodedMatrix part = *this;
  part.n = end - begin;
  part.codes = codes + static_cast<size_t>(begin) * row_bytes();
  part.scales = static_cast<const std::byte*>(scales) + scale_index(begin, 0) * scale_bytes(format);
  if (has_two_levels(format)) {
    part.minimums = minimums + scale_index(begin, 0);
    part.block_scales = block_scale(begin, 0);
  }
  return part;
}

namespace {

// The scale (0) or the minimum (1) of a group of a format with half floats.
float half_of_group(const CodedMatrix& matrix, int row, int group_index, size_t which) {
  uint16_t halves[2];
  std::memcpy(halves,
              static_cast<const std::byte*>(matrix.scales) +
                  matrix.scale_index(row, group_index) * sizeof(halves),
              sizeof(halves));
  return float_from_f16(halves[which]);
}

}  // namespace

float CodedMatrix::group_scale(int row, int group_index) const {
  const auto* bytes = static_cast<const uint8_t*>(scales);
  const size_t at = scale_index(row, group_index);
  if (format == WeightFormat::kMxfp4) return bytes[at] == 0 ? 0.0f : float_from_e8m0(bytes[at]);
  if (has_two_levels(format)) {
    return block_scale(row, group_index)[0] * static_cast<float>(bytes[at]);
  }
  if (has_half_scales(format)) return half_of_group(*this, row, group_index, 0);
  if (format == WeightFormat::kNvfp4) {
    F8E4M3 value;
    value.bits = bytes[at];
    return static_cast<float>(value);
  }
  float value;
  std::memcpy(&value, bytes + at * sizeof(value), sizeof(value));
  return value;
}

float CodedMatrix::group_minimum(int row, int group_index) const {
  if (has_half_scales(format)) return -half_of_group(*this, row, group_index, 1);
  if (!has_two_levels(format)) return 0.0f;
  const auto byte = std::to_integer<uint8_t>(minimums[scale_index(row, group_index)]);
  return block_scale(row, group_index)[1] * static_cast<float>(byte);
}

float CodedMatrix::element(int row, int at) const {
  const auto* bytes =
      reinterpret_cast<const uint8_t*>(codes) + static_cast<size_t>(row) * row_bytes();
  const unsigned nibble = is_four_bit(format) ? bytes[at / 2] >> (at % 2 * 4) & 15u : 0u;
  switch (format) {
    case WeightFormat::kFp8: {
      F8E4M3 value;
      value.bits = bytes[at];
      return static_cast<float>(value);
    }
    case WeightFormat::kInt8:
      return static_cast<float>(bytes[at] - 128);
    case WeightFormat::kInt4:
      return static_cast<float>(static_cast<int>(nibble) - 8);
    case WeightFormat::kInt4m:
    case WeightFormat::kInt4h:
      return static_cast<float>(nibble);
    case WeightFormat::kInt8m:
    case WeightFormat::kInt8h:
      return static_cast<float>(bytes[at]);
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
      return float_from_e2m1(nibble);
    case WeightFormat::kF32:
    case WeightFormat::kBf16:
      break;
  }
  WIDEEP_CHECK(is_coded(format));
  return 0.0f;
}

float nvfp4_matrix_scale(float largest) {
  constexpr float kSmallest = 0x1p-126f;
  return largest > 0.0f ? std::max(largest / (kE2m1Max * 448.0f), kSmallest) : 1.0f;
}

QuantizedMatrix quantize_matrix(WeightFormat format, int group, const float* rows, int n, int k,
                                float matrix_scale) {
  switch (format) {
    case WeightFormat::kFp8:
      return quantize_fp8(group, rows, n, k);
    case WeightFormat::kInt8:
      return quantize_int8(group, rows, n, k);
    case WeightFormat::kInt4:
      return quantize_int4(group, rows, n, k);
    case WeightFormat::kInt4m:
    case WeightFormat::kInt8m:
      return quantize_two_levels(format, group, rows, n, k);
    case WeightFormat::kInt4h:
    case WeightFormat::kInt8h:
      return quantize_with_halves(format, group, rows, n, k);
    case WeightFormat::kMxfp4:
      return quantize_mxfp4(group, rows, n, k);
    case WeightFormat::kNvfp4:
      return quantize_nvfp4(group, rows, n, k, matrix_scale);
    case WeightFormat::kF32:
    case WeightFormat::kBf16:
      break;
  }
  WIDEEP_CHECK(is_coded(format));
  return {};
}

void dequantize_rows(const CodedMatrix& matrix, int begin, int end, float* out) {
  for (int row = begin; row < end; ++row) {
    for (int group = 0; group < matrix.num_groups(); ++group) {
      const float scale = matrix.group_scale(row, group) * matrix.scale;
      const int last = std::min(matrix.k, (group + 1) * matrix.group);
      const float minimum = matrix.group_minimum(row, group);
      for (int k = group * matrix.group; k < last; ++k) {
        *out++ = scale * matrix.element(row, k) - minimum;
      }
    }
  }
}

}  // namespace wideep::kernels
