// SPDX-License-Identifier: Apache-2.0
//
// Of the indexers (sparse_indexer.h, block_indexer.h). Their keys are part of what attention caches.
#include "kernels/kv_page.h"
#include "model/parts/part_cost.h"

namespace wideep::model {

PartCost sparse_indexer_cost(const ModelConfig& config, const LayerConfig& layer) {
  const IndexerConfig& options = config.indexer;
  const int hidden = config.hidden_size, dim = options.head_dim;
  PartCost cost;
  // Queries, keys and weights, and the positions chosen; the scores are of few tokens at a time.
  cost.scratch_floats = uint64_t(options.num_heads) * uint64_t(dim + 1) +
                        uint64_t(options.row_width()) + uint64_t(options.first_choice());
  if (layer.shares_index) return cost;
  cost.matrix("self_attn.indexer.wq_b.weight", options.num_heads * dim, config.q_lora_rank,
              TensorUse::kIndexQuery);
  cost.matrix("self_attn.indexer.wk.weight", dim, hidden, TensorUse::kIndexKey);
  cost.matrix("self_attn.indexer.weights_proj.weight", options.num_heads, hidden,
              TensorUse::kFloat);
  cost.vector("self_attn.indexer.k_norm.weight", dim);
  cost.vector("self_attn.indexer.k_norm.bias", dim);
  if (options.group == 0) return cost;
  cost.matrix("self_attn.indexer.gate_proj.weight", dim, hidden, TensorUse::kIndexKey);
  cost.vectors("self_attn.indexer.position_bias", options.group, dim);
  return cost;
}

PartCost block_indexer_cost(const ModelConfig& config, const AttentionKind& kind) {
  const BlockIndexerConfig& options = kind.options.blocks;
  const int hidden = config.hidden_size, dim = options.head_dim, heads = kind.num_kv_heads;
  PartCost cost;
  cost.scratch_floats = uint64_t(heads) * uint64_t(dim + options.top_k) + uint64_t(dim);
  cost.matrix("self_attn.indexer.q_proj.weight", heads * dim, hidden, TensorUse::kIndexQuery);
  cost.matrix("self_attn.indexer.k_proj.weight", dim, hidden, TensorUse::kIndexKey);
  cost.vector("self_attn.indexer.q_norm.weight", dim);
  cost.vector("self_attn.indexer.k_norm.weight", dim);
  return cost;
}

void add_index_rows(int width, Dtype cache, CachedHeads* heads) {
  heads->index_stride = static_cast<size_t>(kernels::padded_value_dim(width));
  heads->index_bytes = kernels::kPageTokens * heads->index_stride * dtype_bytes(index_dtype(cache));
}

}  // namespace wideep::model
