// SPDX-License-Identifier: Apache-2.0
#include "model/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace wideep::model {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Avoids a division by zero in the renormalisation when all scores underflow.
constexpr float kTiny = 1e-20f;

// The `count` indices of the largest scores in descending order, ties to the lower index.
void top_indices(const std::vector<float>& scores, int count, int32_t* out) {
  thread_local std::vector<int32_t> order;
  order.resize(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  std::copy_n(order.begin(), count, out);
}

// In place: exp(x − max) / Σ exp(x − max).
void softmax(float* x, int n) {
  const float largest = *std::max_element(x, x + n);
  float sum = 0.0f;
  for (int i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - largest);
  for (int i = 0; i < n; ++i) x[i] /= sum;
}

// Default: p = softmax(logits); the k largest p with weights p.
void select_default(const RoutingConfig& config, std::vector<float>& scores, int32_t* experts,
                    float* weights) {
  softmax(scores.data(), config.num_experts);
  top_indices(scores, config.top_k, experts);
  for (int k = 0; k < config.top_k; ++k) weights[k] = scores[experts[k]];
}

// Renormalize: the k largest logits; weights are the softmax over these k.
void select_renormalize(const RoutingConfig& config, const std::vector<float>& logits,
                        int32_t* experts, float* weights) {
  top_indices(logits, config.top_k, experts);
  for (int k = 0; k < config.top_k; ++k) weights[k] = logits[experts[k]];
  softmax(weights, config.top_k);
}

// Sets the selection scores of all groups but the best top_k_groups to −∞, where a group's score is
// the sum of its two largest members.
void keep_best_groups(const RoutingConfig& config, std::vector<float>& selection) {
  const int size = config.num_experts / config.num_groups;
  std::vector<float> group_scores(config.num_groups);
  for (int group = 0; group < config.num_groups; ++group) {
    float first = kMinusInfinity, second = kMinusInfinity;
    for (int i = group * size; i < (group + 1) * size; ++i) {
      if (selection[i] > first) {
        second = std::exchange(first, selection[i]);
      } else if (selection[i] > second) {
        second = selection[i];
      }
    }
    group_scores[group] = size > 1 ? first + second : first;
  }
  std::vector<int32_t> kept(config.top_k_groups);
  top_indices(group_scores, config.top_k_groups, kept.data());
  for (int group = 0; group < config.num_groups; ++group) {
    if (std::find(kept.begin(), kept.end(), group) == kept.end()) {
      std::fill_n(selection.begin() + group * size, size, kMinusInfinity);
    }
  }
}

// DeepSeekV3: s = σ(logits), selected by s + bias inside the best groups;
// weights s / (Σ s + 1e-20) · scaling_factor, without the bias.
void select_deepseek_v3(const RoutingConfig& config, std::vector<float>& scores, const float* bias,
                        int32_t* experts, float* weights) {
  thread_local std::vector<float> selection;
  selection.resize(config.num_experts);
  for (int e = 0; e < config.num_experts; ++e) {
    scores[e] = 1.0f / (1.0f + std::exp(-scores[e]));
    selection[e] = scores[e] + bias[e];
  }
  if (config.num_groups > 1) keep_best_groups(config, selection);
  top_indices(selection, config.top_k, experts);
  float sum = kTiny;
  for (int k = 0; k < config.top_k; ++k) sum += weights[k] = scores[experts[k]];
  for (int k = 0; k < config.top_k; ++k) {
    if (config.normalize) weights[k] /= sum;
    weights[k] *= config.scaling_factor;
  }
}

}  // namespace

void select_experts(const RoutingConfig& config, const float* logits, const float* bias,
                    int32_t* experts, float* weights) {
  thread_local std::vector<float> scores;
  scores.assign(logits, logits + config.num_experts);
  switch (config.method) {
    case RoutingMethod::kDefault:
      return select_default(config, scores, experts, weights);
    case RoutingMethod::kRenormalize:
      return select_renormalize(config, scores, experts, weights);
    case RoutingMethod::kDeepseekV3:
      return select_deepseek_v3(config, scores, bias, experts, weights);
  }
}

}  // namespace wideep::model
