// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_plan.h"

#include <algorithm>

#include "kernels/packed_matrix.h"
#include "model/kv_layout.h"
#include "weights/expert_record.h"

namespace wideep::engine {
namespace {

using kernels::packed_bytes;
using model::ModelConfig;

uint64_t floats(uint64_t count) { return count * sizeof(float); }

uint64_t gated_mlp_bytes(Dtype dtype, int hidden, int intermediate) {
  return weights::ExpertShape{dtype, hidden, intermediate}.record_bytes();
}

int shared_intermediate(const ModelConfig& config) {
  return config.num_shared_experts * config.moe_intermediate_size;
}

// ---- weights, by the names of the checkpoint's tensors ----

uint64_t grouped_query_weights(const ModelConfig& config, Dtype dtype) {
  const int hidden = config.hidden_size, dim = config.head_dim;
  const int q_width = config.num_heads * dim, kv_width = config.num_kv_heads * dim;
  return packed_bytes(dtype, q_width, hidden) + 2 * packed_bytes(dtype, kv_width, hidden) +
         packed_bytes(dtype, hidden, q_width) + floats(2 * uint64_t(dim));  // q_norm, k_norm
}

uint64_t latent_weights(const ModelConfig& config, Dtype dtype) {
  const int hidden = config.hidden_size, heads = config.num_heads;
  const int q_rank = config.q_lora_rank, kv_rank = config.kv_lora_rank;
  const int q_width = heads * config.head_dim;
  const uint64_t q = q_rank == 0 ? packed_bytes(dtype, q_width, hidden)
                                 : packed_bytes(dtype, q_rank, hidden) +
                                       floats(static_cast<uint64_t>(q_rank)) +
                                       packed_bytes(dtype, q_width, q_rank);
  const uint64_t kv_a = packed_bytes(dtype, kv_rank + config.qk_rope_head_dim, hidden) +
                        floats(static_cast<uint64_t>(kv_rank));
  // kv_b, taken apart: into the latent space and out of it, per head.
  const uint64_t kv_b =
      static_cast<uint64_t>(heads) * (packed_bytes(dtype, kv_rank, config.qk_nope_head_dim) +
                                      packed_bytes(dtype, config.v_head_dim, kv_rank));
  return q + kv_a + kv_b + packed_bytes(dtype, hidden, heads * config.v_head_dim);
}

// Router (always float32) and shared expert.
uint64_t moe_weights(const ModelConfig& config, Dtype dtype) {
  const int num_experts = config.routing.num_experts;
  uint64_t bytes = packed_bytes(Dtype::kF32, num_experts, config.hidden_size);
  if (config.routing.method == model::RoutingMethod::kDeepseekV3) bytes += floats(num_experts);
  if (config.num_shared_experts > 0) {
    bytes += gated_mlp_bytes(dtype, config.hidden_size, shared_intermediate(config));
  }
  return bytes;
}

uint64_t dense_weights(const ModelConfig& config, Dtype dtype) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t num_layers = config.num_layers, num_moe = config.num_moe_layers();
  const uint64_t embedding = hidden * config.vocab_size * dtype_bytes(dtype);
  const uint64_t lm_head = packed_bytes(dtype, config.vocab_size, config.hidden_size);
  const uint64_t attention =
      config.is_mla() ? latent_weights(config, dtype) : grouped_query_weights(config, dtype);
  const uint64_t mlp = gated_mlp_bytes(dtype, config.hidden_size, config.dense_intermediate_size);
  return embedding + lm_head + floats(hidden) + num_layers * (attention + floats(2 * hidden)) +
         num_moe * moe_weights(config, dtype) + (num_layers - num_moe) * mlp;
}

// ---- intermediate results, per token: one layer's at a time ----

// A copy of a row in the dtype of the weights, where that is not float32.
uint64_t cast_row(Dtype dtype, uint64_t width) {
  return dtype == Dtype::kF32 ? 0 : width * dtype_bytes(dtype);
}

uint64_t grouped_query_row(const ModelConfig& config, Dtype dtype) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t q_width = uint64_t(config.num_heads) * config.head_dim;
  const uint64_t kv_width = uint64_t(config.num_kv_heads) * config.head_dim;
  return floats(2 * q_width + 2 * kv_width + hidden) + cast_row(dtype, std::max(hidden, q_width));
}

uint64_t latent_row(const ModelConfig& config, Dtype dtype) {
  const uint64_t hidden = config.hidden_size, heads = config.num_heads;
  const uint64_t q_rank = config.q_lora_rank, kv_rank = config.kv_lora_rank;
  const uint64_t key = kv_rank + config.qk_rope_head_dim, v_width = heads * config.v_head_dim;
  const uint64_t queries = q_rank + heads * config.head_dim + heads * key;
  return floats(queries + key + heads * kv_rank + v_width + hidden) + cast_row(dtype, q_rank) +
         cast_row(dtype, std::max(hidden, v_width));
}

uint64_t gated_mlp_row(Dtype dtype, uint64_t intermediate) {
  return floats(2 * intermediate) + cast_row(dtype, intermediate);
}

uint64_t working_row(const ModelConfig& config, Dtype dtype) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t attention =
      config.is_mla() ? latent_row(config, dtype) : grouped_query_row(config, dtype);
  const uint64_t streams = floats(2 * hidden) + cast_row(dtype, hidden);
  const uint64_t moe = floats(uint64_t(config.routing.num_experts)) + cast_row(dtype, hidden);
  uint64_t row = attention + streams + moe;
  if (config.num_moe_layers() < config.num_layers) {
    row += floats(hidden) + gated_mlp_row(dtype, config.dense_intermediate_size);
  }
  if (config.num_shared_experts > 0) {
    row += floats(hidden) + gated_mlp_row(dtype, shared_intermediate(config));
  }
  return row;
}

}  // namespace

std::vector<int> moe_layers(const ModelConfig& config) {
  std::vector<int> layers;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (config.is_moe_layer[layer]) layers.push_back(layer);
  }
  return layers;
}

ep::DispatchShape dispatch_shape(const ModelConfig& config, int num_ranks, int num_slots,
                                 int max_num_tokens, Dtype dtype) {
  return {.ep_size = num_ranks,
          .num_experts = config.routing.num_experts,
          .slots_per_rank = num_slots / num_ranks,
          .top_k = config.routing.top_k,
          .hidden = config.hidden_size,
          .max_tokens = max_num_tokens,
          .row_dtype = dtype};
}

uint64_t MemoryPlan::kv_bytes(uint64_t num_tokens) const {
  return (num_tokens + kernels::kPageTokens - 1) / kernels::kPageTokens * kv_page_bytes;
}

MemoryPlan plan_memory(const ModelConfig& config, const ep::DispatchShape& shape) {
  const Dtype dtype = shape.row_dtype;
  const uint64_t slots = uint64_t(shape.slots_per_rank) * config.num_moe_layers();
  return {.num_ranks = shape.ep_size,
          .dense_weights = dense_weights(config, dtype),
          .slots_per_rank =
              slots * gated_mlp_bytes(dtype, config.hidden_size, config.moe_intermediate_size),
          .symmetric_memory_per_rank = ep::BufferLayout(shape).segment_bytes(),
          .working_memory_per_rank =
              static_cast<uint64_t>(shape.max_tokens) * working_row(config, dtype),
          .kv_page_bytes = model::KvLayout(config, dtype).page_bytes()};
}

}  // namespace wideep::engine
