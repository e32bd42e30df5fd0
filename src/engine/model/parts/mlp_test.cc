// SPDX-License-Identifier: Apache-2.0
//
// MLPs without a gate, max(up(x), 0)² before down: in every weight format and on every instruction
// set, against the formula in float64. Taken for a gated one, such an MLP puts out other numbers of
// the usual size, which no other test of a model's parts would notice. (Gated ones: moe_test.cc and
// the golden models.)
#include "model/parts/mlp.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/kernels.h"
#include "weights/random_tensors.h"

namespace wideep::model {
namespace {

using kernels::WeightFormat;

constexpr int kHidden = 96, kWidth = 80, kRows = 7;
constexpr kernels::Activation kSquared = {.kind = kernels::Activation::Kind::kSquaredRelu};

// The values of a random tensor, which are kept in bf16.
std::vector<double> values_of(const weights::TensorSource& tensors, const std::string& name,
                              const std::vector<int64_t>& shape) {
  const tensor_files::TensorEntry* entry = tensors.tensor(name, shape).value();
  const auto* stored = reinterpret_cast<const Bf16*>(entry->bytes.data());
  std::vector<double> values;
  for (int64_t i = 0; i < entry->num_elements(); ++i) {
    values.push_back(static_cast<double>(static_cast<float>(stored[i])));
  }
  return values;
}

// x · wᵀ + bias
std::vector<double> product(const std::vector<double>& x, const std::vector<double>& w, int k,
                            const std::vector<double>& bias) {
  const int n = static_cast<int>(w.size()) / k;
  std::vector<double> y;
  for (size_t row = 0; row < x.size() / static_cast<size_t>(k); ++row) {
    for (int i = 0; i < n; ++i) {
      double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(i)];
      for (int j = 0; j < k; ++j) {
        sum += x[row * static_cast<size_t>(k) + static_cast<size_t>(j)] *
               w[static_cast<size_t>(i) * static_cast<size_t>(k) + static_cast<size_t>(j)];
      }
      y.push_back(sum);
    }
  }
  return y;
}

std::vector<float> random_rows() {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(kRows) * kHidden);
  for (float& each : x) each = static_cast<float>(Bf16(normal(rng)));
  return x;
}

std::vector<double> formula(const weights::TensorSource& tensors, const std::vector<float>& x,
                            bool biased) {
  const auto bias = [&](const char* name, int size) {
    return biased ? values_of(tensors, name, {size}) : std::vector<double>();
  };
  std::vector<double> between =
      product({x.begin(), x.end()}, values_of(tensors, "m.up_proj.weight", {kWidth, kHidden}),
              kHidden, bias("m.up_proj.bias", kWidth));
  for (double& each : between) each = std::pow(std::max(each, 0.0), 2);
  return product(between, values_of(tensors, "m.down_proj.weight", {kHidden, kWidth}), kWidth,
                 bias("m.down_proj.bias", kHidden));
}

// The root of noise over signal.
double noise(const std::vector<float>& y, const std::vector<double>& expected) {
  double off = 0.0, all = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    off += std::pow(static_cast<double>(y[i]) - expected[i], 2);
    all += expected[i] * expected[i];
  }
  return std::sqrt(off / all);
}

struct Format {
  WeightFormat format;
  double noise;  // three products' worth at most, for squares double it
};
constexpr Format kFormats[] = {{WeightFormat::kF32, 1e-6}, {WeightFormat::kBf16, 0.01},
                               {WeightFormat::kFp8, 0.08}, {WeightFormat::kInt8, 0.03},
                               {WeightFormat::kInt4, 0.3}, {WeightFormat::kMxfp4, 0.4},
                               {WeightFormat::kNvfp4, 0.3}};

using Case = std::tuple<const kernels::Kernels*, Format>;

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const auto& [table, format] = info.param;
  return fmt::format("{}_{}", table->isa, kernels::weight_format_name(format.format));
}

class UngatedMlp : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Parts, UngatedMlp,
                         testing::Combine(testing::ValuesIn(kernels::all_kernels()),
                                          testing::ValuesIn(kFormats)),
                         case_name);

TEST_P(UngatedMlp, SquaresWhatIsPositive) {
  const auto& [table, format] = GetParam();
  if (!table->supported()) GTEST_SKIP() << "not supported by this processor";
  const weights::RandomTensors tensors(11);
  const weights::WeightLoader loader(tensors, format.format);
  base::ThreadPool pool(2);
  const Compute compute(*table, pool);
  const std::vector<float> x = random_rows();
  for (const bool biased : {false, true}) {
    const auto mlp =
        weights::load_mlp(loader, "m", kHidden, kWidth, {.biased = biased, .activation = kSquared});
    ASSERT_TRUE(mlp.ok() && loader.run().ok());
    // There is no place for a gate.
    const kernels::PackedShape up = mlp->shape.gate();
    EXPECT_EQ(mlp->shape.up_offset(), 0u);
    EXPECT_EQ(mlp->shape.down_offset(), up.bytes());
    MlpRunner runner;
    std::vector<float> y(x.size());
    runner.run(compute, mlp->view(), float_rows(x.data(), kHidden, kRows, kHidden), y.data(),
               kHidden);
    const double found = noise(y, formula(tensors, x, biased));
    EXPECT_LE(found, format.noise);
    if (format.format == WeightFormat::kF32) continue;
    EXPECT_GE(found, format.noise / 30) << "are these the format's codes?";
  }
}

}  // namespace
}  // namespace wideep::model
