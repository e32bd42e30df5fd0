// SPDX-License-Identifier: Apache-2.0
//
// Products of every weight format on every instruction set this processor can run, against "ref" on
// random shapes, and row invariance bit by bit.
#include "kernels/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <random>
#include <tuple>
#include <vector>

#include "base/aligned_bytes.h"
#include "kernels/kernels.h"
#include "kernels/pack_matrix.h"

namespace wideep::kernels {
namespace {

constexpr WeightFormat kFormats[] = {
    WeightFormat::kF32,   WeightFormat::kBf16,  WeightFormat::kFp8,   WeightFormat::kInt8,
    WeightFormat::kInt4,  WeightFormat::kMxfp4, WeightFormat::kNvfp4, WeightFormat::kInt4m,
    WeightFormat::kInt8m, WeightFormat::kInt4h, WeightFormat::kInt8h};

// int8 and int4, also with minimums, in groups of any size that files have.
std::vector<int> groups_of(WeightFormat format) {
  if (has_two_levels(format)) return {16, 32};
  if (format == WeightFormat::kInt8 || format == WeightFormat::kInt4 || has_half_scales(format)) {
    return {8, 24, 32, 64, 120, 128, 256};
  }
  return {default_group(format)};
}

std::vector<float> random_floats(size_t count, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

using Case = std::tuple<const Kernels*, WeightFormat>;
class EveryFormat : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!kernels().supported()) GTEST_SKIP() << "this processor cannot run " << kernels().isa;
  }
  const Kernels& kernels() const { return *std::get<0>(GetParam()); }
  static const Kernels& ref() { return *all_kernels().back(); }
  WeightFormat format() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Matmul, EveryFormat,
                         testing::Combine(testing::ValuesIn(all_kernels()),
                                          testing::ValuesIn(kFormats)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)->isa) + "_" +
                                  std::string(weight_format_name(std::get<1>(test.param)));
                         });

// Rows of x as the format's products take them.
struct Operand {
  base::AlignedBytes bytes;
  size_t stride = 0;

  Operand(const PackedShape& w, const std::vector<float>& x) {
    const size_t k = static_cast<size_t>(w.k), rows = x.size() / k;
    const bool quantized = takes_quantized_rows(w.format);
    const QuantizedRowShape row = quantized ? quantized_row_shape(w) : QuantizedRowShape{};
    stride = quantized ? row.bytes() : k * (w.format == WeightFormat::kF32 ? 4 : 2);
    bytes = base::AlignedBytes(rows * stride);
    for (size_t i = 0; i < rows; ++i) {
      const float* source = x.data() + i * k;
      std::byte* out = bytes.data() + i * stride;
      if (quantized) {
        all_kernels().back()->quantize_row(Dtype::kF32, source, row, out);
      } else if (w.format == WeightFormat::kF32) {
        std::copy_n(source, k, reinterpret_cast<float*>(out));
      } else {
        for (size_t j = 0; j < k; ++j) reinterpret_cast<Bf16*>(out)[j] = Bf16(source[j]);
      }
    }
  }
};

struct Product {
  PackedShape shape;
  int m;
  std::vector<float> x, w_values, up_values;
  base::AlignedBytes w_bytes, up_bytes;
  Operand operand;
  PackedMatrix w, up;

  Product(WeightFormat format, int rows, int n, int k, std::mt19937& rng)
      : shape(shape_of(format, n, k, rng)),
        m(rows),
        x(random_floats(static_cast<size_t>(m) * k, rng)),
        w_values(random_floats(static_cast<size_t>(n) * k, rng)),
        up_values(random_floats(static_cast<size_t>(n) * k, rng)),
        w_bytes(shape.bytes()),
        up_bytes(shape.bytes()),
        operand(shape, x),
        w(pack_matrix(shape, w_values.data(), w_bytes.data())),
        up(pack_matrix(shape, up_values.data(), up_bytes.data())) {
    w.scale *= 0.5f;
  }
  static PackedShape shape_of(WeightFormat format, int n, int k, std::mt19937& rng) {
    PackedShape shape = packed_shape(format, n, k);
    const std::vector<int> groups = groups_of(format);
    shape.group = groups[rng() % groups.size()];
    return shape;
  }
  InputRows rows(int first = 0) const {
    return {operand.bytes.data() + first * operand.stride, operand.stride, nullptr};
  }
  std::vector<float> run(const Kernels& kernels) const {
    return by_every_tuning([&](Tuning tuning, OutputRows y) {
      kernels.matmul({m, rows(), w, 0, shape.num_panels(), y, tuning});
    });
  }
  std::vector<float> run_gated(const Kernels& kernels) const {
    return by_every_tuning([&](Tuning tuning, OutputRows h) {
      kernels.gated_matmul({m, rows(), w, up, 0, shape.num_panels(), h, tuning});
    });
  }
  // The same bits.
  template <typename Multiply>
  std::vector<float> by_every_tuning(const Multiply& multiply) const {
    std::vector<float> results[2];
    for (const Tuning tuning : {Tuning::kZen4, Tuning::kZen5}) {
      std::vector<float>& y = results[static_cast<int>(tuning)];
      y.assign(static_cast<size_t>(m) * shape.n, NAN);
      multiply(tuning, {y.data(), static_cast<size_t>(shape.n) * sizeof(float)});
    }
    EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)),
              0)
        << "m " << m << " n " << shape.n << " k " << shape.k;
    return results[0];
  }
  // A chain of k fused steps in another order differs by at most k ulps of the sum of magnitudes;
  // vdpbf16ps flushes subnormals and rounds twice a pair, hence the 2.
  double tolerance(int i, int j) const {
    if (shape.format == WeightFormat::kF32 || takes_quantized_rows(shape.format)) return 0.0;
    double magnitude = 0.0;
    for (int k = 0; k < shape.k; ++k) {
      magnitude += std::abs(double(x[i * shape.k + k]) * w_values[j * shape.k + k]);
    }
    return 2.0 * (shape.k + 1) * magnitude * 0x1p-24;
  }
};

TEST_P(EveryFormat, MatmulAgreesWithRef) {
  if (&kernels() == &ref()) return;
  std::mt19937 rng(1);
  for (int round = 0; round < 12; ++round) {
    const Product product(format(), 1 + rng() % 20, 1 + rng() % 150, 1 + rng() % 600, rng);
    const auto y = product.run(kernels()), expected = product.run(ref());
    for (int i = 0; i < product.m; ++i) {
      for (int j = 0; j < product.shape.n; ++j) {
        const int at = i * product.shape.n + j;
        ASSERT_NEAR(y[at], expected[at], product.tolerance(i, j))
            << "m " << product.m << " n " << product.shape.n << " k " << product.shape.k << " at "
            << i << "," << j;
      }
    }
  }
}

// Of silu(a)·b: errors of a and b, and the exponential's few ulps.
TEST_P(EveryFormat, GatedMatmulAgreesWithRef) {
  if (&kernels() == &ref()) return;
  std::mt19937 rng(2);
  for (int round = 0; round < 6; ++round) {
    const Product product(format(), 1 + rng() % 20, 1 + rng() % 150, 1 + rng() % 300, rng);
    const auto h = product.run_gated(kernels()), expected = product.run_gated(ref());
    for (size_t i = 0; i < h.size(); ++i) {
      ASSERT_NEAR(h[i], expected[i], 1e-3 + 1e-4 * std::abs(expected[i])) << "element " << i;
    }
  }
}

// The bias of each column is added to what there would be without, in one rounding.
TEST_P(EveryFormat, ABiasIsAddedAfterTheScale) {
  std::mt19937 rng(11);
  for (const int m : {1, 4, 9, 40}) {
    for (const int n : {1, 16, 75}) {
      const Product product(format(), m, n, 130, rng);
      const auto bias = random_floats(static_cast<size_t>(n), rng);
      const auto without = product.run(kernels());
      const auto y = product.by_every_tuning([&](Tuning tuning, OutputRows out) {
        kernels().matmul({.m = m,
                          .x = product.rows(),
                          .w = product.w,
                          .last_panel = product.shape.num_panels(),
                          .y = out,
                          .tuning = tuning,
                          .bias = bias.data()});
      });
      for (int i = 0; i < m * n; ++i) ASSERT_EQ(y[i], without[i] + bias[i % n]) << i << " of " << n;
    }
  }
}

// By its definition.
double gelu_tanh(double x) {
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(u));
}

// The gated product with biases and every function, from the two products alone.
TEST_P(EveryFormat, BiasesAndTheFunctionsOfAGatedProduct) {
  std::mt19937 rng(12);
  for (const int m : {1, 5, 20}) {
    const int n = 45;
    const Product product(format(), m, n, 130, rng);
    const auto gate_bias = random_floats(n, rng), up_bias = random_floats(n, rng);
    const auto multiply = [&](const PackedMatrix& w, const float* bias) {
      std::vector<float> y(static_cast<size_t>(m) * n);
      kernels().matmul({.m = m,
                        .x = product.rows(),
                        .w = w,
                        .last_panel = product.shape.num_panels(),
                        .y = {y.data(), n * sizeof(float)},
                        .bias = bias});
      return y;
    };
    for (const bool has_gate_bias : {false, true}) {
      for (const bool has_up_bias : {false, true}) {
        const float* const biases[] = {has_gate_bias ? gate_bias.data() : nullptr,
                                       has_up_bias ? up_bias.data() : nullptr};
        const auto gates = multiply(product.w, biases[0]), ups = multiply(product.up, biases[1]);
        for (const auto kind : {Activation::Kind::kSilu, Activation::Kind::kClampedSwiglu,
                                Activation::Kind::kGeluTanh, Activation::Kind::kLimitedSilu,
                                Activation::Kind::kClampedSilu}) {
          const auto h = product.by_every_tuning([&](Tuning tuning, OutputRows out) {
            kernels().gated_matmul({.m = m,
                                    .x = product.rows(),
                                    .gate = product.w,
                                    .up = product.up,
                                    .last_panel = product.shape.num_panels(),
                                    .h = out,
                                    .tuning = tuning,
                                    .gate_bias = biases[0],
                                    .up_bias = biases[1],
                                    .activation = {.kind = kind, .alpha = 1.5f, .limit = 6.0f}});
          });
          for (int i = 0; i < m * n; ++i) {
            double gate = gates[i], up = ups[i];
            const double silu = gate / (1.0 + std::exp(-gate));
            double expected = silu * up;
            if (kind == Activation::Kind::kClampedSwiglu) {
              gate = std::min(gate, 6.0);
              up = std::clamp(up, -6.0, 6.0);
              expected = (up + 1.0) * gate / (1.0 + std::exp(-1.5 * gate));
            }
            if (kind == Activation::Kind::kGeluTanh) expected = gelu_tanh(gate) * up;
            if (kind == Activation::Kind::kLimitedSilu) {
              expected = std::min(silu, 6.0) * std::clamp(up, -6.0, 6.0);
            }
            if (kind == Activation::Kind::kClampedSilu) {
              gate = std::min(gate, 6.0);
              expected = gate / (1.0 + std::exp(-gate)) * std::clamp(up, -6.0, 6.0);
            }
            ASSERT_NEAR(h[i], expected, 2e-6 * std::abs(expected) + 1e-6) << gate << " " << up;
          }
        }
      }
    }
  }
}

TEST_P(EveryFormat, RowsDoNotDependOnTheirNeighbours) {
  if (&kernels() == &ref()) return;  // one element at a time, by its definition
  std::mt19937 rng(3);
  for (const int m : {2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 14, 15, 16, 23, 29, 97, 193}) {
    const Product product(format(), m, 100, 275, rng);
    const auto together = product.run(kernels());
    const auto gated = product.run_gated(kernels());
    std::vector<float> alone(together.size(), NAN), gated_alone(together.size(), NAN);
    for (int row = 0; row < m; ++row) {
      for (int panel = 0; panel < product.shape.num_panels(); ++panel) {
        const auto at = static_cast<size_t>(row) * product.shape.n;
        kernels().matmul(
            {1, product.rows(row), product.w, panel, panel + 1, {alone.data() + at, 0}});
        kernels().gated_matmul({1,
                                product.rows(row),
                                product.w,
                                product.up,
                                panel,
                                panel + 1,
                                {gated_alone.data() + at, 0}});
      }
    }
    EXPECT_EQ(alone, together) << m << " rows";
    EXPECT_EQ(gated_alone, gated) << m << " rows";
  }
}

// A part of the panels, of a matrix whose own first panel is not that of the whole.
TEST_P(EveryFormat, PanelsDoNotDependOnTheirNeighbours) {
  if (&kernels() == &ref()) return;  // one element at a time, by its definition
  std::mt19937 rng(7);
  for (const int m : {1, 2, 6, 8, 12, 16, 30}) {
    const Product product(format(), m, 7 * kPanelWidth - 3, 275, rng);
    const auto whole = product.run(kernels()), whole_gated = product.run_gated(kernels());
    const PackedShape& shape = product.shape;
    PackedMatrix w = product.w, up = product.up;
    w.first_panel = up.first_panel = 1;
    w.data += shape.panel_bytes();
    up.data += shape.panel_bytes();
    for (const int first : {1, 2}) {
      for (const int last : {5, 6, 7}) {
        // What is read next has no influence.
        const std::byte* const next = last == 6 ? up.data : nullptr;
        const std::byte* const next_up = last == 6 ? w.data : nullptr;
        const auto y = product.by_every_tuning([&](Tuning tuning, OutputRows out) {
          kernels().matmul({m, product.rows(), w, first, last, out, tuning, next});
        });
        const auto h = product.by_every_tuning([&](Tuning tuning, OutputRows out) {
          kernels().gated_matmul(
              {m, product.rows(), w, up, first, last, out, tuning, next, next_up});
        });
        for (size_t i = 0; i < y.size(); ++i) {
          const int panel = static_cast<int>(i) % shape.n / kPanelWidth;
          if (first <= panel && panel < last) {
            ASSERT_EQ(y[i], whole[i]) << "m " << m << " panels " << first << " to " << last;
            ASSERT_EQ(h[i], whole_gated[i]) << "m " << m << " panels " << first << " to " << last;
          } else {
            ASSERT_TRUE(std::isnan(y[i]) && std::isnan(h[i])) << "panel " << panel;
          }
        }
      }
    }
  }
}

TEST_P(EveryFormat, RowsMayLieAnywhereAndLeaveAsBf16) {
  std::mt19937 rng(4);
  const Product product(format(), 9, 70, 130, rng);
  const auto expected = product.run(kernels());
  std::vector<const void*> in;
  std::vector<std::vector<Bf16>> y(9, std::vector<Bf16>(70));
  std::vector<void*> out;
  for (int row = 0; row < 9; ++row) {
    in.push_back(product.rows()[8 - row]);
    out.push_back(y[static_cast<size_t>(row)].data());
  }
  kernels().matmul({9,
                    {nullptr, 0, in.data()},
                    product.w,
                    0,
                    product.shape.num_panels(),
                    {nullptr, 0, Dtype::kBf16, out.data()}});
  for (int row = 0; row < 9; ++row) {
    for (int j = 0; j < 70; ++j) {
      EXPECT_EQ(y[row][j].bits, Bf16(expected[(8 - row) * 70 + j]).bits) << row << "," << j;
    }
  }
}

TEST_P(EveryFormat, QuantizedRowsAreEqualBitForBitToRef) {
  if (!takes_quantized_rows(format())) return;
  std::mt19937 rng(5);
  const auto expect_equal = [&](const PackedShape& w, Dtype dtype, const void* x) {
    const QuantizedRowShape shape = quantized_row_shape(w);
    base::AlignedBytes out(shape.bytes()), expected(shape.bytes());
    std::fill_n(out.data(), out.size(), std::byte{0});
    kernels().quantize_row(dtype, x, shape, out.data());
    ref().quantize_row(dtype, x, shape, expected.data());
    EXPECT_TRUE(std::equal(out.data(), out.data() + out.size(), expected.data()))
        << dtype_name(dtype) << " k " << w.k << " group " << w.group;
  };
  for (const int k : {1, 16, 31, 64, 120, 128, 192, 300, 1024, 1920}) {
    for (const int group : groups_of(format())) {
      PackedShape w = packed_shape(format(), 16, k);
      w.group = group;
      auto x = random_floats(static_cast<size_t>(k), rng);
      if (k == 300) std::fill(x.begin(), x.begin() + 128, 0.0f);  // a group without any scale
      if (k == 192) {  // scales that are subnormal, barely not, infinite, and NaN
        for (int i = 0; i < k; ++i) x[static_cast<size_t>(i)] *= i < 64 ? 0x1p-124f : 0x1p-121f;
        x[70] = 1e38f;
        x[100] = -INFINITY;
        x[140] = NAN;
      }
      expect_equal(w, Dtype::kF32, x.data());
      std::vector<Bf16> rounded;
      for (const float value : x) rounded.emplace_back(value);
      expect_equal(w, Dtype::kBf16, rounded.data());
    }
  }
}

// What is not finite is not lost on its way through whole numbers.
TEST_P(EveryFormat, NanInARowMakesItsResultsNan) {
  std::mt19937 rng(8);
  for (const int m : {1, 5, 9, 20}) {
    for (const int k : {40, 256, 300}) {
      Product product(format(), m, 40, k, rng);
      product.x[static_cast<size_t>(m / 2) * k + k / 2] = m == 5 ? INFINITY : NAN;
      product.operand = Operand(product.shape, product.x);
      const auto y = product.run(kernels());
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < 40; ++j) {
          EXPECT_EQ(std::isfinite(y[i * 40 + j]), i != m / 2) << i << "," << j << " of " << k;
        }
      }
    }
  }
}

// The largest sums that whole numbers have to hold: all weights and all values at their ends.
TEST_P(EveryFormat, ExtremesAreEqualBitForBitToRef) {
  if (!takes_quantized_rows(format()) || &kernels() == &ref()) return;
  for (const int m : {1, 4, 8, 20}) {
    for (const float sign : {1.0f, -1.0f}) {
      std::mt19937 rng(9);
      Product product(format(), m, 40, 512, rng);
      std::fill(product.x.begin(), product.x.end(), 1.0f);
      std::fill(product.w_values.begin(), product.w_values.end(), 6.0f * sign);
      product.operand = Operand(product.shape, product.x);
      product.w = pack_matrix(product.shape, product.w_values.data(), product.w_bytes.data());
      const auto y = product.run(kernels()), expected = product.run(ref());
      EXPECT_EQ(y, expected) << m << " rows";
      for (const float value : y) ASSERT_NEAR(value, 6.0f * 512.0f * sign, 30.0f);
    }
  }
}

// One column whose gate is x and whose up is 1.
TEST(GatedMatmul, SiluOfExtremesIsFinite) {
  const std::vector<float> one = {1.0f, 0.0f}, other = {0.0f, 1.0f};
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) continue;
    const PackedShape shape = packed_shape(WeightFormat::kF32, 1, 2);
    base::AlignedBytes gate_bytes(shape.bytes()), up_bytes(shape.bytes());
    const PackedMatrix gate = pack_matrix(shape, one.data(), gate_bytes.data());
    const PackedMatrix up = pack_matrix(shape, other.data(), up_bytes.data());
    const std::vector<float> x = {-1e30f, 1.f, -200.f, 1.f, 0.f, 1.f, 200.f, 1.f, 1e30f, 1.f};
    std::vector<float> h(5, NAN);
    table->gated_matmul({5, {x.data(), 8}, gate, up, 0, 1, {h.data(), 4}});
    EXPECT_NEAR(h[0], 0.0f, 1e-5);
    EXPECT_NEAR(h[1], 0.0f, 1e-5);
    EXPECT_EQ(h[2], 0.0f);
    EXPECT_FLOAT_EQ(h[3], 200.0f);
    EXPECT_FLOAT_EQ(h[4], 1e30f);
  }
}

// One column whose gate is the first value of a row and whose up is the second.
TEST(GatedMatmul, TheClampKeepsNanAndExtremesFinite) {
  const std::vector<float> one = {1.0f, 0.0f}, other = {0.0f, 1.0f};
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) continue;
    const PackedShape shape = packed_shape(WeightFormat::kF32, 1, 2);
    base::AlignedBytes gate_bytes(shape.bytes()), up_bytes(shape.bytes());
    const PackedMatrix gate = pack_matrix(shape, one.data(), gate_bytes.data());
    const PackedMatrix up = pack_matrix(shape, other.data(), up_bytes.data());
    const std::vector<float> x = {1e30f, 1e30f, 1e30f, -1e30f, -1e30f, 1e30f, NAN, 1.f, 1.f, NAN};
    std::vector<float> h(5, 0.0f);
    table->gated_matmul({.m = 5,
                         .x = {x.data(), 8},
                         .gate = gate,
                         .up = up,
                         .last_panel = 1,
                         .h = {h.data(), 4},
                         .activation = {.kind = Activation::Kind::kClampedSwiglu}});
    EXPECT_NEAR(h[0], 8.0 * 7.0 / (1.0 + std::exp(-1.702 * 7.0)), 1e-4) << table->isa;
    EXPECT_NEAR(h[1], -6.0 * 7.0 / (1.0 + std::exp(-1.702 * 7.0)), 1e-4) << table->isa;
    EXPECT_NEAR(h[2], 0.0, 1e-5) << table->isa;
    EXPECT_TRUE(std::isnan(h[3]) && std::isnan(h[4])) << table->isa;
  }
}

// Far from zero the function is its argument or 0, without overflow; close to it, half of it.
TEST(Gelu, FarFromZeroAndCloseToIt) {
  const std::vector<float> one = {1.0f, 0.0f}, other = {0.0f, 1.0f};
  std::vector<std::vector<float>> found;  // by every kernel that has vectors
  for (const Kernels* table : all_kernels()) {
    if (!table->supported()) continue;
    const PackedShape shape = packed_shape(WeightFormat::kF32, 1, 2);
    base::AlignedBytes gate_bytes(shape.bytes()), up_bytes(shape.bytes());
    const PackedMatrix gate = pack_matrix(shape, one.data(), gate_bytes.data());
    const PackedMatrix up = pack_matrix(shape, other.data(), up_bytes.data());
    std::vector<float> x;
    for (const float value : {1e30f, -1e30f, 30.0f, -30.0f, 1e-20f, -1e-6f, 0.0f, NAN}) {
      x.insert(x.end(), {value, 2.0f});
    }
    for (int i = -400; i <= 400; ++i) {
      x.insert(x.end(), {0.025f * static_cast<float>(i) + 0.001f, 1.0f});
    }
    const int rows = static_cast<int>(x.size() / 2);
    std::vector<float> h(x.size() / 2, 0.0f);
    table->gated_matmul({.m = rows,
                         .x = {x.data(), 8},
                         .gate = gate,
                         .up = up,
                         .last_panel = 1,
                         .h = {h.data(), 4},
                         .activation = {.kind = Activation::Kind::kGeluTanh}});
    EXPECT_FLOAT_EQ(h[0], 2e30f) << table->isa;
    EXPECT_NEAR(h[1], 0.0, 1e-6) << table->isa;
    EXPECT_FLOAT_EQ(h[2], 60.0f) << table->isa;
    EXPECT_NEAR(h[3], 0.0, 1e-30) << table->isa;
    EXPECT_FLOAT_EQ(h[4], 1e-20f) << table->isa;
    EXPECT_NEAR(h[5], -1e-6, 1e-11) << table->isa;
    EXPECT_EQ(h[6], 0.0f) << table->isa;
    EXPECT_TRUE(std::isnan(h[7])) << table->isa;
    for (int i = 8; i < rows; ++i) {
      const double expected = gelu_tanh(x[static_cast<size_t>(i) * 2]);
      ASSERT_NEAR(h[static_cast<size_t>(i)], expected, 1e-6 * std::abs(expected) + 2e-7)
          << table->isa << ": gelu of " << x[static_cast<size_t>(i) * 2];
    }
    if (table != all_kernels().back()) found.push_back(h);  // the last is "ref"
  }
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_EQ(std::memcmp(found[0].data(), found[i].data(), found[0].size() * sizeof(float)), 0);
  }
}

// What int8 costs in accuracy: rounding to 1/254 of each group's largest value, on both sides.
TEST(Int8, ProductsAreCloseToTheFloatOnes) {
  std::mt19937 rng(6);
  const Product product(WeightFormat::kInt8, 4, 40, 1024, rng);
  const auto best = select_kernels(nullptr);
  ASSERT_TRUE(best.ok());
  const auto y = product.run(**best);
  for (int i = 0; i < product.m; ++i) {
    for (int j = 0; j < product.shape.n; ++j) {
      double exact = 0.0;
      for (int k = 0; k < 1024; ++k)
        exact += double(product.x[i * 1024 + k]) * product.w_values[j * 1024 + k];
      EXPECT_NEAR(y[i * product.shape.n + j], 0.5 * exact, 0.5 * 5 * 0.02 * std::sqrt(1024.0));
    }
  }
}

TEST(MatmulChoice, BlocksOfTwoPanelsFitTheFirstLevelCache) {
  const PackedShape bf16 = packed_shape(WeightFormat::kBf16, 1024, 7168);
  EXPECT_EQ(choose_matmul(bf16, 14, 2).to_string(),
            "tiles of 14 × 32 columns, 96 rows and 128 of k at a time");
  EXPECT_EQ(choose_matmul(packed_shape(WeightFormat::kBf16, 64, 99), 14, 2).block_k, 100);
  EXPECT_EQ(choose_matmul(packed_shape(WeightFormat::kF32, 64, 999), 14, 2).block_k, 64);
  EXPECT_EQ(choose_matmul(packed_shape(WeightFormat::kInt4, 64, 999), 14, 2).block_k, 64);
}

}  // namespace
}  // namespace wideep::kernels
