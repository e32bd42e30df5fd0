// SPDX-License-Identifier: Apache-2.0
//
// The gated delta rule, with one decay and with one for each channel: against its formulas in double
// precision, the same bits on all instruction sets, and however tokens are cut into calls.
#include "kernels/delta_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/kernels.h"

namespace wideep::kernels {
namespace {

// Rows lie apart from each other, with NaN between them.
struct Rows {
  size_t stride;
  std::vector<float> values;

  Rows(int count, int dim, float scale, std::mt19937& rng)
      : stride(static_cast<size_t>(dim) + 3), values(static_cast<size_t>(count) * stride, NAN) {
    std::normal_distribution<float> normal(0.0f, scale);
    for (int t = 0; t < count; ++t) {
      for (int i = 0; i < dim; ++i) values[t * stride + i] = normal(rng);
    }
  }
  const float* at(int t) const { return values.data() + t * stride; }
};

struct Case {
  int num_tokens, key_dim, value_dim;
  bool channel_decay;
  Rows q, k, v, decay, beta;
  std::vector<float> first_state;

  Case(int tokens, int keys, int values, bool channels, std::mt19937& rng)
      : num_tokens(tokens),
        key_dim(keys),
        value_dim(values),
        channel_decay(channels),
        q(tokens, keys, 1.0f / std::sqrt(static_cast<float>(keys)), rng),
        k(tokens, keys, 1.0f / std::sqrt(static_cast<float>(keys)), rng),
        v(tokens, values, 1.0f, rng),
        decay(tokens, channels ? keys : 1, 1.0f, rng),
        beta(tokens, 1, 1.0f, rng),
        first_state(Rows(1, keys * values, 1.0f, rng).values) {
    for (float& value : decay.values) value = 1.0f / (1.0f + std::exp(-value - 1.0f));
    for (float& value : beta.values) value = 1.0f / (1.0f + std::exp(-value));
    first_state.resize(static_cast<size_t>(keys) * values);
  }
  // Runs tokens [begin, end).
  void run(const Kernels& kernels, int begin, int end, float* state, float* out) const {
    kernels.delta_rule({.num_tokens = end - begin,
                        .key_dim = key_dim,
                        .value_dim = value_dim,
                        .state = state,
                        .q = q.at(begin),
                        .q_stride = q.stride,
                        .k = k.at(begin),
                        .k_stride = k.stride,
                        .v = v.at(begin),
                        .v_stride = v.stride,
                        .decay = decay.at(begin),
                        .decay_stride = decay.stride,
                        .channel_decay = channel_decay,
                        .beta = beta.at(begin),
                        .beta_stride = beta.stride,
                        .out = out + static_cast<size_t>(begin) * value_dim,
                        .out_stride = static_cast<size_t>(value_dim)});
  }
  struct Result {
    std::vector<float> state, out;
    bool operator==(const Result&) const = default;
  };
  Result run(const Kernels& kernels) const {
    Result result{first_state, std::vector<float>(static_cast<size_t>(num_tokens) * value_dim)};
    run(kernels, 0, num_tokens, result.state.data(), result.out.data());
    return result;
  }
};

class DeltaRule : public testing::TestWithParam<std::tuple<const Kernels*, bool>> {
 protected:
  void SetUp() override {
    if (!kernels().supported()) GTEST_SKIP() << "this processor cannot run " << kernels().isa;
  }
  const Kernels& kernels() const { return *std::get<0>(GetParam()); }
  bool channel_decay() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Kernels, DeltaRule,
                         testing::Combine(testing::ValuesIn(all_kernels()), testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)->isa) +
                                  (std::get<1>(test.param) ? "Channels" : "");
                         });

TEST_P(DeltaRule, IsItsFormulas) {
  std::mt19937 rng(1);
  const Case random(9, 20, 37, channel_decay(), rng);
  const Case::Result result = random.run(kernels());
  std::vector<double> state(random.first_state.begin(), random.first_state.end());
  for (int t = 0; t < 9; ++t) {
    for (int j = 0; j < 37; ++j) {
      double remembered = 0.0, out = 0.0;
      for (int i = 0; i < 20; ++i) {
        state[i * 37 + j] *= random.decay.at(t)[channel_decay() ? i : 0];
        remembered += state[i * 37 + j] * random.k.at(t)[i];
      }
      const double u = random.beta.at(t)[0] * (random.v.at(t)[j] - remembered);
      for (int i = 0; i < 20; ++i) {
        state[i * 37 + j] += random.k.at(t)[i] * u;
        out += state[i * 37 + j] * random.q.at(t)[i];
      }
      ASSERT_NEAR(result.out[t * 37 + j], out, 1e-5) << t << "," << j;
    }
  }
  for (size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(result.state[i], state[i], 1e-5) << i;
}

TEST_P(DeltaRule, IsEqualBitForBitToRef) {
  std::mt19937 rng(2);
  for (int round = 0; round < 30; ++round) {
    // Some have more rows than the kernels have buffers for.
    const int fewest_rows = round % 5 == 4 ? 250 : 1;
    const Case random(1 + static_cast<int>(rng() % 20), fewest_rows + static_cast<int>(rng() % 140),
                      1 + static_cast<int>(rng() % 140), channel_decay(), rng);
    EXPECT_TRUE(random.run(kernels()) == random.run(*all_kernels().back()))
        << random.num_tokens << " tokens, " << random.key_dim << " × " << random.value_dim;
  }
}

TEST_P(DeltaRule, BitsDoNotDependOnHowTokensAreCut) {
  std::mt19937 rng(3);
  const Case random(17, 64, 72, channel_decay(), rng);
  const Case::Result whole = random.run(kernels());
  for (int round = 0; round < 10; ++round) {
    Case::Result cut{random.first_state, std::vector<float>(whole.out.size())};
    for (int begin = 0; begin < 17;) {
      const int end = std::min(17, begin + (round == 0 ? 1 : 1 + static_cast<int>(rng() % 8)));
      random.run(kernels(), begin, end, cut.state.data(), cut.out.data());
      begin = end;
    }
    EXPECT_TRUE(cut == whole) << "round " << round;
  }
}

// A token that is stored is recalled: with S = 0 and beta 1, out = v · (k · q).
TEST_P(DeltaRule, RecallsWhatItStored) {
  const std::vector<float> key = {0.6f, 0.8f}, value = {3.0f, -5.0f, 7.0f};
  const std::vector<float> ones(2, 1.0f);
  std::vector<float> state(6, 0.0f), out(3);
  kernels().delta_rule({.num_tokens = 1,
                        .key_dim = 2,
                        .value_dim = 3,
                        .state = state.data(),
                        .q = key.data(),
                        .k = key.data(),
                        .v = value.data(),
                        .decay = ones.data(),
                        .channel_decay = channel_decay(),
                        .beta = ones.data(),
                        .out = out.data()});
  for (int j = 0; j < 3; ++j) EXPECT_NEAR(out[j], value[j], 1e-6);
}

}  // namespace
}  // namespace wideep::kernels
