// SPDX-License-Identifier: Apache-2.0
//
// The layout of a page of the KV cache: kPageTokens consecutive positions of one sequence, for all
// layers of a rank.
//
//   page     the layers that have keys and values
//   layer    [num_kv_heads] heads: keys, then values, in the form of kernels/kv_page.h; then the
//            indexer's keys, if the model has one
//
// Grouped-query attention: panels of head_dim; layers of several kinds (AttentionKind) have heads of
// different numbers and sizes, one after the other without padding. Multi-head latent attention: one
// head of rows, each the normalised latent (kv_lora_rank) followed by the rotated key
// (qk_rope_head_dim). The values are the first part of the keys. The indexer's keys are rows of its
// head_dim, in float32 if the cache is, else in bf16.
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

// The heads of the base are those of layers of kind 0.
struct KvLayout : CachedHeads {
  Dtype dtype = Dtype::kBf16;      // kF32, kBf16 or kF8E4M3
  parallel::LayerRange layers;     // the layers that this rank computes
  std::vector<CachedHeads> heads;  // [layers.count()]
  // [layers.count() + 1] Where each layer begins in a page; those without a cache have no bytes.
  std::vector<size_t> begin = {0};
  int num_cached = 0;

  // parts: the ranks that divide the heads among them (model/parts/tensor_group.h). Each caches
  // only its own heads; if there are more ranks than key-value heads, several cache the same head.
  // Latents are cached by all of them.
  KvLayout(const ModelConfig& config, Dtype cache_dtype, int parts = 1)
      : KvLayout(config, cache_dtype, {0, config.num_all_layers()}, parts) {}
  KvLayout(const ModelConfig& config, Dtype cache_dtype, parallel::LayerRange of_layers, int parts)
      : CachedHeads(attention_cache(config, 0, cache_dtype, parts)),
        dtype(cache_dtype),
        layers(of_layers) {
    for (int layer = layers.first; layer < layers.last; ++layer) {
      const int kind = config.layers[static_cast<size_t>(layer)].attention_kind;
      heads.push_back(kind == 0 ? *this : attention_cache(config, kind, cache_dtype, parts));
      const bool is_cached = config.is_cached(layer);
      begin.push_back(begin.back() + (is_cached ? heads.back().bytes() : 0));
      if (is_cached) ++num_cached;
    }
  }

  Dtype index_dtype() const { return model::index_dtype(dtype); }
  const CachedHeads& heads_of(int layer) const { return heads[index_of(layer)]; }
  size_t layer_bytes(int layer) const {
    return begin[index_of(layer) + 1] - begin[index_of(layer)];
  }
  size_t page_bytes() const { return begin.back(); }

  std::byte* keys(std::byte* page, int layer, int kv_head) const {
    return page + begin[index_of(layer)] +
           static_cast<size_t>(kv_head) * heads_of(layer).head_bytes();
  }
  std::byte* values(std::byte* page, int layer, int kv_head) const {
    return keys(page, layer, kv_head) + heads_of(layer).key_bytes;
  }
  // Latent attention: the row of a position.
  std::byte* row(std::byte* page, int layer, int slot) const {
    return keys(page, layer, 0) + static_cast<size_t>(slot) * row_stride * dtype_bytes(dtype);
  }
  // The indexer's rows.
  std::byte* index_keys(std::byte* page, int layer) const {
    return keys(page, layer, heads_of(layer).num_kv_heads);
  }

 private:
  size_t index_of(int layer) const { return static_cast<size_t>(layer - layers.first); }
};

}  // namespace wideep::model
