// SPDX-License-Identifier: Apache-2.0
//
// Of grouped-query attention (grouped_query_attention.h).
#include <algorithm>

#include "kernels/kv_page.h"
#include "model/parts/part_cost.h"

namespace wideep::model {
namespace {

int query_width(const AttentionKind& kind) {
  const int width = kind.num_heads * kind.head_dim;
  return kind.options.output_gate ? 2 * width : width;
}

int gate_width(const AttentionKind& kind) {
  using Gate = GroupedQueryConfig::Gate;
  if (kind.options.gate == Gate::kNone) return 0;
  return kind.options.gate == Gate::kHeads ? kind.num_heads : kind.num_heads * kind.value_dim;
}

void add_biases_and_norms(const ModelConfig& config, const AttentionKind& kind, PartCost* cost) {
  const GroupedQueryConfig& options = kind.options;
  const int dim = kind.head_dim, keys = kind.num_kv_heads * dim;
  if (options.qkv_bias) {
    cost->vector("self_attn.q_proj.bias", query_width(kind));
    cost->vector("self_attn.k_proj.bias", keys);
    if (!options.value_is_key) {
      cost->vector("self_attn.v_proj.bias", kind.num_kv_heads * kind.value_dim);
    }
  }
  if (options.output_bias) cost->vector("self_attn.o_proj.bias", config.hidden_size);
  if (options.sinks) cost->vector("self_attn.sinks", kind.num_heads);
  if (options.norm == GroupedQueryConfig::Norm::kNone || !options.norm_has_weight) return;
  const bool each = options.norm == GroupedQueryConfig::Norm::kHead;
  cost->vector("self_attn.q_norm.weight", each ? dim : kind.num_heads * dim);
  cost->vector("self_attn.k_norm.weight", each ? dim : keys);
}

// Layers of all kinds use the same buffers, each as long as the widest: queries, keys, values, the
// gates, the heads' results, the output. Cosines and sines of a position are there for each kind.
uint64_t scratch_floats(const ModelConfig& config) {
  uint64_t queries = 0, keys = 0, values = 0, gates = 0, angles = 0;
  for (int i = 0; i < config.num_attention_kinds(); ++i) {
    const AttentionKind kind = config.attention_kind(i);
    const auto heads = static_cast<uint64_t>(kind.num_kv_heads);
    queries = std::max(queries, static_cast<uint64_t>(query_width(kind)));
    keys = std::max(keys, heads * static_cast<uint64_t>(kind.head_dim));
    values = std::max(values, heads * static_cast<uint64_t>(kind.value_dim));
    gates = std::max(gates, static_cast<uint64_t>(gate_width(kind)));
    angles += static_cast<uint64_t>(kind.options.rotary_dim);
  }
  return queries + keys + values + gates + static_cast<uint64_t>(config.heads_width()) +
         static_cast<uint64_t>(config.hidden_size) + angles;
}

}  // namespace

PartCost grouped_query_cost(const ModelConfig& config, const LayerConfig& layer) {
  const AttentionKind kind = config.attention_kind(layer.attention_kind);
  const int hidden = config.hidden_size, width = kind.num_heads * kind.value_dim;
  const int keys = kind.num_kv_heads * kind.head_dim, values = kind.num_kv_heads * kind.value_dim;
  PartCost cost;
  cost.matrix("self_attn.q_proj.weight", query_width(kind), hidden, TensorUse::kInput);
  cost.matrix("self_attn.k_proj.weight", keys, hidden, TensorUse::kInput);
  if (!kind.options.value_is_key) {
    cost.matrix("self_attn.v_proj.weight", values, hidden, TensorUse::kInput);
  }
  cost.matrix("self_attn.o_proj.weight", hidden, width, TensorUse::kOutput);
  if (const int gates = gate_width(kind); gates > 0) {
    cost.matrix("self_attn.g_proj.weight", gates, hidden, TensorUse::kInput);
  }
  add_biases_and_norms(config, kind, &cost);
  cost.scratch_floats = scratch_floats(config);
  cost.operands = {{{TensorUse::kInput, static_cast<uint64_t>(hidden)},
                    {TensorUse::kOutput, static_cast<uint64_t>(config.heads_width())}}};
  // A score, and its value.
  cost.attended = int64_t{kind.num_heads} * (kind.head_dim + kind.value_dim);
  if (kind.options.blocks.head_dim > 0) {
    cost.operands.back().push_back({TensorUse::kIndexQuery, static_cast<uint64_t>(hidden)});
    cost.operands.back().push_back({TensorUse::kIndexKey, static_cast<uint64_t>(hidden)});
    cost.add(block_indexer_cost(config, kind));
  }
  return cost;
}

CachedHeads grouped_query_cache(const AttentionKind& kind, Dtype cache, int parts) {
  CachedHeads heads{.num_kv_heads = std::max(kind.num_kv_heads / parts, 1),
                    .key_bytes = kernels::key_panel_bytes(cache, kind.head_dim),
                    .value_bytes = kernels::value_panel_bytes(cache, kind.value_dim)};
  if (const int dim = kind.options.blocks.head_dim; dim > 0) add_index_rows(dim, cache, &heads);
  return heads;
}

}  // namespace wideep::model
