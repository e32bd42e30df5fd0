// SPDX-License-Identifier: Apache-2.0
//
// Mamba-2's recurrence: against its formulas in double precision, the same bits on all instruction
// sets, and however tokens are cut into calls.
#include "kernels/state_space.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace wideep::kernels {
namespace {

// Rows lie apart from each other, with NaN between them.
struct Rows {
  size_t stride;
  std::vector<float> values;

  Rows(int count, int dim, std::mt19937& rng)
      : stride(static_cast<size_t>(dim) + 3), values(static_cast<size_t>(count) * stride, NAN) {
    std::normal_distribution<float> normal;
    for (int t = 0; t < count; ++t) {
      for (int i = 0; i < dim; ++i) values[t * stride + i] = normal(rng);
    }
  }
  const float* at(int t) const { return values.data() + t * stride; }
};

struct Case {
  int num_tokens, state_dim, head_dim;
  Rows x, b, c, decay, step;
  std::vector<float> first_state;

  Case(int tokens, int rows, int columns, std::mt19937& rng)
      : num_tokens(tokens),
        state_dim(rows),
        head_dim(columns),
        x(tokens, columns, rng),
        b(tokens, rows, rng),
        c(tokens, rows, rng),
        decay(tokens, 1, rng),
        step(tokens, 1, rng),
        first_state(Rows(1, rows * columns, rng).values) {
    for (float& value : decay.values) value = 1.0f / (1.0f + std::exp(-value - 1.0f));
    for (float& value : step.values) value = std::log1p(std::exp(value));
    first_state.resize(static_cast<size_t>(rows) * columns);
  }
  // Runs tokens [begin, end).
  void run(const Kernels& kernels, int begin, int end, float* state, float* out) const {
    kernels.state_space({.num_tokens = end - begin,
                         .state_dim = state_dim,
                         .head_dim = head_dim,
                         .state = state,
                         .x = x.at(begin),
                         .x_stride = x.stride,
                         .b = b.at(begin),
                         .b_stride = b.stride,
                         .c = c.at(begin),
                         .c_stride = c.stride,
                         .decay = decay.at(begin),
                         .decay_stride = decay.stride,
                         .step = step.at(begin),
                         .step_stride = step.stride,
                         .skip = 0.7f,
                         .out = out + static_cast<size_t>(begin) * head_dim,
                         .out_stride = static_cast<size_t>(head_dim)});
  }
  struct Result {
    std::vector<float> state, out;
    bool operator==(const Result&) const = default;
  };
  Result run(const Kernels& kernels) const {
    Result result{first_state, std::vector<float>(static_cast<size_t>(num_tokens) * head_dim, NAN)};
    run(kernels, 0, num_tokens, result.state.data(), result.out.data());
    return result;
  }
};

class StateSpace : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported()) GTEST_SKIP() << "this processor cannot run " << GetParam()->isa;
  }
  const Kernels& kernels() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Kernels, StateSpace, testing::ValuesIn(all_kernels()),
                         [](const auto& test) { return std::string(test.param->isa); });

TEST_P(StateSpace, IsItsFormulas) {
  std::mt19937 rng(1);
  const Case random(9, 22, 37, rng);
  const Case::Result result = random.run(kernels());
  std::vector<double> state(random.first_state.begin(), random.first_state.end());
  for (int t = 0; t < 9; ++t) {
    for (int j = 0; j < 37; ++j) {
      double out = 0.7f * random.x.at(t)[j];
      for (int i = 0; i < 22; ++i) {
        double& element = state[i * 37 + j];
        element = element * random.decay.at(t)[0] +
                  double{random.b.at(t)[i]} * random.step.at(t)[0] * random.x.at(t)[j];
        out += element * random.c.at(t)[i];
      }
      ASSERT_NEAR(result.out[t * 37 + j], out, 5e-5) << t << "," << j;
    }
  }
  for (size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(result.state[i], state[i], 1e-5) << i;
}

TEST_P(StateSpace, IsEqualBitForBitToRef) {
  std::mt19937 rng(2);
  for (int round = 0; round < 30; ++round) {
    const Case random(1 + static_cast<int>(rng() % 20), 1 + static_cast<int>(rng() % 140),
                      1 + static_cast<int>(rng() % 140), rng);
    EXPECT_TRUE(random.run(kernels()) == random.run(*all_kernels().back()))
        << random.num_tokens << " tokens, " << random.state_dim << " × " << random.head_dim;
  }
}

TEST_P(StateSpace, BitsDoNotDependOnHowTokensAreCut) {
  std::mt19937 rng(3);
  const Case random(17, 64, 72, rng);
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

}  // namespace
}  // namespace wideep::kernels
