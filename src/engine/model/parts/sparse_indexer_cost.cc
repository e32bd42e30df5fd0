// SPDX-License-Identifier: Apache-2.0
//
// Of the indexer (sparse_indexer.h). Its keys are part of what latent attention caches.
#include "model/parts/part_cost.h"

namespace wideep::model {

PartCost sparse_indexer_cost(const ModelConfig& config, const LayerConfig& layer) {
  const IndexerConfig& options = config.indexer;
  const int hidden = config.hidden_size, dim = options.head_dim;
  PartCost cost;
  // Queries, keys and weights, and the positions chosen; the scores are of few tokens at a time.
  cost.scratch_floats = uint64_t(options.num_heads) * (dim + 1) + dim + options.top_k;
  if (layer.shares_index) return cost;
  cost.matrix("self_attn.indexer.wq_b.weight", options.num_heads * dim, config.q_lora_rank,
              TensorUse::kIndexQuery);
  cost.matrix("self_attn.indexer.wk.weight", dim, hidden, TensorUse::kIndexKey);
  cost.matrix("self_attn.indexer.weights_proj.weight", options.num_heads, hidden,
              TensorUse::kFloat);
  cost.vector("self_attn.indexer.k_norm.weight", dim);
  cost.vector("self_attn.indexer.k_norm.bias", dim);
  return cost;
}

}  // namespace wideep::model
