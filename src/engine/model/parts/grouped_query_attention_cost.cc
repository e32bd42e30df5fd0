// SPDX-License-Identifier: Apache-2.0
//
// Of grouped-query attention (grouped_query_attention.h).
#include <algorithm>

#include "kernels/kv_page.h"
#include "model/parts/part_cost.h"

namespace wideep::model {
namespace {

void add_biases_and_norms(const ModelConfig& config, int q_width, PartCost* cost) {
  const GroupedQueryConfig& options = config.grouped_query;
  const int dim = config.head_dim;
  const int width = config.num_heads * dim, kv_width = config.num_kv_heads * dim;
  if (options.qkv_bias) {
    cost->vector("self_attn.q_proj.bias", q_width);
    cost->vector("self_attn.k_proj.bias", kv_width);
    cost->vector("self_attn.v_proj.bias", kv_width);
  }
  if (options.output_bias) cost->vector("self_attn.o_proj.bias", config.hidden_size);
  if (options.sinks) cost->vector("self_attn.sinks", config.num_heads);
  if (options.norm == GroupedQueryConfig::Norm::kNone || !options.norm_has_weight) return;
  const bool each = options.norm == GroupedQueryConfig::Norm::kHead;
  cost->vector("self_attn.q_norm.weight", each ? dim : width);
  cost->vector("self_attn.k_norm.weight", each ? dim : kv_width);
}

}  // namespace

PartCost grouped_query_cost(const ModelConfig& config) {
  const GroupedQueryConfig& options = config.grouped_query;
  const int hidden = config.hidden_size, dim = config.head_dim;
  const int width = config.num_heads * dim, kv_width = config.num_kv_heads * dim;
  const int q_width = options.output_gate ? 2 * width : width;
  PartCost cost;
  cost.matrix("self_attn.q_proj.weight", q_width, hidden, TensorUse::kInput);
  cost.matrix("self_attn.k_proj.weight", kv_width, hidden, TensorUse::kInput);
  cost.matrix("self_attn.v_proj.weight", kv_width, hidden, TensorUse::kInput);
  cost.matrix("self_attn.o_proj.weight", hidden, width, TensorUse::kOutput);
  add_biases_and_norms(config, q_width, &cost);
  // Queries, keys, values, the heads' results, the output, and a position's cosines and sines.
  cost.scratch_floats = uint64_t(q_width) + uint64_t(width) + 2 * uint64_t(kv_width) +
                        uint64_t(hidden) + uint64_t(options.rotary_dim);
  cost.operands = {{{TensorUse::kInput, uint64_t(hidden)}, {TensorUse::kOutput, uint64_t(width)}}};
  // A score, and its value.
  cost.attended = int64_t{config.num_heads} * 2 * dim;
  return cost;
}

CachedHeads grouped_query_cache(const ModelConfig& config, Dtype cache, int parts) {
  return {.num_kv_heads = std::max(config.num_kv_heads / parts, 1),
          .key_bytes = kernels::key_panel_bytes(cache, config.head_dim),
          .value_bytes = kernels::value_panel_bytes(cache, config.head_dim)};
}

}  // namespace wideep::model
