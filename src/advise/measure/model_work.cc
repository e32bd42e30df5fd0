// SPDX-License-Identifier: Apache-2.0
#include "measure/model_work.h"

#include "model/kv_layout.h"
#include "model/state_layout.h"
#include "model/tensor_list.h"
#include "run/memory_plan.h"

namespace wideep::measure {
namespace {

using model::ModelConfig;
using model::TensorUse;

int64_t expert_elements(const ModelConfig& config) {
  return int64_t{3} * config.hidden_size * config.moe_intermediate_size;
}

// Weights of the layer's matrices of these uses.
template <typename... Uses>
int64_t elements_of(const ModelConfig& config, int layer, Uses... uses) {
  int64_t elements = 0;
  for (const model::ListedTensor& tensor : model::layer_tensors(config, layer)) {
    if (((tensor.use == uses) || ...)) elements += tensor.num_elements();
  }
  return elements;
}

// A score is a product of head_dim elements, its value a sum of value_dim. Windows and choices of
// positions are not counted: an upper bound.
int64_t attended_elements(const ModelConfig& config, int layer) {
  if (!config.is_cached(layer)) return 0;
  return int64_t{config.num_heads} * (config.head_dim + config.value_dim());
}

int64_t state_elements(const ModelConfig& config, int layer) {
  constexpr int64_t kPerElement = 3;  // the delta rule: Sᵀ k, the update, Sᵀ q
  return config.is_cached(layer)
             ? 0
             : kPerElement *
                   static_cast<int64_t>(model::state_bytes(config, layer) / sizeof(float));
}

// Weights that one token is multiplied with in the feed-forward part of a layer.
int64_t feed_forward_elements(const ModelConfig& config, const LayerElements& layer) {
  return layer.router + layer.mlp + config.routing.top_k * layer.expert;
}

double operations_of(const ModelConfig& config, const StepShape& shape) {
  double multiply_adds = 0.0;
  const auto add = [&](int64_t rows, int64_t elements) {
    multiply_adds += static_cast<double>(rows) * static_cast<double>(elements);
  };
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const bool is_last = layer + 1 == config.num_layers;
    const LayerElements elements = elements_of_layer(config, layer);
    add(shape.num_tokens, elements.mixer + elements.state);
    add(shape.attended, elements.attended);
    add(is_last ? shape.num_logit_rows : shape.num_tokens, feed_forward_elements(config, elements));
  }
  add(shape.num_logit_rows, int64_t{config.vocab_size} * config.hidden_size);
  return 2.0 * multiply_adds;
}

}  // namespace

LayerElements elements_of_layer(const ModelConfig& config, int layer) {
  return {
      .mixer = elements_of(config, layer, TensorUse::kInput, TensorUse::kGates, TensorUse::kQueryB,
                           TensorUse::kLatent, TensorUse::kIndexQuery, TensorUse::kIndexKey,
                           TensorUse::kOutput),
      .state = state_elements(config, layer),
      .attended = attended_elements(config, layer),
      .router = elements_of(config, layer, TensorUse::kFloat),
      .mlp = elements_of(config, layer, TensorUse::kMlp),
      .expert = config.is_moe(layer) ? expert_elements(config) : 0,
  };
}

StepShape& StepShape::operator+=(const StepShape& other) {
  num_tokens += other.num_tokens;
  num_logit_rows += other.num_logit_rows;
  attended += other.attended;
  cached += other.cached;
  experts_hit += other.experts_hit;
  return *this;
}

StepShape prompt_step(int64_t count, int64_t length, int64_t experts_hit) {
  return {.num_tokens = count * length,
          .num_logit_rows = count,
          .attended = count * length * (length + 1) / 2,
          .experts_hit = experts_hit};
}

StepShape decode_step(int64_t count, int64_t cached, int64_t experts_hit) {
  return {.num_tokens = count,
          .num_logit_rows = count,
          .attended = count * (cached + 1),
          .cached = count * cached,
          .experts_hit = experts_hit};
}

Work work_of(const ModelConfig& config, const Precision& precision, const StepShape& shape,
             int64_t num_steps) {
  const kernels::WeightFormat format = precision.weights;
  // Bytes in packed form come from the engine's own memory plan. With one rank and one slot per
  // layer, its slots hold exactly one expert of every MoE layer.
  const run::MemoryPlan plan = run::plan_memory(
      config, run::dispatch_shape(config, 1, 1, 1, format),
      precision.forms ? *precision.forms : model::uniform_forms(config, format), precision.cache);
  const double row =
      static_cast<double>(config.hidden_size) * dtype_bytes(kernels::row_dtype(format));
  const double dense = static_cast<double>(plan.dense_weights) - row * config.vocab_size;
  const double expert = config.num_moe_layers() == 0
                            ? 0.0
                            : static_cast<double>(plan.slots_per_rank) / config.num_moe_layers();
  const double position = static_cast<double>(plan.kv_page_bytes) / kernels::kPageTokens;
  return {.operations = operations_of(config, shape),
          .bytes = static_cast<double>(num_steps) * dense +
                   row * static_cast<double>(shape.num_tokens) +
                   expert * static_cast<double>(shape.experts_hit) +
                   position * static_cast<double>(shape.cached)};
}

ParameterCount count_parameters(const ModelConfig& config) {
  const int64_t embedding = int64_t{config.vocab_size} * config.hidden_size;
  ParameterCount count{
      .all = config.tie_word_embeddings ? embedding : 2 * embedding,
      .active = embedding};  // the LM head; the one row of the embedding is negligible
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const LayerElements elements = elements_of_layer(config, layer);
    const int64_t used = elements.mixer + feed_forward_elements(config, elements);
    const int64_t idle_experts = config.routing.num_experts - config.routing.top_k;
    count.active += used;
    count.all += used + idle_experts * elements.expert;
  }
  return count;
}

}  // namespace wideep::measure
