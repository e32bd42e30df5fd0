// SPDX-License-Identifier: Apache-2.0
#include "measure/model_work.h"

#include "model/kv_layout.h"
#include "run/memory_plan.h"

namespace wideep::measure {
namespace {

using model::ModelConfig;

int64_t expert_elements(const ModelConfig& config) {
  return int64_t{3} * config.hidden_size * config.moe_intermediate_size;
}

// Weights of one layer's attention projections: q, k, v and output; for MLA the low-rank pairs.
int64_t attention_elements(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size, heads = config.num_heads;
  if (!config.is_mla()) {
    return hidden * config.head_dim * (2 * heads + 2 * int64_t{config.num_kv_heads});
  }
  const int64_t q_width = heads * config.head_dim;
  const int64_t q =
      config.q_lora_rank == 0 ? hidden * q_width : config.q_lora_rank * (hidden + q_width);
  const int64_t kv_a = hidden * (config.kv_lora_rank + config.qk_rope_head_dim);
  const int64_t kv_b =
      config.kv_lora_rank * heads * (int64_t{config.qk_nope_head_dim} + config.v_head_dim);
  return q + kv_a + kv_b + heads * config.v_head_dim * hidden;
}

// Multiply-adds of one layer for one attended position: a score is a product of head_dim elements,
// its value a sum of value_dim.
int64_t attended_elements(const ModelConfig& config) {
  const int64_t value_dim = config.is_mla() ? config.v_head_dim : config.head_dim;
  return config.num_heads * (config.head_dim + value_dim);
}

int64_t dense_elements(const ModelConfig& config) {
  return int64_t{3} * config.hidden_size * config.dense_intermediate_size;
}

int64_t shared_elements(const ModelConfig& config) {
  return config.num_shared_experts * expert_elements(config);
}

int64_t router_elements(const ModelConfig& config) {
  return int64_t{config.hidden_size} * config.routing.num_experts;
}

// Weights that one token is multiplied with in the feed-forward part of a layer.
int64_t feed_forward_elements(const ModelConfig& config, int layer) {
  if (!config.is_moe_layer[layer]) return dense_elements(config);
  return router_elements(config) + shared_elements(config) +
         config.routing.top_k * expert_elements(config);
}

double operations_of(const ModelConfig& config, const StepShape& shape) {
  double multiply_adds = 0.0;
  const auto add = [&](int64_t rows, int64_t elements) {
    multiply_adds += static_cast<double>(rows) * static_cast<double>(elements);
  };
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const bool is_last = layer + 1 == config.num_layers;
    add(shape.num_tokens, attention_elements(config));
    add(shape.attended, attended_elements(config));
    add(is_last ? shape.num_logit_rows : shape.num_tokens, feed_forward_elements(config, layer));
  }
  add(shape.num_logit_rows, int64_t{config.vocab_size} * config.hidden_size);
  return 2.0 * multiply_adds;
}

}  // namespace

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
      config, run::dispatch_shape(config, 1, 1, 1, format), format, precision.cache);
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
    const int64_t used = attention_elements(config) + feed_forward_elements(config, layer);
    const int64_t idle_experts =
        config.is_moe_layer[layer] ? config.routing.num_experts - config.routing.top_k : 0;
    count.active += used;
    count.all += used + idle_experts * expert_elements(config);
  }
  return count;
}

}  // namespace wideep::measure
