// SPDX-License-Identifier: Apache-2.0
//
// Every table this processor can run is held against "ref" on random shapes, and each kernel's row
// invariance is checked bit by bit.
#include "kernels/kernels.h"
#include "base/aligned_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace wideep::kernels {
namespace {

std::vector<float> random_floats(size_t count, std::mt19937& rng, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

std::vector<Bf16> rounded(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

class EveryIsa : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported()) GTEST_SKIP() << "this processor cannot run " << GetParam()->isa;
  }
  const Kernels& kernels() const { return *GetParam(); }
  const Kernels& ref() const { return *all_kernels().back(); }
};

INSTANTIATE_TEST_SUITE_P(Kernels, EveryIsa, testing::ValuesIn(all_kernels()),
                         [](const auto& test) { return std::string(test.param->isa); });

TEST_P(EveryIsa, RowOperationsAgreeWithRef) {
  std::mt19937 rng(6);
  for (int n : {1, 15, 16, 17, 64, 250}) {
    const auto x = random_floats(n, rng, 3.0f), other = random_floats(n, rng, 3.0f);
    std::vector<float> y(n), expected(n);
    kernels().rms_norm(x.data(), other.data(), 1e-6f, n, y.data());
    ref().rms_norm(x.data(), other.data(), 1e-6f, n, expected.data());
    for (int i = 0; i < n; ++i) ASSERT_NEAR(y[i], expected[i], 1e-5 * std::abs(expected[i]) + 1e-7);

    const auto near = [&](const char* name) {
      for (int i = 0; i < n; ++i) {
        ASSERT_NEAR(y[i], expected[i], 1e-5 * std::abs(expected[i]) + 1e-7) << name << " " << i;
      }
    };
    kernels().rms_norm(x.data(), nullptr, 1e-6f, n, y.data());
    ref().rms_norm(x.data(), nullptr, 1e-6f, n, expected.data());
    near("rms_norm without weight");
    const auto bias = random_floats(n, rng, 1.0f);
    for (const LayerNorm& norm :
         {LayerNorm{other.data(), bias.data(), 1e-5f}, LayerNorm{other.data(), nullptr, 1e-5f}}) {
      kernels().layer_norm(x.data(), norm, n, y.data());
      ref().layer_norm(x.data(), norm, n, expected.data());
      for (int i = 0; i < n; ++i) ASSERT_NEAR(y[i], expected[i], 1e-5) << "layer_norm " << i;
    }
    kernels().l2_normalize(x.data(), 1e-6f, n, y.data());
    ref().l2_normalize(x.data(), 1e-6f, n, expected.data());
    near("l2_normalize");
    kernels().silu(x.data(), n, y.data());
    ref().silu(x.data(), n, expected.data());
    near("silu");
    kernels().silu_multiply(x.data(), other.data(), n, y.data());
    ref().silu_multiply(x.data(), other.data(), n, expected.data());
    near("silu_multiply");
    kernels().sigmoid_multiply(x.data(), other.data(), n, y.data());
    ref().sigmoid_multiply(x.data(), other.data(), n, expected.data());
    near("sigmoid_multiply");
    y = expected = x;
    kernels().scale_row(0.7f, n, y.data());
    ref().scale_row(0.7f, n, expected.data());
    EXPECT_EQ(y, expected);

    y = expected = x;
    kernels().square_relu(Dtype::kF32, n, y.data());
    ref().square_relu(Dtype::kF32, n, expected.data());
    EXPECT_EQ(y, expected);
    auto squared = rounded(x), expected_halves = rounded(x);
    kernels().square_relu(Dtype::kBf16, n, squared.data());
    ref().square_relu(Dtype::kBf16, n, expected_halves.data());
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(static_cast<float>(squared[i]), static_cast<float>(expected_halves[i]));
    }

    for (Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      const auto halves = rounded(x);
      const void* source =
          dtype == Dtype::kF32 ? static_cast<const void*>(x.data()) : halves.data();
      y = expected = other;
      kernels().add_scaled(dtype, source, 0.7f, n, y.data());
      ref().add_scaled(dtype, source, 0.7f, n, expected.data());
      EXPECT_EQ(y, expected);
    }
  }
}

// By the formula in double, also where the mean is far larger than the differences from it; in
// place.
TEST_P(EveryIsa, LayerNormIsItsFormula) {
  std::mt19937 rng(8);
  for (const int n : {1, 2, 15, 16, 17, 37, 250, 4096, 4099}) {
    for (const float mean : {0.0f, -3.0f, 1000.0f, -1e5f}) {
      for (const bool has_bias : {false, true}) {
        auto x = random_floats(n, rng, 2.0f);
        for (float& value : x) value += mean;
        const auto weight = random_floats(n, rng, 2.0f), bias = random_floats(n, rng, 2.0f);
        double sum = 0.0, squares = 0.0;
        for (const float value : x) sum += value;
        for (const float value : x) squares += (value - sum / n) * (value - sum / n);
        std::vector<double> expected;
        for (size_t i = 0; i < x.size(); ++i) {
          const double normed = (x[i] - sum / n) / std::sqrt(squares / n + double{1e-5f});
          expected.push_back(normed * weight[i] + (has_bias ? bias[i] : 0.0f));
        }
        kernels().layer_norm(x.data(), {weight.data(), has_bias ? bias.data() : nullptr, 1e-5f}, n,
                             x.data());
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_NEAR(x[i], expected[i], 1e-5) << n << " mean " << mean << " element " << i;
        }
      }
    }
  }
}

// By formulas written out here, of which ref and the vectors could both be wrong; in place.
TEST_P(EveryIsa, RowOperationsAreTheirFormulas) {
  std::mt19937 rng(7);
  const int n = 37;
  const auto x = random_floats(n, rng, 3.0f), gate = random_floats(n, rng, 3.0f);
  double squares = 0.0;
  for (const float value : x) squares += double{value} * value;
  const auto expect = [&](const std::vector<float>& y, auto formula, const char* name) {
    for (int i = 0; i < n; ++i) {
      const double expected = formula(i);
      EXPECT_NEAR(y[i], expected, 1e-5 * std::abs(expected) + 1e-7) << name << " " << i;
    }
  };
  const auto sigma = [](double value) { return 1.0 / (1.0 + std::exp(-value)); };
  auto y = x;
  kernels().rms_norm(y.data(), nullptr, 0.5f, n, y.data());
  expect(y, [&](int i) { return x[i] / std::sqrt(squares / n + 0.5); }, "rms_norm");
  y = x;
  kernels().l2_normalize(y.data(), 0.5f, n, y.data());
  expect(y, [&](int i) { return x[i] / std::sqrt(squares + 0.5); }, "l2_normalize");
  y = x;
  kernels().silu(y.data(), n, y.data());
  expect(y, [&](int i) { return x[i] * sigma(x[i]); }, "silu");
  y = x;
  kernels().silu_multiply(gate.data(), y.data(), n, y.data());
  expect(y, [&](int i) { return x[i] * gate[i] * sigma(gate[i]); }, "silu_multiply");
  y = gate;
  kernels().sigmoid_multiply(y.data(), x.data(), n, y.data());
  expect(y, [&](int i) { return x[i] * sigma(gate[i]); }, "sigmoid_multiply");
  y = x;
  y[3] = NAN;  // which must not vanish
  kernels().square_relu(Dtype::kF32, n, y.data());
  EXPECT_TRUE(std::isnan(y[3]));
  y[3] = x[3] > 0.0f ? x[3] * x[3] : 0.0f;
  expect(y, [&](int i) { return x[i] > 0.0f ? x[i] * x[i] : 0.0; }, "square_relu");
}

TEST_P(EveryIsa, ArgmaxFindsTheLargestAtEveryIndex) {
  for (const int n : {1, 15, 16, 70, 200}) {
    for (int at = n - 1; at >= 0; at -= 7) {
      std::vector<float> x(static_cast<size_t>(n), -1.0f);
      x[at] = x[n - 1] = 2.0f;  // the first of equals
      x[0] = at == 0 ? 2.0f : NAN;
      EXPECT_EQ(kernels().argmax(x.data(), n), at) << "of " << n;
    }
    const std::vector<float> nans(static_cast<size_t>(n), NAN);
    EXPECT_EQ(kernels().argmax(nans.data(), n), 0);
    const std::vector<float> min(static_cast<size_t>(n), -INFINITY);
    EXPECT_EQ(kernels().argmax(min.data(), n), 0);
  }
}

TEST_P(EveryIsa, SumOfExpAgreesWithDouble) {
  std::mt19937 rng(9);
  for (const int n : {1, 15, 17, 1024, 5000}) {
    auto x = random_floats(n, rng, 8.0f);
    x[n / 2] = -200.0f;
    const float largest = x[kernels().argmax(x.data(), n)];
    double expected = 0.0;
    for (const float value : x) expected += std::exp(double{value} - double{largest});
    const double sum = kernels().sum_of_exp(x.data(), largest, n);
    EXPECT_NEAR(sum, expected, 1e-6 * expected);
    for (const Kernels* other : all_kernels()) {
      if (other == &ref() || &kernels() == &ref() || !other->supported()) continue;
      EXPECT_EQ(other->sum_of_exp(x.data(), largest, n), sum) << other->isa;
    }
  }
}

TEST_P(EveryIsa, ErrorOfInt4IsEqualBitForBitToRef) {
  std::mt19937 rng(10);
  for (const int n : {1, 15, 16, 17, 64, 120}) {
    const auto x = random_floats(n, rng, 3.0f);
    for (const float scale : {0.25f, 0.4f, 1.0f}) {
      EXPECT_EQ(kernels().int4_error(x.data(), n, scale, 1.0f / scale),
                ref().int4_error(x.data(), n, scale, 1.0f / scale));
    }
    EXPECT_EQ(kernels().int4_error(x.data(), n, 0.0f, 0.0f),
              ref().int4_error(x.data(), n, 0.0f, 0.0f));
  }
}

TEST_P(EveryIsa, ReductionIsEqualBitForBitToRef) {
  std::mt19937 rng(8);
  for (int n : {1, 16, 100, 128, 333, 1024}) {
    for (int top_k : {1, 3, 8}) {
      for (const bool has_shared : {false, true}) {
        std::vector<std::vector<Bf16>> rows;
        std::vector<const std::byte*> pointers;
        for (int k = 0; k < top_k; ++k) rows.push_back(rounded(random_floats(n, rng)));
        for (const auto& row : rows)
          pointers.push_back(reinterpret_cast<const std::byte*>(row.data()));
        const auto weights = random_floats(top_k, rng), shared = random_floats(n, rng);
        auto x = random_floats(n, rng), expected = x;
        ReduceArgs args{.n = n,
                        .top_k = top_k,
                        .format = RowFormat::kBf16,
                        .rows = pointers.data(),
                        .weights = weights.data(),
                        .shared = has_shared ? shared.data() : nullptr,
                        .x = x.data()};
        kernels().reduce_experts(args);
        args.x = expected.data();
        ref().reduce_experts(args);
        EXPECT_EQ(x, expected) << n << " elements, top " << top_k;
        auto sum = rounded(x), expected_sum = sum;
        args.x = nullptr;
        args.sum = sum.data();
        kernels().reduce_experts(args);
        args.sum = expected_sum.data();
        ref().reduce_experts(args);
        EXPECT_EQ(std::vector<float>(sum.begin(), sum.end()),
                  std::vector<float>(expected_sum.begin(), expected_sum.end()))
            << n << " elements, top " << top_k;
        args.sum = rows[static_cast<size_t>(top_k) / 2].data();
        kernels().reduce_experts(args);
        EXPECT_EQ(std::vector<float>(args.sum, args.sum + n),
                  std::vector<float>(expected_sum.begin(), expected_sum.end()))
            << "over one of " << top_k << " rows of " << n;
      }
    }
  }
}

TEST_P(EveryIsa, AScaledReductionIsOneFusedStepMore) {
  std::mt19937 rng(14);
  for (const RowFormat format : {RowFormat::kF32, RowFormat::kBf16, RowFormat::kFp8}) {
    const int n = format == RowFormat::kFp8 ? 256 : 333, top_k = 3;
    std::vector<base::AlignedBytes> rows;
    std::vector<const std::byte*> pointers;
    for (int k = 0; k < top_k; ++k) {
      rows.emplace_back(row_bytes(format, n));
      ref().encode_row(Dtype::kF32, random_floats(n, rng).data(), format, n, rows.back().data());
      pointers.push_back(rows.back().data());
    }
    const auto weights = random_floats(top_k, rng), shared = random_floats(n, rng);
    const auto before = random_floats(n, rng);
    ReduceArgs args{.n = n,
                    .top_k = top_k,
                    .format = format,
                    .rows = pointers.data(),
                    .weights = weights.data(),
                    .shared = shared.data()};
    std::vector<float> sums(n, 0.0f), x = before;
    args.x = sums.data();
    kernels().reduce_experts(args);  // 0 + the sum is the sum
    args.x = x.data();
    args.scale = 0.22f;
    kernels().reduce_experts(args);
    for (int i = 0; i < n; ++i) ASSERT_EQ(x[i], std::fma(0.22f, sums[i], before[i])) << i;
    std::vector<Bf16> rounded_sum(n);
    args.x = nullptr;
    args.sum = rounded_sum.data();
    kernels().reduce_experts(args);
    for (int i = 0; i < n; ++i) ASSERT_EQ(rounded_sum[i].bits, Bf16(sums[i]).bits) << i;
  }
}

TEST_P(EveryIsa, RotatesAsRefBitForBit) {
  std::mt19937 rng(8);
  for (int dim : {2, 6, 20, 32, 64, 70}) {
    for (bool interleaved : {false, true}) {
      const auto cos_sin = random_floats(dim, rng);
      auto x = random_floats(dim, rng), expected = x;
      const float a = x[0], b = x[interleaved ? 1 : dim / 2];
      kernels().rotate(cos_sin.data(), dim, interleaved, x.data());
      ref().rotate(cos_sin.data(), dim, interleaved, expected.data());
      EXPECT_EQ(x, expected);
      EXPECT_EQ(x[0], a * cos_sin[0] - b * cos_sin[dim / 2]);
    }
  }
}

TEST_P(EveryIsa, Bf16RoundsAsTheScalarConversion) {
  std::mt19937 rng(7);
  const auto x = random_floats(1000, rng, 100.0f);
  std::vector<Bf16> y(x.size());
  kernels().to_bf16(x.data(), int(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, Bf16(x[i]).bits);
}

TEST(SelectKernels, BestFirstByDefault) {
  const auto best = select_kernels(nullptr);
  ASSERT_TRUE(best.ok());
  for (const Kernels* table : all_kernels()) {
    if (table->supported()) {
      EXPECT_EQ((*best)->isa, table->isa);
      break;
    }
  }
}

TEST(SelectKernels, TheNamedTableIsSelected) {
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) continue;
    const auto chosen = select_kernels(std::string(table->isa).c_str());
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(*chosen, table);
  }
}

TEST(SelectKernels, AnUnknownNameIsAnErrorThatListsTheChoices) {
  const auto chosen = select_kernels("sse9");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(chosen.status().message(), testing::HasSubstr("WIDEEP_ISA=sse9"));
  EXPECT_THAT(chosen.status().message(), testing::HasSubstr("ref"));
}

}  // namespace
}  // namespace wideep::kernels
