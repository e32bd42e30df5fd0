// SPDX-License-Identifier: Apache-2.0
//
// Quantisation against its formulas, and packed codes bit by bit: the product with a unit vector is
// a weight.
#include "kernels/coded_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/dtype.h"
#include "base/microscaling.h"
#include "kernels/kernels.h"

namespace wideep::kernels {
namespace {

constexpr WeightFormat kCoded[] = {
    WeightFormat::kFp8,   WeightFormat::kInt8,  WeightFormat::kInt4,
    WeightFormat::kMxfp4, WeightFormat::kNvfp4, WeightFormat::kInt4m,
    WeightFormat::kInt8m, WeightFormat::kInt4h, WeightFormat::kInt8h};

std::vector<float> random_floats(int count, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(rng);
  return values;
}

// Column j of w's weights at each k, as a product of one row that is 1 at k and 0 elsewhere.
std::vector<float> weights_at(const Kernels& kernels, const PackedMatrix& w, int k) {
  const bool quantized = takes_quantized_rows(w.shape.format);
  const QuantizedRowShape row = quantized ? quantized_row_shape(w.shape) : QuantizedRowShape{};
  base::AlignedBytes x(quantized ? row.bytes() : static_cast<size_t>(w.k()) * sizeof(Bf16));
  if (quantized) {  // code 1, scale 1
    x.data()[k] = std::byte{1};
    reinterpret_cast<float*>(x.data() + row.scales_offset())[k / row.group] = 1.0f;
    reinterpret_cast<int32_t*>(x.data() + row.sums_offset())[k / row.sum_group] = 1;
  } else {
    x.as<Bf16>()[k] = Bf16(1.0f);
  }
  std::vector<float> y(static_cast<size_t>(w.n()));
  kernels.matmul({1, {x.data(), 0}, w, 0, w.shape.num_panels(), {y.data(), 0}});
  return y;
}

void expect_same_weights(const CodedMatrix& coded, const PackedMatrix& packed) {
  std::vector<float> expected(static_cast<size_t>(coded.n) * coded.k);
  CodedMatrix unscaled = coded;
  unscaled.scale = 1.0f;
  dequantize_rows(unscaled, 0, coded.n, expected.data());
  for (const Kernels* kernels : all_kernels()) {
    if (!kernels->supported()) continue;
    for (int k = 0; k < coded.k; ++k) {
      const std::vector<float> got = weights_at(*kernels, packed, k);
      for (int row = 0; row < coded.n; ++row) {
        const float value = expected[static_cast<size_t>(row) * coded.k + k];
        // Of formats with minimums a product rounds once where decoding rounds twice.
        const int group = k / coded.group;
        const float parts = std::abs(coded.group_scale(row, group) * coded.element(row, k)) +
                            std::abs(coded.group_minimum(row, group));
        ASSERT_NEAR(got[row], value, has_minimums(coded.format) ? parts * 0x1p-23f : 0.0f)
            << kernels->isa << " " << weight_format_name(coded.format) << " row " << row << " k "
            << k;
      }
    }
  }
}

TEST(CodedMatrix, PackedCodesDecodeToTheSameWeights) {
  std::mt19937 rng(1);
  for (const WeightFormat format : kCoded) {
    const int n = 37, k = 150;
    const auto rows = random_floats(n * k, rng);
    const PackedShape shape = packed_shape(format, n, k);
    const QuantizedMatrix coded = quantize_matrix(format, shape.group, rows.data(), n, k);
    base::AlignedBytes bytes(shape.bytes());
    begin_pack(shape, 0, shape.num_panels(), bytes.data());
    pack_codes(shape, coded.view, 0, bytes.data());
    expect_same_weights(coded.view, {shape, bytes.data()});
  }
}

// Groups of 32 in a matrix with groups of 16, for a matrix beside it that has such groups.
TEST(CodedMatrix, GroupsOfTwoLevelsMayBeSplit) {
  std::mt19937 rng(5);
  const int n = 21, k = 300;
  for (const WeightFormat format : {WeightFormat::kInt4m, WeightFormat::kInt8m}) {
    const auto rows = random_floats(n * k, rng);
    const QuantizedMatrix coded = quantize_matrix(format, 32, rows.data(), n, k);
    const PackedShape shape = {format, n, k, 16};
    base::AlignedBytes bytes(shape.bytes());
    begin_pack(shape, 0, shape.num_panels(), bytes.data());
    pack_codes(shape, coded.view, 0, bytes.data());
    expect_same_weights(coded.view, {shape, bytes.data()});
  }
}

// Packed values of a matrix whose codes are given, all scales equal.
struct Given {
  std::vector<uint8_t> codes, byte_scales;
  std::vector<float> float_scales;
  CodedMatrix view;

  Given(WeightFormat format, int n, int k, uint8_t byte_scale) {
    view = {.format = format, .n = n, .k = k, .group = default_group(format)};
    codes.resize(static_cast<size_t>(n) * view.row_bytes());
    float_scales.assign(static_cast<size_t>(n) * view.num_groups(), 0.5f);
    byte_scales.assign(float_scales.size(), byte_scale);
    view.codes = reinterpret_cast<const std::byte*>(codes.data());
    view.scales = has_byte_scales(format) ? static_cast<const void*>(byte_scales.data())
                                          : float_scales.data();
  }
  base::AlignedBytes packed(const PackedShape& shape) const {
    base::AlignedBytes bytes(shape.bytes());
    begin_pack(shape, 0, shape.num_panels(), bytes.data());
    pack_codes(shape, view, 0, bytes.data());
    return bytes;
  }
  void expect_exact() const {
    const PackedShape shape = packed_shape(view.format, view.n, view.k);
    const base::AlignedBytes bytes = packed(shape);
    expect_same_weights(view, {shape, bytes.data()});
  }
};

TEST(CodedMatrix, All256CodesOfE4m3AreExact) {
  Given given(WeightFormat::kFp8, 2, 128, 0);
  for (int i = 0; i < 256; ++i) given.codes[i] = static_cast<uint8_t>(i);
  given.codes[0x7f] = given.codes[0xff] = 0;  // NaN
  given.expect_exact();
}

TEST(CodedMatrix, All16CodesOfE2m1AreExactWithEveryE4m3Scale) {
  for (int scale = 0; scale < 0x7f; ++scale) {
    Given given(WeightFormat::kNvfp4, 1, 16, static_cast<uint8_t>(scale));
    for (int i = 0; i < 8; ++i) given.codes[i] = static_cast<uint8_t>(2 * i | (2 * i + 1) << 4);
    given.expect_exact();
  }
}

TEST(CodedMatrix, All16CodesOfE2m1AreExactWithPowersOfTwo) {
  for (const int scale : {0, 2, 3, 100, 127, 200, 252}) {
    Given given(WeightFormat::kMxfp4, 1, 16, static_cast<uint8_t>(scale));
    for (int i = 0; i < 8; ++i) given.codes[i] = static_cast<uint8_t>(2 * i | (2 * i + 1) << 4);
    given.expect_exact();
  }
}

// Half of 2^-126 is no normal float32.
TEST(CodedMatrix, E2m1WithTheLeastPowersOfTwoIsZero) {
  Given given(WeightFormat::kMxfp4, 1, 16, 1);
  std::fill(given.codes.begin(), given.codes.end(), uint8_t{0x77});
  const PackedShape shape = packed_shape(WeightFormat::kMxfp4, 1, 16);
  const base::AlignedBytes bytes = given.packed(shape);
  for (const Kernels* kernels : all_kernels()) {
    if (!kernels->supported()) continue;
    for (int k = 0; k < 16; ++k) {
      EXPECT_EQ(weights_at(*kernels, {shape, bytes.data()}, k)[0], 0.0f) << kernels->isa;
    }
  }
}

TEST(CodedMatrix, PartsMayBeStackedAndGroupsSplit) {
  std::mt19937 rng(2);
  const int k = 300;
  const auto upper = random_floats(21 * k, rng), lower = random_floats(9 * k, rng);
  const PackedShape shape = packed_shape(WeightFormat::kInt8, 30, k);
  const QuantizedMatrix first = quantize_matrix(WeightFormat::kInt8, k, upper.data(), 21, k);
  const QuantizedMatrix second = quantize_matrix(WeightFormat::kInt8, 128, lower.data(), 9, k);
  base::AlignedBytes bytes(shape.bytes());
  begin_pack(shape, 0, shape.num_panels(), bytes.data());
  pack_codes(shape, first.view, 0, bytes.data());  // one group a row: the same scale, thrice
  pack_codes(shape, second.view, 21, bytes.data());
  std::vector<float> expected(30 * k);
  dequantize_rows(first.view, 0, 21, expected.data());
  dequantize_rows(second.view, 0, 9, expected.data() + 21 * k);
  for (const int at : {0, 127, 128, 299}) {
    const auto got = weights_at(*all_kernels().back(), {shape, bytes.data()}, at);
    for (int row = 0; row < 30; ++row) EXPECT_EQ(got[row], expected[row * k + at]);
  }
}

double signal_to_noise(const QuantizedMatrix& coded, const std::vector<float>& rows) {
  std::vector<float> back(rows.size());
  dequantize_rows(coded.view, 0, coded.view.n, back.data());
  double signal = 0.0, noise = 0.0;
  for (size_t i = 0; i < rows.size(); ++i) {
    signal += double(rows[i]) * rows[i];
    noise += std::pow(double(rows[i]) - back[i], 2);
  }
  return 10.0 * std::log10(signal / noise);
}

// Of normal values; what the formats' steps allow, less half a decibel.
TEST(Quantize, ErrorIsWithinTheFormatsStep) {
  std::mt19937 rng(3);
  const auto rows = random_floats(128 * 512, rng);
  const auto decibels = [&](WeightFormat format) {
    return signal_to_noise(quantize_matrix(format, default_group(format), rows.data(), 128, 512),
                           rows);
  };
  EXPECT_GT(decibels(WeightFormat::kInt8), 43.0);
  EXPECT_GT(decibels(WeightFormat::kFp8), 31.0);
  EXPECT_GT(decibels(WeightFormat::kInt4), 19.5);
  EXPECT_GT(decibels(WeightFormat::kNvfp4), 19.5);
  EXPECT_GT(decibels(WeightFormat::kInt4m), 19.5);
  EXPECT_GT(decibels(WeightFormat::kInt4h), 19.5);
  EXPECT_GT(decibels(WeightFormat::kInt8m), 35.0);
  EXPECT_GT(decibels(WeightFormat::kInt8h), 43.0);
  EXPECT_GT(decibels(WeightFormat::kMxfp4), 17.0);
}

TEST(Quantize, KeepsTheLargestValueAndZeros) {
  for (const WeightFormat format : kCoded) {
    std::vector<float> rows(256, 0.0f);
    rows[3] = -3.5f;
    const QuantizedMatrix coded =
        quantize_matrix(format, default_group(format), rows.data(), 1, 256);
    std::vector<float> back(256);
    dequantize_rows(coded.view, 0, 1, back.data());
    EXPECT_NEAR(back[3], -3.5f, format == WeightFormat::kMxfp4 ? 0.5 : 0.02)
        << weight_format_name(format);
    back[3] = 0.0f;
    // Zero is the minimum plus the highest code, and d and dmin are rounded to bf16: 2^-8 of 3.5.
    const float step = has_minimums(format) ? 3.5f * 0x1p-7f : 0.0f;
    EXPECT_THAT(back, testing::Each(testing::FloatNear(0.0f, step))) << weight_format_name(format);
  }
}

TEST(Quantize, Mxfp4ScaleIsThatOfTheStandard) {
  std::vector<float> rows(32, 0.25f);
  rows[5] = 7.0f;  // ⌊log2 7⌋ − 2 = 0: seven becomes the largest element, 6
  const QuantizedMatrix coded = quantize_matrix(WeightFormat::kMxfp4, 32, rows.data(), 1, 32);
  EXPECT_EQ(coded.scales[0], std::byte{127});
  EXPECT_EQ(coded.view.element(0, 5), 6.0f);
  EXPECT_EQ(coded.view.element(0, 6), 0.0f);  // a tie: to even
}

}  // namespace
}  // namespace wideep::kernels
