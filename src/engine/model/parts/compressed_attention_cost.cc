// SPDX-License-Identifier: Apache-2.0
//
// Of compressed attention (compressed_attention.h), with its indexer, and the layout of its pages.
#include <algorithm>
#include <string>

#include "model/parts/compressed_page.h"
#include "model/parts/part_cost.h"

namespace wideep::model {
namespace {

size_t padded(int width) { return static_cast<size_t>(kernels::padded_value_dim(width)); }

// What makes entries of `dim` elements. name: ends with a dot.
void add_compressor(const std::string& name, int hidden, int group, const PooledWidths& widths,
                    PartCost* cost) {
  cost->matrix(name + "kv_proj.weight", widths.width(), hidden, TensorUse::kIndexKey);
  cost->matrix(name + "gate_proj.weight", widths.width(), hidden, TensorUse::kIndexKey);
  cost->vectors(name + "position_bias", group, widths.width());
  cost->vector(name + "kv_norm.weight", widths.dim);
}

void add_indexer(const ModelConfig& config, const std::string& name, PartCost* cost) {
  const IndexerConfig& indexer = config.indexer;
  cost->matrix(name + "q_b_proj.weight", int64_t{indexer.num_heads} * indexer.head_dim,
               config.compressed.query_rank, TensorUse::kIndexQuery);
  cost->matrix(name + "scorer.weights_proj.weight", indexer.num_heads, config.hidden_size,
               TensorUse::kFloat);
}

}  // namespace

CompressedPage::CompressedPage(const ModelConfig& config, const AttentionKind& kind, Dtype cache)
    : group(kind.group_size), row_stride(padded(kind.head_dim)) {
  entries = kernels::kPageTokens * row_stride * dtype_bytes(cache);
  bytes = inputs = index_keys = entries;
  if (group == 0) return;
  entry = {.dim = kind.head_dim, .series = kind.chooses_entries ? 2 : 1};
  if (kind.chooses_entries) index = {.dim = config.indexer.head_dim, .series = 2};
  const auto rows = static_cast<size_t>((kernels::kPageTokens + group - 1) / group);
  const size_t element = dtype_bytes(index_dtype(cache));
  input_stride = padded(input_width());
  index_stride = padded(index.dim);
  inputs = entries + rows * row_stride * dtype_bytes(cache);
  index_keys = inputs + kernels::kPageTokens * input_stride * element;
  bytes = index_keys + rows * index_stride * element;
}

PartCost compressed_cost(const ModelConfig& config, const LayerConfig& layer) {
  const CompressedConfig& options = config.compressed;
  const AttentionKind kind = config.attention_kind(layer.attention_kind);
  const CompressedPage page(config, kind, Dtype::kF32);
  const int hidden = config.hidden_size, dim = kind.head_dim, width = kind.num_heads * dim;
  const int low = options.output_groups * options.output_rank;
  PartCost cost;
  cost.matrix("self_attn.q_a_proj.weight", options.query_rank, hidden, TensorUse::kInput);
  cost.vector("self_attn.q_a_norm.weight", options.query_rank);
  cost.matrix("self_attn.q_b_proj.weight", width, options.query_rank, TensorUse::kQueryB);
  cost.matrix("self_attn.kv_proj.weight", dim, hidden, TensorUse::kInput);
  cost.vector("self_attn.kv_norm.weight", dim);
  cost.matrix("self_attn.o_a_proj.weight", low, width / options.output_groups, TensorUse::kOutput);
  cost.matrix("self_attn.o_b_proj.weight", hidden, low, TensorUse::kOutput);
  cost.vector("self_attn.sinks", kind.num_heads);
  if (page.group > 0) {
    add_compressor("self_attn.compressor.", hidden, page.group, page.entry, &cost);
  }
  const std::string indexer = "self_attn.compressor.indexer.";
  if (kind.chooses_entries) {
    add_compressor(indexer, hidden, page.group, page.index, &cost);
    add_indexer(config, indexer, &cost);
  }
  // Of all kinds: the latent query, queries and outputs of the heads, the key, what is given to
  // entries, outputs of a group, the projected output, angles.
  cost.scratch_floats = uint64_t(options.query_rank) + 2 * uint64_t(width) + uint64_t(dim) +
                        uint64_t(page.input_width()) + 2 * uint64_t(low) + uint64_t(hidden) +
                        uint64_t(config.num_attention_kinds() * kind.options.rotary_dim);
  if (kind.chooses_entries) {
    cost.scratch_floats += uint64_t(config.indexer.num_heads) * uint64_t(page.index.dim + 1) +
                           uint64_t(config.indexer.top_k);
  }
  const auto group_width = uint64_t(width / options.output_groups);
  cost.operands = {{{TensorUse::kQueryB, uint64_t(options.query_rank)}},
                   {{TensorUse::kInput, uint64_t(hidden)},
                    {TensorUse::kOutput, std::max(uint64_t(low), group_width)}}};
  // A score, and its value. Entries are not counted: they are few beside the positions they stand
  // for, which are counted as if attended to one by one where there are groups.
  cost.attended = int64_t{2} * width / std::max(1, page.group);
  return cost;
}

CachedHeads compressed_cache(const ModelConfig& config, const AttentionKind& kind, Dtype cache) {
  const CompressedPage page(config, kind, cache);
  CachedHeads heads;
  heads.row_stride = page.row_stride;
  heads.key_bytes = page.entries;
  heads.index_bytes = page.bytes - page.entries;
  return heads;
}

}  // namespace wideep::model
