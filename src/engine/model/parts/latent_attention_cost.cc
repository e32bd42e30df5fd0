// SPDX-License-Identifier: Apache-2.0
//
// Of multi-head latent attention (latent_attention.h), with its indexer.
#include <algorithm>
#include <utility>

#include "kernels/kv_page.h"
#include "model/parts/part_cost.h"

namespace wideep::model {
namespace {

void add_query(const ModelConfig& config, PartCost* cost) {
  const int hidden = config.hidden_size, rank = config.q_lora_rank;
  const int width = config.num_heads * config.head_dim;
  if (rank == 0) {
    cost->matrix("self_attn.q_proj.weight", width, hidden, TensorUse::kInput);
    return;
  }
  cost->matrix("self_attn.q_a_proj.weight", rank, hidden, TensorUse::kInput);
  cost->vector("self_attn.q_a_layernorm.weight", rank);
  cost->matrix("self_attn.q_b_proj.weight", width, rank, TensorUse::kQueryB);
}

// Per head three matrices: queries into the latent space, values out of it, and keys out of it.
void add_latent(const ModelConfig& config, PartCost* cost) {
  const int heads = config.num_heads, rank = config.kv_lora_rank;
  const int nope = config.qk_nope_head_dim, v = config.v_head_dim;
  cost->tensors.push_back(
      {"self_attn.kv_b_proj.weight", {heads * (nope + v), rank}, TensorUse::kLatent});
  for (const auto& [n, k] : {std::pair(rank, nope), std::pair(v, rank), std::pair(nope, rank)}) {
    cost->matrices.push_back({.use = TensorUse::kLatent, .n = n, .k = k, .count = heads});
  }
}

void add_biases(const ModelConfig& config, int kv_width, PartCost* cost) {
  if (!config.latent_bias) return;
  if (config.q_lora_rank > 0) cost->vector("self_attn.q_a_proj.bias", config.q_lora_rank);
  cost->vector("self_attn.kv_a_proj_with_mqa.bias", kv_width);
  cost->vector("self_attn.o_proj.bias", config.hidden_size);
}

// Of a generated token, which takes the absorbed form: it needs more than a prompt's.
uint64_t scratch_floats(const ModelConfig& config) {
  const uint64_t heads = config.num_heads, kv_rank = config.kv_lora_rank;
  const uint64_t key = kv_rank + config.qk_rope_head_dim;
  const uint64_t row = std::max(key, config.latent_gate ? heads : 0);
  const uint64_t queries = config.q_lora_rank + heads * config.head_dim + heads * key;
  return queries + row + heads * kv_rank + heads * config.v_head_dim + config.hidden_size +
         config.qk_rope_head_dim;
}

}  // namespace

PartCost latent_cost(const ModelConfig& config, const LayerConfig& layer) {
  const int hidden = config.hidden_size, v_width = config.num_heads * config.v_head_dim;
  const int kv_width = config.kv_lora_rank + config.qk_rope_head_dim;
  PartCost cost;
  add_query(config, &cost);
  cost.matrix("self_attn.kv_a_proj_with_mqa.weight", kv_width, hidden, TensorUse::kInput);
  cost.vector("self_attn.kv_a_layernorm.weight", config.kv_lora_rank);
  add_latent(config, &cost);
  cost.matrix("self_attn.o_proj.weight", hidden, v_width, TensorUse::kOutput);
  if (config.latent_gate) {
    cost.matrix("self_attn.g_proj.weight", config.num_heads, hidden, TensorUse::kGates);
  }
  add_biases(config, kv_width, &cost);
  cost.scratch_floats = scratch_floats(config);
  cost.operands = {
      {{TensorUse::kQueryB, uint64_t(config.q_lora_rank)}},
      {{TensorUse::kInput, uint64_t(hidden)}, {TensorUse::kOutput, uint64_t(v_width)}}};
  if (config.latent_gate) cost.operands.back().push_back({TensorUse::kGates, uint64_t(hidden)});
  // A score, and its value, in the expanded form, which is the smaller count for a prompt. Choices
  // of positions are not counted: an upper bound.
  cost.attended = int64_t{config.num_heads} * (config.head_dim + config.v_head_dim);
  if (config.indexer.num_heads > 0) cost.add(sparse_indexer_cost(config, layer));
  return cost;
}

CachedHeads latent_cache(const ModelConfig& config, Dtype cache) {
  const int width = config.kv_lora_rank + config.qk_rope_head_dim;
  CachedHeads heads;
  heads.row_stride = static_cast<size_t>(kernels::padded_value_dim(width));
  heads.key_bytes = kernels::kPageTokens * heads.row_stride * dtype_bytes(cache);
  if (config.indexer.num_heads > 0) add_index_rows(config.indexer.row_width(), cache, &heads);
  return heads;
}

}  // namespace wideep::model
