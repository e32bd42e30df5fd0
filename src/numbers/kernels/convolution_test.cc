// SPDX-License-Identifier: Apache-2.0
//
// Causal convolution: against its formula, the bits of ref, and however tokens are cut into calls.
#include "kernels/convolution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace wideep::kernels {
namespace {

std::vector<float> random_floats(size_t count, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

struct Case {
  int num_tokens, num_channels, width;
  bool silu;
  size_t stride;
  std::vector<float> x, weight, bias, first_state;

  Case(int tokens, int channels, int taps, bool with_silu, std::mt19937& rng)
      : num_tokens(tokens),
        num_channels(channels),
        width(taps),
        silu(with_silu),
        stride(static_cast<size_t>(channels) + 5),
        x(random_floats(tokens * stride, rng)),
        weight(random_floats(static_cast<size_t>(taps) * channels, rng)),
        bias(random_floats(channels, rng)),
        first_state(random_floats(static_cast<size_t>(taps - 1) * channels, rng)) {}
  ConvolutionArgs args(int begin, int end, float* state, float* out) const {
    return {.num_tokens = end - begin,
            .num_channels = num_channels,
            .width = width,
            .x = x.data() + begin * stride,
            .x_stride = stride,
            .weight = weight.data(),
            .bias = bias.data(),
            .silu = silu,
            .state = state,
            .out = out + begin * stride,
            .out_stride = stride};
  }
  struct Result {
    std::vector<float> state, out;
    bool operator==(const Result&) const = default;
  };
  Result start() const { return {first_state, std::vector<float>(x.size(), 0.0f)}; }
  Result run(const Kernels& kernels) const {
    Result result = start();
    kernels.convolve(args(0, num_tokens, result.state.data(), result.out.data()));
    return result;
  }
};

class Convolution : public testing::TestWithParam<const Kernels*> {
 protected:
  void SetUp() override {
    if (!GetParam()->supported()) GTEST_SKIP() << "this processor cannot run " << GetParam()->isa;
  }
  const Kernels& kernels() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Kernels, Convolution, testing::ValuesIn(all_kernels()),
                         [](const auto& test) { return std::string(test.param->isa); });

TEST_P(Convolution, IsItsFormula) {
  std::mt19937 rng(1);
  for (int width = kMinConvolutionWidth; width <= kMaxConvolutionWidth; ++width) {
    for (const bool silu : {false, true}) {
      const Case random(11, 21, width, silu, rng);
      const Case::Result result = random.run(kernels());
      const auto input = [&](int t, int c) {
        return t >= 0 ? random.x[t * random.stride + c]
                      : random.first_state[(width - 1 + t) * 21 + c];
      };
      for (int c = 0; c < 21; ++c) {
        for (int t = 0; t < 11; ++t) {
          double sum = random.bias[c];
          for (int j = 0; j < width; ++j) {
            sum += double{random.weight[j * 21 + c]} * input(t - width + 1 + j, c);
          }
          if (silu) sum /= 1.0 + std::exp(-sum);
          ASSERT_NEAR(result.out[t * random.stride + c], sum, 1e-5) << width << " " << t;
        }
        for (int j = 0; j + 1 < width; ++j) {
          ASSERT_EQ(result.state[j * 21 + c], input(11 - width + 1 + j, c)) << width << " " << j;
        }
      }
    }
  }
}

TEST_P(Convolution, WithoutSiluIsEqualBitForBitToRef) {
  std::mt19937 rng(2);
  for (int round = 0; round < 40; ++round) {
    Case random(1 + static_cast<int>(rng() % 12), 1 + static_cast<int>(rng() % 600),
                2 + static_cast<int>(rng() % 7), false, rng);
    EXPECT_TRUE(random.run(kernels()) == random.run(*all_kernels().back()))
        << random.num_tokens << " tokens, " << random.num_channels << " channels";
  }
}

TEST_P(Convolution, BitsDoNotDependOnHowTokensAndChannelsAreCut) {
  std::mt19937 rng(3);
  for (const int width : {3, 4, 8}) {
    const Case random(19, 300, width, true, rng);
    const Case::Result whole = random.run(kernels());
    for (int round = 0; round < 6; ++round) {
      Case::Result cut = random.start();
      for (int begin = 0; begin < 19;) {
        const int end = std::min(19, begin + (round == 0 ? 1 : 1 + static_cast<int>(rng() % 9)));
        const int channels = static_cast<int>(rng() % 301);
        for (const auto& [first, last] : {std::pair{0, channels}, {channels, 300}}) {
          ConvolutionArgs args = random.args(begin, end, cut.state.data(), cut.out.data());
          args.num_channels = last - first;
          args.x += first;
          args.weight += first;
          args.bias += first;
          args.state += first;
          args.out += first;
          args.weight_stride = args.state_stride = 300;
          kernels().convolve(args);
        }
        begin = end;
      }
      EXPECT_TRUE(cut == whole) << "width " << width << " round " << round;
    }
  }
}

TEST_P(Convolution, WorksInPlaceAndWithoutBias) {
  std::mt19937 rng(4);
  Case random(9, 40, 4, true, rng);
  Case::Result apart = random.start(), in_place{random.first_state, random.x};
  ConvolutionArgs args = random.args(0, 9, apart.state.data(), apart.out.data());
  args.bias = nullptr;
  kernels().convolve(args);
  args.state = in_place.state.data();
  args.x = args.out = in_place.out.data();
  kernels().convolve(args);
  for (int t = 0; t < 9; ++t) {
    for (int c = 0; c < 40; ++c) {
      const size_t at = t * random.stride + c;
      ASSERT_EQ(in_place.out[at], apart.out[at]);
    }
  }
  std::fill(random.bias.begin(), random.bias.end(), 0.0f);
  EXPECT_TRUE(random.run(kernels()) == apart);
}

}  // namespace
}  // namespace wideep::kernels
