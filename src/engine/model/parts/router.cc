// SPDX-License-Identifier: Apache-2.0
//
// Each method is a score for the choice and a weight, which often differ: a bias corrects the
// choice but not the weight. Formulas are at the functions. Scores stay float32 and sums go over
// experts in order, as in the models' own code; partial_sort with the id as the second key makes
// equal scores equal choices.
#include "model/parts/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace wideep::model {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

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

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// The weights are the scores of the chosen experts, divided by their sum if the config normalises,
// and multiplied by its factor. The epsilon avoids a division by zero when all scores underflow.
void weigh(const RoutingConfig& config, const std::vector<float>& scores, const int32_t* experts,
           float* weights) {
  float sum = config.epsilon;
  for (int k = 0; k < config.top_k; ++k) sum += weights[k] = scores[experts[k]];
  for (int k = 0; k < config.top_k; ++k) {
    if (config.normalize) weights[k] /= sum;
    weights[k] *= config.scaling_factor;
  }
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

// RenormalizeNaive: p = softmax(logits); the k largest p with weights p / Σ p, or over another norm
// of the k.
void select_renormalize_naive(const RoutingConfig& config, std::vector<float>& scores,
                              int32_t* experts, float* weights) {
  softmax(scores.data(), config.num_experts);
  top_indices(scores, config.top_k, experts);
  if (config.norm_power == 1.0f) return weigh(config, scores, experts, weights);
  float sum = 0.0f;
  for (int k = 0; k < config.top_k; ++k) sum += std::pow(scores[experts[k]], config.norm_power);
  const float norm = std::pow(sum, 1.0f / config.norm_power);
  for (int k = 0; k < config.top_k; ++k) weights[k] = scores[experts[k]] / norm;
}

// Llama4: the k largest logits; weights s = σ(logit), or s / Σ s if the config normalises. Logits
// choose, because sigmoids of large ones are all 1.
void select_llama4(const RoutingConfig& config, std::vector<float>& scores, int32_t* experts,
                   float* weights) {
  top_indices(scores, config.top_k, experts);
  std::ranges::transform(scores, scores.begin(), sigmoid);
  weigh(config, scores, experts, weights);
}

// SparseMixer (arXiv:2409.12136): the largest logit, then the largest of the others. Each weight is
// the softmax over the logits that are near to the chosen one, without those chosen before it.
void select_sparse_mixer(const RoutingConfig& config, const std::vector<float>& logits,
                         int32_t* experts, float* weights) {
  top_indices(logits, config.top_k, experts);
  for (int k = 0; k < config.top_k; ++k) {
    const float largest = logits[experts[k]];
    float sum = 0.0f;
    for (int e = 0; e < config.num_experts; ++e) {
      if (std::find(experts, experts + k, e) != experts + k) continue;
      const float factor = std::max(std::abs(logits[e]), largest);
      if ((largest - logits[e]) / factor > config.sparse_distance) continue;
      sum += std::exp(logits[e] - largest);
    }
    weights[k] = 1.0f / sum;
  }
}

// Ernie: p = softmax(logits), selected by p + bias; weights p / max(Σ p, epsilon), without the
// bias.
void select_ernie(const RoutingConfig& config, std::vector<float>& scores, const float* bias,
                  int32_t* experts, float* weights) {
  softmax(scores.data(), config.num_experts);
  thread_local std::vector<float> selection;
  selection = scores;
  for (int e = 0; bias != nullptr && e < config.num_experts; ++e) selection[e] += bias[e];
  top_indices(selection, config.top_k, experts);
  float sum = 0.0f;
  for (int k = 0; k < config.top_k; ++k) sum += weights[k] = scores[experts[k]];
  for (int k = 0; k < config.top_k; ++k) weights[k] /= std::max(sum, config.epsilon);
}

// Sets the selection scores of all groups but the best top_k_groups to −∞. A group's score is the
// sum of its `judges` (1 or 2) largest members.
void keep_best_groups(const RoutingConfig& config, int judges, std::vector<float>& selection) {
  const int size = config.num_experts / config.num_groups;
  thread_local std::vector<float> group_scores;
  group_scores.resize(static_cast<size_t>(config.num_groups));
  for (int group = 0; group < config.num_groups; ++group) {
    float first = kMinusInfinity, second = kMinusInfinity;
    for (int i = group * size; i < (group + 1) * size; ++i) {
      if (selection[i] > first) {
        second = std::exchange(first, selection[i]);
      } else if (selection[i] > second) {
        second = selection[i];
      }
    }
    group_scores[group] = size > 1 && judges > 1 ? first + second : first;
  }
  thread_local std::vector<int32_t> kept;
  kept.resize(static_cast<size_t>(config.top_k_groups));
  top_indices(group_scores, config.top_k_groups, kept.data());
  for (int group = 0; group < config.num_groups; ++group) {
    if (std::find(kept.begin(), kept.end(), group) == kept.end()) {
      std::fill_n(selection.begin() + group * size, size, kMinusInfinity);
    }
  }
}

// DeepSeekV2: p = softmax(logits), selected inside the groups with the largest members, or with the
// largest pairs of them; weights p · scaling_factor, divided by Σ p + epsilon if the config says so.
void select_deepseek_v2(const RoutingConfig& config, std::vector<float>& scores, int32_t* experts,
                        float* weights) {
  softmax(scores.data(), config.num_experts);
  thread_local std::vector<float> selection;
  selection = scores;
  if (config.num_groups > 1) keep_best_groups(config, config.groups_by_pairs ? 2 : 1, selection);
  top_indices(selection, config.top_k, experts);
  weigh(config, scores, experts, weights);
}

// Above 20 softplus is x in float32, as transformers has it.
float sqrt_softplus(float x) { return std::sqrt(x > 20.0f ? x : std::log1p(std::exp(x))); }

// DeepSeekV3: s = σ(logits), selected by s + bias inside the best groups, each judged by its best
// two; weights s / (Σ s + epsilon) · scaling_factor, without the bias. SigmoidRenorm and MiniMax2
// are cases of it: without and with bias, one group, no factor. DeepSeekV4: s = √softplus(logits).
void select_by_score(const RoutingConfig& config, const std::vector<float>& scores,
                     const float* bias, int32_t* experts, float* weights) {
  thread_local std::vector<float> selection;
  selection = scores;
  for (int e = 0; bias != nullptr && e < config.num_experts; ++e) selection[e] += bias[e];
  if (config.num_groups > 1) keep_best_groups(config, 2, selection);
  top_indices(selection, config.top_k, experts);
  weigh(config, scores, experts, weights);
}

}  // namespace

void select_experts(const RoutingConfig& config, const float* logits, const float* bias,
                    int32_t* experts, float* weights) {
  thread_local std::vector<float> scores;
  scores.assign(logits, logits + config.num_experts);
  if (const float cap = config.logits_cap; cap > 0.0f) {
    for (float& score : scores) score = cap * std::tanh(score / cap);
  }
  switch (config.method) {
    case RoutingMethod::kDefault:
      return select_default(config, scores, experts, weights);
    case RoutingMethod::kRenormalize:
      return select_renormalize(config, scores, experts, weights);
    case RoutingMethod::kRenormalizeNaive:
      return select_renormalize_naive(config, scores, experts, weights);
    case RoutingMethod::kLlama4:
      return select_llama4(config, scores, experts, weights);
    case RoutingMethod::kSparseMixer:
      return select_sparse_mixer(config, scores, experts, weights);
    case RoutingMethod::kErnie:
      return select_ernie(config, scores, bias, experts, weights);
    case RoutingMethod::kDeepseekV2:
      return select_deepseek_v2(config, scores, experts, weights);
    case RoutingMethod::kSigmoidRenorm:
      std::ranges::transform(scores, scores.begin(), sigmoid);
      return select_by_score(config, scores, nullptr, experts, weights);
    case RoutingMethod::kDeepseekV3:
    case RoutingMethod::kMinimax2:
      std::ranges::transform(scores, scores.begin(), sigmoid);
      return select_by_score(config, scores, bias, experts, weights);
    case RoutingMethod::kDeepseekV4:
      std::ranges::transform(scores, scores.begin(), sqrt_softplus);
      return select_by_score(config, scores, bias, experts, weights);
  }
}

void weigh_experts(const RoutingConfig& config, const float* logits, const int32_t* experts,
                   float* weights) {
  thread_local std::vector<float> scores;
  scores.resize(static_cast<size_t>(config.num_experts));
  for (int k = 0; k < config.top_k; ++k) {
    const auto expert = static_cast<size_t>(experts[k]);
    scores[expert] = sqrt_softplus(logits[expert]);
  }
  weigh(config, scores, experts, weights);
}

}  // namespace wideep::model
