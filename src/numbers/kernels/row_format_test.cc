// SPDX-License-Identifier: Apache-2.0
//
// Rows that travel: what "ref" makes is held against the formats' definition, and every other table
// against "ref", byte by byte.
#include "kernels/row_format.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/microscaling.h"
#include "kernels/kernels.h"

namespace wideep::kernels {
namespace {

using testing::HasSubstr;

constexpr RowFormat kFormats[] = {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8,
                                  RowFormat::kNvfp4};
constexpr RowFormat kCoded[] = {RowFormat::kFp8, RowFormat::kNvfp4};

const Kernels& ref() { return *all_kernels().back(); }

// Normal, with outliers, runs of zeros and widely different groups.
std::vector<float> random_row(int n, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(rng) * (rng() % 50 == 0 ? 40.0f : 1.0f);
  for (size_t at = 0; at < x.size(); at += 16) {
    const float scale = rng() % 8 == 0 ? 0.0f : std::exp2(static_cast<float>(rng() % 12) - 9.0f);
    for (size_t i = at; i < std::min(x.size(), at + 16); ++i) x[i] *= scale;
  }
  return x;
}

std::vector<std::byte> encoded(const Kernels& kernels, RowFormat format,
                               const std::vector<float>& x) {
  std::vector<std::byte> row(row_bytes(format, static_cast<int>(x.size())), std::byte{0xa5});
  kernels.encode_row(Dtype::kF32, x.data(), format, static_cast<int>(x.size()), row.data());
  return row;
}

std::vector<float> decoded(const Kernels& kernels, RowFormat format,
                           const std::vector<std::byte>& row, int n) {
  std::vector<float> y(static_cast<size_t>(n));
  kernels.decode_row(format, row.data(), n, Dtype::kF32, y.data());
  return y;
}

std::vector<float> round_trip(RowFormat format, const std::vector<float>& x) {
  return decoded(ref(), format, encoded(ref(), format, x), static_cast<int>(x.size()));
}

TEST(RowFormat, BytesOfARow) {
  const auto share = [](RowFormat format) {
    return static_cast<double>(row_bytes(format, 7168)) /
           static_cast<double>(row_bytes(RowFormat::kBf16, 7168));
  };
  EXPECT_EQ(row_bytes(RowFormat::kFp8, 7168), 7168u + 56 * 4);
  EXPECT_EQ(row_bytes(RowFormat::kNvfp4, 7168), 3584u + 448 + 16);
  EXPECT_LE(share(RowFormat::kFp8), 0.53);
  EXPECT_LE(share(RowFormat::kNvfp4), 0.30);
  EXPECT_EQ(row_bytes(RowFormat::kBf16, 9), 18u);
  EXPECT_EQ(row_bytes(RowFormat::kF32, 8), 32u);
}

TEST(RowFormat, NamesAreReadBack) {
  for (const RowFormat format : kFormats) {
    EXPECT_EQ(row_format_from_name(row_format_name(format)), format);
  }
  EXPECT_FALSE(row_format_from_name("fp4").has_value());
}

TEST(RowFormat, RowsOfAnyLength) {
  for (const RowFormat format : kFormats) {
    EXPECT_TRUE(check_row_format(format, 1).ok());
    EXPECT_TRUE(check_row_format(format, 2056).ok());
    EXPECT_EQ(check_row_format(format, 0).code(), StatusCode::kInvalidInput);
  }
  EXPECT_EQ(row_bytes(RowFormat::kFp8, 2880), 23u * 128 + 96);        // 23 scales, padded
  EXPECT_EQ(row_bytes(RowFormat::kNvfp4, 2056), 129u * 8 + 129 + 7);  // 129 scales, 1, padded
}

// A short last group is one with zeros behind its values.
TEST(RowFormat, ShortGroupsAreFilledWithZeros) {
  std::mt19937 rng(5);
  for (const RowFormat format : kCoded) {
    for (const int n : {1, 15, 17, 100, 200, 1440, 2056, 2880}) {
      const std::vector<float> x = random_row(n, rng);
      std::vector<float> filled = x;
      filled.resize(static_cast<size_t>(row_width(format, n)));
      EXPECT_EQ(encoded(ref(), format, x), encoded(ref(), format, filled));
      std::vector<float> y = round_trip(format, filled);
      y.resize(x.size());
      EXPECT_EQ(round_trip(format, x), y);
    }
  }
}

// With scale 1, values are the nearest of e4m3, ties to the even code.
TEST(RowFormat, Fp8RoundsToTheNearestEven) {
  std::vector<float> x(128);
  x[0] = 448.0f;
  for (size_t i = 1; i < x.size(); ++i) x[i] = 16.0f + static_cast<float>(i) / 16.0f;
  const std::vector<float> y = round_trip(RowFormat::kFp8, x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], 2.0f * std::nearbyint(x[i] / 2.0f)) << x[i];  // steps of 2 from 16 to 32
  }
}

// The largest magnitude takes the largest code, whatever its fraction.
TEST(RowFormat, Fp8ScalesHoldTheLargest) {
  for (int i = 0; i < 1000; ++i) {
    const float largest = 1.0f + static_cast<float>(i) / 1000.0f;
    std::vector<float> x(128, 0.5f);
    x[3] = -largest;
    const std::vector<std::byte> row = encoded(ref(), RowFormat::kFp8, x);
    EXPECT_EQ(row[3], std::byte{0xfe}) << largest;
    float scale = 0.0f;
    std::memcpy(&scale, row.data() + 128, sizeof(scale));
    EXPECT_NEAR(scale * 448.0f, largest, largest / 256.0f);
  }
}

// With row scale 1 and group scale 1, the magnitudes of e2m1, ties to the even code.
TEST(RowFormat, Nvfp4RoundsToTheNearestEven) {
  std::vector<float> x(32);
  x[0] = 6.0f * 448.0f;  // whose group takes the largest scale
  const float values[] = {6.0f, 5.0f, 3.5f, -2.5f, 1.75f, 1.25f, -0.75f, 0.25f, 0.26f, -5.03f};
  const float expected[] = {6.0f, 4.0f, 4.0f, -2.0f, 2.0f, 1.0f, -1.0f, 0.0f, 0.5f, -6.0f};
  std::copy(std::begin(values), std::end(values), x.begin() + 16);
  const std::vector<float> y = round_trip(RowFormat::kNvfp4, x);
  EXPECT_EQ(y[0], x[0]);
  for (size_t i = 0; i < std::size(values); ++i) EXPECT_EQ(y[16 + i], expected[i]) << values[i];
}

// Beside three of the middles between codes, half a step of an 18th (row_scales.h) may go either
// way.
TEST(RowFormat, Nvfp4TakesTheNearest) {
  constexpr float kValues[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  constexpr float kHalfStep = 0.5f / 18.0f;
  for (size_t i = 1; i < std::size(kValues); ++i) {
    const float lower = kValues[i - 1], upper = kValues[i], middle = (lower + upper) / 2.0f;
    const float unsure = middle == 2.5f || middle == 3.5f || middle == 5.0f ? kHalfStep : 0.0f;
    for (int j = 0; j <= 1000; ++j) {
      const float value = lower + (upper - lower) * static_cast<float>(j) / 1000.0f;
      std::vector<float> x(32, -value);
      x[0] = 6.0f * 448.0f;
      x[16] = 6.0f;
      const float found = -round_trip(RowFormat::kNvfp4, x)[17];
      if (std::abs(value - middle) <= unsure) {
        EXPECT_TRUE(found == lower || found == upper) << value;
      } else {
        EXPECT_EQ(found, value < middle ? lower : upper) << value;
      }
    }
  }
}

TEST(RowFormat, ZeroAndTinyRowsAreZeroBytes) {
  for (const RowFormat format : kCoded) {
    for (const float tiny : {0.0f, -0.0f, 1e-40f, -0x1p-101f}) {
      const std::vector<std::byte> row = encoded(ref(), format, std::vector<float>(128, tiny));
      EXPECT_EQ(row, std::vector<std::byte>(row.size()));
    }
    EXPECT_EQ(round_trip(format, std::vector<float>(128, 0x1p-100f))[5], 0x1p-100f);
  }
}

TEST(RowFormat, NonFiniteValuesAreNeverHidden) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::nanf(""), 0x1p127f}) {
    std::vector<float> x(256, 1.0f);
    x[7] = bad;
    const std::vector<float> fp8 = round_trip(RowFormat::kFp8, x);
    EXPECT_TRUE(std::isnan(fp8[0]) && std::isnan(fp8[7]) && std::isnan(fp8[127]));
    EXPECT_EQ(fp8[128], 1.0f);
    const std::vector<float> nvfp4 = round_trip(RowFormat::kNvfp4, x);
    EXPECT_TRUE(std::isnan(nvfp4[7]) && std::isnan(nvfp4[255]));
  }
  for (const RowFormat format : kCoded) {
    for (const float value : round_trip(format, std::vector<float>(128, 0x1.fffffep126f))) {
      EXPECT_TRUE(std::isfinite(value));
    }
  }
}

double snr_db(RowFormat format) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(7168);
  for (float& value : x) value = normal(rng);
  const std::vector<float> y = round_trip(format, x);
  double signal = 0.0, noise = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    signal += double{x[i]} * double{x[i]};
    noise += (double{x[i]} - double{y[i]}) * (double{x[i]} - double{y[i]});
  }
  return 10.0 * std::log10(signal / noise);
}

// As weights in these formats (docs/precisions.md).
TEST(RowFormat, NoiseOfNormalValues) {
  EXPECT_GT(snr_db(RowFormat::kFp8), 31.0);
  EXPECT_GT(snr_db(RowFormat::kNvfp4), 20.0);
}

class RowFormatIsa : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported()) GTEST_SKIP() << "this processor cannot run " << GetParam()->isa;
  }
  const Kernels& kernels() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Kernels, RowFormatIsa, testing::ValuesIn(all_kernels()),
                         [](const auto& test) { return std::string(test.param->isa); });

// Bits, for NaN is not equal to itself.
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

void expect_as_ref(const Kernels& kernels, RowFormat format, const std::vector<float>& x) {
  const int n = static_cast<int>(x.size());
  const std::vector<std::byte> row = encoded(ref(), format, x);
  EXPECT_EQ(encoded(kernels, format, x), row) << row_format_name(format) << ", " << n;
  EXPECT_TRUE(same_bits(decoded(kernels, format, row, n), decoded(ref(), format, row, n)))
      << row_format_name(format) << ", " << n;

  const std::vector<Bf16> halves(x.begin(), x.end());
  std::vector<std::byte> expected(row.size()), found(row.size(), std::byte{0xa5});
  ref().encode_row(Dtype::kBf16, halves.data(), format, n, expected.data());
  kernels.encode_row(Dtype::kBf16, halves.data(), format, n, found.data());
  EXPECT_EQ(found, expected) << row_format_name(format) << " of bf16, " << n;
  std::vector<Bf16> y(x.size()), expected_y(x.size());
  ref().decode_row(format, row.data(), n, Dtype::kBf16, expected_y.data());
  kernels.decode_row(format, row.data(), n, Dtype::kBf16, y.data());
  EXPECT_TRUE(same_bits(y, expected_y)) << row_format_name(format) << " to bf16, " << n;
}

TEST_P(RowFormatIsa, EncodesAndDecodesAsRefByteByByte) {
  std::mt19937 rng(11);
  for (const RowFormat format : kFormats) {
    for (int round = 0; round < 30; ++round) {
      const int group = row_group(format);
      int n = group * (1 + static_cast<int>(rng() % (group == 1 ? 300u : 40u)));
      if (round % 2 == 0) n -= static_cast<int>(rng() % static_cast<unsigned>(group));
      std::vector<float> x = random_row(n, rng);
      expect_as_ref(kernels(), format, x);
      // Magnitudes over all of a float's range, and what is not finite.
      for (float& value : x) value *= std::exp2(static_cast<float>(rng() % 200) - 120.0f);
      expect_as_ref(kernels(), format, x);
      x[rng() % x.size()] = round % 2 == 0 ? std::nanf("") : -HUGE_VALF;
      expect_as_ref(kernels(), format, x);
    }
  }
}

TEST_P(RowFormatIsa, CodesLongRowsAsRef) {
  std::mt19937 rng(13);
  for (const int n : {7168, 8192, 8193, 8208, 16385, 17408}) {
    expect_as_ref(kernels(), RowFormat::kNvfp4, random_row(n, rng));
    expect_as_ref(kernels(), RowFormat::kFp8, random_row(n, rng));
  }
}

// Every value between neighbours of the formats, and the ties: scaled by powers of two.
TEST_P(RowFormatIsa, RoundsAsRefEverywhere) {
  std::vector<float> x;
  for (float value = 0.0f; value <= 448.0f; value += value < 8.0f ? 0x1p-8f : 0x1p-2f) {
    x.push_back(x.size() % 3 == 0 ? -value : value);
  }
  x.resize((x.size() + 127) / 128 * 128);
  for (size_t i = 0; i < x.size(); i += 128) x[i] = 448.0f;
  expect_as_ref(kernels(), RowFormat::kFp8, x);
  x[1] = 6.0f * 448.0f;
  for (size_t i = 16; i < x.size(); ++i) x[i] = std::fmod(x[i], 7.0f);
  expect_as_ref(kernels(), RowFormat::kNvfp4, x);
}

// Groups whose scales are subnormal, or rounded to nothing: values may be half as large again as
// their codes can say.
TEST_P(RowFormatIsa, CodesGroupsFarBelowTheirRowAsRef) {
  std::vector<float> x(16, 1.0f);
  x[0] = 6.0f * 448.0f;
  for (int group = 1; group < 100; ++group) {
    const float largest = 6.0f * 0x1p-9f * 0.05f * static_cast<float>(group);
    for (int i = 0; i < 16; ++i) x.push_back(largest * static_cast<float>(i - 8) / 8.0f);
    if (group % 2 == 0) x.back() = largest;
  }
  expect_as_ref(kernels(), RowFormat::kNvfp4, x);
}

// Every fraction of a bf16 beside every fraction of its group's largest, at the exponents where
// codes are large, where they become subnormal, and where they become zero.
TEST_P(RowFormatIsa, CodesEveryPairOfFractionsAsRef) {
  constexpr int kExponents[] = {7, -1, -6, -7, -15, -16, -17, -20};
  for (int of_largest = 0; of_largest < 128; ++of_largest) {
    std::vector<float> x;
    for (const int exponent : kExponents) {
      x.push_back(2.0f * (128.0f + static_cast<float>(of_largest)));
      for (int fraction = 1; fraction < 128; ++fraction) {
        const float value = (128.0f + static_cast<float>(fraction)) / 128.0f;
        x.push_back(std::ldexp(fraction % 3 == 0 ? -value : value, exponent));
      }
      x.push_back(x[x.size() - 128]);  // the fraction of 0
      x.insert(x.end(), 127, std::ldexp(1.0f, exponent));
    }
    expect_as_ref(kernels(), RowFormat::kFp8, x);
  }
}

// Rows of one token, coded by ref, and what they stand for.
struct CodedRows {
  std::vector<std::vector<std::byte>> rows;
  std::vector<std::vector<float>> values;

  CodedRows(RowFormat format, int top_k, int n, std::mt19937& rng) {
    for (int k = 0; k < top_k; ++k) {
      rows.push_back(encoded(ref(), format, random_row(n, rng)));
      values.push_back(decoded(ref(), format, rows.back(), n));
    }
  }
  std::vector<const std::byte*> pointers() const {
    std::vector<const std::byte*> all;
    for (const auto& row : rows) all.push_back(row.data());
    return all;
  }
};

// None is zero, one makes products with scales subnormal.
std::vector<float> router_weights(int top_k, std::mt19937& rng) {
  std::uniform_real_distribution<float> weight(0.05f, 1.0f);
  std::vector<float> weights;
  for (int k = 0; k < top_k; ++k) weights.push_back(k == 5 ? 0x1p-130f : weight(rng));
  return weights;
}

void expect_sums_as_ref(const Kernels& kernels, ReduceArgs args, std::mt19937& rng) {
  const auto size = static_cast<size_t>(args.n);
  const auto shared = random_row(args.n, rng), start = random_row(args.n, rng);
  for (const float* added : {static_cast<const float*>(nullptr), shared.data()}) {
    args.shared = added;
    std::vector<float> x = start, expected = start;
    std::vector<Bf16> sum(size), expected_sum(size);
    args.x = x.data();
    kernels.reduce_experts(args);
    args.x = expected.data();
    ref().reduce_experts(args);
    const std::string what =
        fmt::format("{}, {} values, top {}", row_format_name(args.format), args.n, args.top_k);
    for (size_t i = 0; i < size; ++i) {  // which NaN it is may differ
      EXPECT_TRUE(x[i] == expected[i] || (std::isnan(x[i]) && std::isnan(expected[i])))
          << what << ", x " << i << ": " << x[i] << ", not " << expected[i];
    }
    args.x = nullptr;
    args.sum = sum.data();
    kernels.reduce_experts(args);
    args.sum = expected_sum.data();
    ref().reduce_experts(args);
    for (size_t i = 0; i < size; ++i) {
      const auto found = static_cast<float>(sum[i]), wanted = static_cast<float>(expected_sum[i]);
      EXPECT_TRUE(sum[i].bits == expected_sum[i].bits || (std::isnan(found) && std::isnan(wanted)))
          << what << ", sum " << i << ": " << found << ", not " << wanted;
    }
  }
}

TEST_P(RowFormatIsa, ReducesRowsAsRef) {
  std::mt19937 rng(12);
  for (const RowFormat format : kFormats) {
    for (const int groups : {1, 7, 16, 19, 45, 46}) {
      int n = is_coded(format) ? row_group(format) * groups : 37 * groups;
      if (groups % 2 == 0) n -= static_cast<int>(rng() % static_cast<unsigned>(row_group(format)));
      for (const int top_k : {0, 1, 3, 8, 32, 33}) {
        const CodedRows coded(format, top_k, n, rng);
        const auto rows = coded.pointers();
        const auto weights = router_weights(top_k, rng);
        expect_sums_as_ref(kernels(),
                           {.n = n,
                            .top_k = top_k,
                            .format = format,
                            .rows = rows.data(),
                            .weights = weights.data()},
                           rng);
      }
    }
  }
}

// Scales that are NaN, and groups and rows of zeros, among others.
TEST_P(RowFormatIsa, ReducesRowsThatAreNotFiniteAsRef) {
  constexpr int kCount = 512;
  std::mt19937 rng(14);
  for (const RowFormat format : kCoded) {
    std::vector<std::vector<std::byte>> coded;
    auto x = random_row(kCount, rng);
    x[200] = HUGE_VALF;
    coded.push_back(encoded(ref(), format, x));
    coded.push_back(encoded(ref(), format, std::vector<float>(kCount)));
    x = random_row(kCount, rng);
    std::fill(x.begin() + 256, x.begin() + 384, 0.0f);
    coded.push_back(encoded(ref(), format, x));
    const std::byte* rows[] = {coded[0].data(), coded[1].data(), coded[2].data()};
    const auto weights = router_weights(3, rng);
    for (const int first : {0, 1}) {
      expect_sums_as_ref(kernels(),
                         {.n = kCount,
                          .top_k = 3 - first,
                          .format = format,
                          .rows = rows + first,
                          .weights = weights.data()},
                         rng);
    }
  }
}

// Sums of every size: subnormal, zero, and what is left of two rows that all but cancel each other,
// the smallest sum that normal products can leave.
TEST_P(RowFormatIsa, ReducesRowsOfEverySizeAsRef) {
  constexpr int kCount = 512;
  std::mt19937 rng(15);
  for (const RowFormat format : kCoded) {
    for (const float size : {1.0f, 0x1p-60f, 0x1p60f}) {
      std::vector<float> x = random_row(kCount, rng);
      for (float& value : x) value *= size;
      const auto row = encoded(ref(), format, x);
      const std::byte* rows[] = {row.data(), row.data()};
      for (int exponent = -149; exponent < 128; exponent += 3) {
        const float weight = std::ldexp(1.0f, exponent);
        for (const float other : {0.0f, 0.7f * weight, -std::nextafter(weight, HUGE_VALF)}) {
          const float weights[] = {weight, other};
          const ReduceArgs args{.n = kCount, .top_k = 2, .format = format, .rows = rows};
          const auto sums = [&](const Kernels& kernels) {
            std::vector<Bf16> sum(kCount);
            ReduceArgs of = args;
            of.weights = weights;
            of.sum = sum.data();
            kernels.reduce_experts(of);
            return sum;
          };
          const auto found = sums(kernels()), expected = sums(ref());
          for (size_t i = 0; i < kCount; ++i) {
            const auto value = static_cast<float>(expected[i]);
            EXPECT_TRUE(found[i].bits == expected[i].bits ||
                        (std::isnan(static_cast<float>(found[i])) && std::isnan(value)))
                << row_format_name(format) << ", rows of " << size << ", weights " << weight
                << " and " << other << ": " << static_cast<float>(found[i]) << ", not " << value;
          }
        }
      }
    }
  }
}

// Of what rows stand for; where a weight goes to the scale, but for its rounding: half a unit in
// the last place of each product, and the same of each sum.
TEST(RowFormat, RefReducesDecodedValues) {
  std::mt19937 rng(12);
  for (const RowFormat format : kFormats) {
    const int n = is_coded(format) ? row_group(format) * 19 : 333, top_k = 8;
    const CodedRows coded(format, top_k, n, rng);
    const auto rows = coded.pointers();
    const auto weights = router_weights(top_k, rng);
    std::vector<float> x(n);
    ref().reduce_experts({.n = n,
                          .top_k = top_k,
                          .format = format,
                          .rows = rows.data(),
                          .weights = weights.data(),
                          .x = x.data()});
    for (int i = 0; i < n; ++i) {
      float sum = 0.0f;
      double size = 0.0;
      for (int k = 0; k < top_k; ++k) {
        sum = std::fma(weights[k], coded.values[k][i], sum);
        size += std::abs(double{weights[k]} * coded.values[k][i]);
      }
      const double bound = is_coded(format) ? 2.0 * (top_k + 1) * 0x1p-24 * size : 0.0;
      EXPECT_NEAR(x[i], sum, bound) << row_format_name(format) << " " << i;
    }
  }
}

// A bf16 row as the sum is rounded as Bf16(float) does it, where the instruction for it would not.
TEST_P(RowFormatIsa, SumsAsRowsAreRoundedAsScalars) {
  constexpr int kCount = 160;
  std::vector<float> x(kCount, 1.0f);
  const float odd[] = {0x1.01p0f,    0x1.03p0f,     -0x1.ffp127f, 0x1p-130f,
                       -0x1.8p-140f, std::nanf(""), HUGE_VALF,    -0.0f};
  for (size_t i = 0; i < std::size(odd); ++i) x[i * 19] = odd[i];
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kBf16}) {
    for (const float weight : {1.0f, 0.7f}) {
      const auto row = encoded(ref(), format, x);
      const std::byte* rows[] = {row.data()};
      std::vector<Bf16> sum(kCount), expected(kCount);
      ReduceArgs args{.n = kCount, .top_k = 1, .format = format, .rows = rows, .weights = &weight};
      args.sum = sum.data();
      kernels().reduce_experts(args);
      args.sum = expected.data();
      ref().reduce_experts(args);
      for (int i = 0; i < kCount; ++i) {
        EXPECT_EQ(sum[i].bits, expected[i].bits) << weight << " · " << x[i];
        if (format == RowFormat::kF32) {
          EXPECT_EQ(sum[i].bits, Bf16(weight * x[i] + 0.0f).bits) << x[i];
        }
      }
    }
  }
}

}  // namespace
}  // namespace wideep::kernels
