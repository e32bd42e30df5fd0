// SPDX-License-Identifier: Apache-2.0
#include "weights/random_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "weights/checkpoint.h"

namespace wideep::weights {
namespace {

std::vector<float> values(const RandomTensors& tensors, const std::string& name,
                          const std::vector<int64_t>& shape) {
  const auto entry = tensors.tensor(name, shape);
  EXPECT_TRUE(entry.ok());
  EXPECT_EQ((*entry)->shape, shape);
  std::vector<float> result((*entry)->num_elements());
  to_float32(**entry, result.data());
  return result;
}

struct Moments {
  double mean = 0.0, deviation = 0.0;
};

Moments moments(const std::vector<float>& values) {
  double sum = 0.0, squares = 0.0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double mean = sum / static_cast<double>(values.size());
  return {mean, std::sqrt(squares / static_cast<double>(values.size()) - mean * mean)};
}

TEST(RandomTensors, ValuesDependOnSeedNameAndShape) {
  const RandomTensors one(1), other(1), another(2);
  const auto a = values(one, "model.layers.0.mlp.experts.0.up_proj.weight", {24, 16});
  // The values stay the same after a larger tensor of the same scale.
  values(other, "lm_head.weight", {100'000, 16});
  EXPECT_EQ(values(other, "model.layers.0.mlp.experts.0.up_proj.weight", {24, 16}), a);
  EXPECT_NE(values(one, "model.layers.0.mlp.experts.1.up_proj.weight", {24, 16}), a);
  EXPECT_NE(values(another, "model.layers.0.mlp.experts.0.up_proj.weight", {24, 16}), a);
}

TEST(RandomTensors, EarlierTensorsStayValid) {
  const RandomTensors tensors(1);
  const auto entry = tensors.tensor("small", {8, 16});
  const std::vector<std::byte> before((*entry)->bytes.begin(), (*entry)->bytes.end());
  ASSERT_TRUE(tensors.tensor("large", {100'000, 16}).ok());
  EXPECT_EQ(std::memcmp(before.data(), (*entry)->bytes.data(), before.size()), 0);
}

TEST(RandomTensors, ScaleDependsOnTheKindOfTensor) {
  const RandomTensors tensors(7);
  const auto expect = [&](const std::string& name, const std::vector<int64_t>& shape, double mean,
                          double deviation) {
    const Moments found = moments(values(tensors, name, shape));
    EXPECT_NEAR(found.mean, mean, deviation / 20) << name;
    EXPECT_NEAR(found.deviation, deviation, deviation / 20) << name;
  };
  expect("model.layers.0.self_attn.q_proj.weight", {512, 256}, 0.0, 1.0 / 16);
  expect("model.layers.0.mlp.gate.weight", {512, 256}, 0.0, 2.0 / 16);
  expect("model.embed_tokens.weight", {512, 256}, 0.0, 1.0);
  expect("model.norm.weight", {8192}, 1.0, 0.1);
  expect("model.layers.0.mlp.gate.e_score_correction_bias", {8192}, 0.2, 0.05);
}

}  // namespace
}  // namespace wideep::weights
