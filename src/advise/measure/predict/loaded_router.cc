// SPDX-License-Identifier: Apache-2.0
#include "measure/predict/loaded_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>

#include "base/check.h"
#include "model/parts/router.h"

namespace wideep::measure {
namespace {

constexpr int kTokens = 2048;
constexpr int kRounds = 60;
// A bias step for a load that is e times what it should be, at first and at last. Among 256 experts
// a hundredth of bias changes the load of one by half.
constexpr double kFirstStep = 0.015, kLastStep = 0.002;
// Of the deviation of RandomTensors' routers: rows of the hidden state are normalised.
constexpr float kRandomLogits = 2.0f;

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

std::vector<float> bias_for_load(const model::RoutingConfig& routing,
                                 const std::vector<double>& load, float deviation) {
  WIDEEP_CHECK(routing.selection_bias);
  const auto experts = static_cast<size_t>(routing.num_experts);
  WIDEEP_CHECK_EQ(load.size(), experts);
  const double all = sum_of(load);
  WIDEEP_CHECK(all > 0.0);
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> logits(kTokens * experts);
  std::ranges::generate(logits, [&] { return normal(random); });

  std::vector<float> bias(experts, 0.0f), weights(static_cast<size_t>(routing.top_k));
  std::vector<int32_t> chosen(weights.size()), counts(experts);
  const double tokens = static_cast<double>(kTokens) * routing.top_k;
  for (int round = 0; round < kRounds; ++round) {
    std::ranges::fill(counts, 0);
    for (size_t token = 0; token < kTokens; ++token) {
      model::select_experts(routing, logits.data() + token * experts, bias.data(), chosen.data(),
                            weights.data());
      for (const int32_t expert : chosen) ++counts[static_cast<size_t>(expert)];
    }
    const double step = kFirstStep * std::pow(kLastStep / kFirstStep, round / (kRounds - 1.0));
    for (size_t e = 0; e < experts; ++e) {
      // One token more on both sides, for experts without any.
      const double ratio = (load[e] / all * tokens + 1.0) / (counts[e] + 1.0);
      bias[e] += static_cast<float>(step * std::log(ratio));
    }
  }
  return bias;
}

LoadedTensors::LoadedTensors(uint64_t seed, const model::RoutingConfig& routing,
                             const balance::ModelLoad& load)
    : random_(seed) {
  for (size_t i = 0; i < load.layers.size(); ++i) {
    Bias& bias =
        biases_[fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", load.layers[i])];
    bias.values = bias_for_load(routing, load.load[i], kRandomLogits);
    bias.entry = {.dtype = Dtype::kF32,
                  .shape = {routing.num_experts},
                  .bytes = std::as_bytes(std::span<const float>(bias.values))};
  }
}

Result<const tensor_files::TensorEntry*> LoadedTensors::tensor(
    const std::string& name, const std::vector<int64_t>& shape) const {
  const auto bias = biases_.find(name);
  if (bias == biases_.end()) return random_.tensor(name, shape);
  WIDEEP_CHECK_EQ(shape.size(), size_t{1});
  WIDEEP_CHECK_EQ(shape[0], bias->second.entry.shape[0]);
  return &bias->second.entry;
}

double load_distance(const std::vector<double>& a, const std::vector<double>& b) {
  WIDEEP_CHECK_EQ(a.size(), b.size());
  const double all_a = sum_of(a), all_b = sum_of(b);
  double distance = 0.0;
  for (size_t e = 0; e < a.size(); ++e) distance += 0.5 * std::abs(a[e] / all_a - b[e] / all_b);
  return distance;
}

}  // namespace wideep::measure
