// SPDX-License-Identifier: Apache-2.0
//
// The layout of a page of the KV cache: kPageTokens consecutive positions of one sequence, for all
// layers of a rank.
//
//   page     the layers that have keys and values
//   layer    [num_kv_heads] heads: keys, then values, in the form of kernels/kv_page.h; then the
//            indexer's keys, if the model has one
//
// Grouped-query attention: panels of head_dim. Multi-head latent attention: one head of rows, each
// the normalised latent (kv_lora_rank) followed by the rotated key (qk_rope_head_dim). The values
// are the first part of the keys. The indexer's keys are rows of its head_dim, in float32 if the
// cache is, else in bf16.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "kernels/kv_page.h"
#include "model/config/config.h"
#include "model/parts/part_cost.h"
#include "parallel/mapping.h"

namespace wideep::model {

// A sequence's pages in order of position: page i holds positions 64·i ... 64·i + 63.
using PageList = std::vector<std::byte*>;

struct KvLayout : CachedHeads {
  Dtype dtype = Dtype::kBf16;   // kF32, kBf16 or kF8E4M3
  parallel::LayerRange layers;  // the layers that this rank computes
  std::vector<int> place;       // [layers.count()] of the layer among those with a cache
  int num_cached = 0;

  // parts: the ranks that divide the heads among them (model/parts/tensor_group.h). Each caches
  // only its own heads; if there are more ranks than key-value heads, several cache the same head.
  // Latents are cached by all of them.
  KvLayout(const ModelConfig& config, Dtype cache_dtype, int parts = 1)
      : KvLayout(config, cache_dtype, {0, config.num_all_layers()}, parts) {}
  KvLayout(const ModelConfig& config, Dtype cache_dtype, parallel::LayerRange of_layers, int parts)
      : CachedHeads(attention_cache(config, cache_dtype, parts)),
        dtype(cache_dtype),
        layers(of_layers) {
    for (int layer = layers.first; layer < layers.last; ++layer) {
      place.push_back(num_cached);
      if (config.is_cached(layer)) ++num_cached;
    }
  }

  Dtype index_dtype() const { return model::index_dtype(dtype); }
  size_t layer_bytes() const { return num_kv_heads * (key_bytes + value_bytes) + index_bytes; }
  size_t page_bytes() const { return layer_bytes() * static_cast<size_t>(num_cached); }

  std::byte* keys(std::byte* page, int layer, int kv_head) const {
    const int index = place[static_cast<size_t>(layer - layers.first)];
    return page + index * layer_bytes() + kv_head * (key_bytes + value_bytes);
  }
  std::byte* values(std::byte* page, int layer, int kv_head) const {
    return keys(page, layer, kv_head) + key_bytes;
  }
  // Latent attention: the row of a position.
  std::byte* row(std::byte* page, int layer, int slot) const {
    return keys(page, layer, 0) + static_cast<size_t>(slot) * row_stride * dtype_bytes(dtype);
  }
  // The indexer's rows.
  std::byte* index_keys(std::byte* page, int layer) const {
    return keys(page, layer, num_kv_heads);
  }
};

}  // namespace wideep::model
