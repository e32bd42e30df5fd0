// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_plan.h"

#include <algorithm>

#include "kernels/packed_matrix.h"
#include "model/compute.h"
#include "model/kv_layout.h"
#include "weights/expert_record.h"

namespace wideep::engine {
namespace {

using kernels::WeightFormat;
using model::ModelConfig;

uint64_t packed_bytes(WeightFormat format, int n, int k) {
  return kernels::packed_shape(format, n, k).bytes();
}

uint64_t floats(uint64_t count) { return count * sizeof(float); }

uint64_t gated_mlp_bytes(WeightFormat format, int hidden, int intermediate) {
  return weights::ExpertShape{format, hidden, intermediate}.record_bytes();
}

int shared_intermediate(const ModelConfig& config) {
  return config.num_shared_experts * config.moe_intermediate_size;
}

// ---- weights, by the names of the checkpoint's tensors ----

uint64_t grouped_query_weights(const ModelConfig& config, WeightFormat format) {
  const int hidden = config.hidden_size, dim = config.head_dim;
  const int q_width = config.num_heads * dim, kv_width = config.num_kv_heads * dim;
  return packed_bytes(format, q_width, hidden) + 2 * packed_bytes(format, kv_width, hidden) +
         packed_bytes(format, hidden, q_width) + floats(2 * uint64_t(dim));  // q_norm, k_norm
}

uint64_t latent_weights(const ModelConfig& config, WeightFormat format) {
  const int hidden = config.hidden_size, heads = config.num_heads;
  const int q_rank = config.q_lora_rank, kv_rank = config.kv_lora_rank;
  const int q_width = heads * config.head_dim;
  const uint64_t q = q_rank == 0 ? packed_bytes(format, q_width, hidden)
                                 : packed_bytes(format, q_rank, hidden) +
                                       floats(static_cast<uint64_t>(q_rank)) +
                                       packed_bytes(format, q_width, q_rank);
  const uint64_t kv_a = packed_bytes(format, kv_rank + config.qk_rope_head_dim, hidden) +
                        floats(static_cast<uint64_t>(kv_rank));
  // kv_b, taken apart: into the latent space, out of it and to keys, per head.
  const WeightFormat kv_b_format = format == WeightFormat::kF32 ? format : WeightFormat::kBf16;
  const uint64_t kv_b =
      static_cast<uint64_t>(heads) * (packed_bytes(kv_b_format, kv_rank, config.qk_nope_head_dim) +
                                      packed_bytes(kv_b_format, config.v_head_dim, kv_rank) +
                                      packed_bytes(kv_b_format, config.qk_nope_head_dim, kv_rank));
  return q + kv_a + kv_b + packed_bytes(format, hidden, heads * config.v_head_dim);
}

// Router (always float32) and shared expert.
uint64_t moe_weights(const ModelConfig& config, WeightFormat format) {
  const int num_experts = config.routing.num_experts;
  uint64_t bytes = packed_bytes(WeightFormat::kF32, num_experts, config.hidden_size);
  if (config.routing.method == model::RoutingMethod::kDeepseekV3) bytes += floats(num_experts);
  if (config.num_shared_experts > 0) {
    bytes += gated_mlp_bytes(format, config.hidden_size, shared_intermediate(config));
  }
  return bytes;
}

uint64_t dense_weights(const ModelConfig& config, WeightFormat format) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t num_layers = config.num_layers, num_moe = config.num_moe_layers();
  const uint64_t embedding = hidden * config.vocab_size * dtype_bytes(kernels::row_dtype(format));
  const uint64_t lm_head = packed_bytes(format, config.vocab_size, config.hidden_size);
  const uint64_t attention =
      config.is_mla() ? latent_weights(config, format) : grouped_query_weights(config, format);
  const uint64_t mlp = gated_mlp_bytes(format, config.hidden_size, config.dense_intermediate_size);
  return embedding + lm_head + floats(hidden) + num_layers * (attention + floats(2 * hidden)) +
         num_moe * moe_weights(config, format) + (num_layers - num_moe) * mlp;
}

// ---- intermediate results, per token: one layer's at a time ----

// A copy of a row in the dtype of the weights, where that is not float32.
uint64_t cast_row(WeightFormat format, uint64_t width) {
  if (format == WeightFormat::kF32) return 0;
  return model::operand_bytes(kernels::packed_shape(format, 1, static_cast<int>(width)));
}

uint64_t grouped_query_row(const ModelConfig& config, WeightFormat format) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t q_width = uint64_t(config.num_heads) * config.head_dim;
  const uint64_t kv_width = uint64_t(config.num_kv_heads) * config.head_dim;
  return floats(2 * q_width + 2 * kv_width + hidden + config.head_dim) +
         cast_row(format, std::max(hidden, q_width));
}

uint64_t latent_row(const ModelConfig& config, WeightFormat format) {
  const uint64_t hidden = config.hidden_size, heads = config.num_heads;
  const uint64_t q_rank = config.q_lora_rank, kv_rank = config.kv_lora_rank;
  const uint64_t key = kv_rank + config.qk_rope_head_dim, v_width = heads * config.v_head_dim;
  const uint64_t queries = q_rank + heads * config.head_dim + heads * key;
  return floats(queries + key + heads * kv_rank + v_width + hidden + config.qk_rope_head_dim) +
         cast_row(format, q_rank) + cast_row(format, std::max(hidden, v_width));
}

// What MlpRunner keeps of a row: its input, where that is not in the form of operands yet, and what
// is between the products.
uint64_t gated_mlp_row(WeightFormat format, uint64_t hidden, uint64_t intermediate, Dtype input) {
  const kernels::PackedShape gate = kernels::packed_shape(format, 1, static_cast<int>(hidden));
  const Dtype between = kernels::row_dtype(format);
  const bool casts_between = model::needs_cast(gate, between);
  return (model::needs_cast(gate, input) ? cast_row(format, hidden) : 0) +
         intermediate * dtype_bytes(between) + (casts_between ? cast_row(format, intermediate) : 0);
}

uint64_t working_row(const ModelConfig& config, WeightFormat format) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t attention =
      config.is_mla() ? latent_row(config, format) : grouped_query_row(config, format);
  const uint64_t streams = floats(2 * hidden) + cast_row(format, hidden);
  const Dtype sent = kernels::row_dtype(format);
  const WeightFormat sent_format = sent == Dtype::kF32 ? WeightFormat::kF32 : WeightFormat::kBf16;
  // Rows received for this rank's experts are as many as it sends, when ranks are balanced.
  const uint64_t experts =
      config.routing.top_k * gated_mlp_row(format, hidden, config.moe_intermediate_size, sent);
  const uint64_t moe =
      floats(uint64_t(config.routing.num_experts)) + cast_row(sent_format, hidden) + experts;
  uint64_t row = attention + streams + moe;
  if (config.num_moe_layers() < config.num_layers) {
    row +=
        floats(hidden) + gated_mlp_row(format, hidden, config.dense_intermediate_size, Dtype::kF32);
  }
  if (config.num_shared_experts > 0) {
    row += floats(hidden) + gated_mlp_row(format, hidden, shared_intermediate(config), sent);
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
                                 int max_num_tokens, WeightFormat format) {
  return {.ep_size = num_ranks,
          .num_experts = config.routing.num_experts,
          .slots_per_rank = num_slots / num_ranks,
          .top_k = config.routing.top_k,
          .hidden = config.hidden_size,
          .max_tokens = max_num_tokens,
          .row_dtype = kernels::row_dtype(format)};
}

Dtype cache_dtype(std::string_view setting, WeightFormat format) {
  if (setting == "FP8") return Dtype::kF8E4M3;
  return setting == "BF16" ? Dtype::kBf16 : kernels::row_dtype(format);
}

uint64_t MemoryPlan::kv_bytes(uint64_t num_tokens) const {
  return (num_tokens + kernels::kPageTokens - 1) / kernels::kPageTokens * kv_page_bytes;
}

MemoryPlan plan_memory(const ModelConfig& config, const ep::DispatchShape& shape,
                       WeightFormat format, Dtype cache) {
  const uint64_t slots = uint64_t(shape.slots_per_rank) * config.num_moe_layers();
  return {.num_ranks = shape.ep_size,
          .dense_weights = dense_weights(config, format),
          .slots_per_rank =
              slots * gated_mlp_bytes(format, config.hidden_size, config.moe_intermediate_size),
          .symmetric_memory_per_rank = ep::BufferLayout(shape).segment_bytes(),
          .working_memory_per_rank =
              static_cast<uint64_t>(shape.max_tokens) * working_row(config, format),
          .kv_page_bytes = model::KvLayout(config, cache).page_bytes()};
}

}  // namespace wideep::engine
