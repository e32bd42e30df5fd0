// SPDX-License-Identifier: Apache-2.0
//
// The layout of a page of the KV cache: kPageTokens consecutive positions of one sequence, for all
// layers of a rank.
//
//   page     [layers.count()] layers
//   layer    [num_kv_heads] heads: keys, then values, in the form of kernels/kv_page.h
//
// Grouped-query attention: panels of head_dim. Multi-head latent attention: one head of rows, each
// the normalised latent (kv_lora_rank) followed by the rotated key (qk_rope_head_dim). The values
// are the first part of the keys.
//
// Thread safety: plain values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "kernels/kv_page.h"
#include "model/config.h"
#include "parallel/mapping.h"

namespace wideep::model {

// A sequence's pages in order of position: page i holds positions 64·i ... 64·i + 63.
using PageList = std::vector<std::byte*>;

struct KvLayout {
  Dtype dtype = Dtype::kBf16;   // kF32, kBf16 or kF8E4M3
  parallel::LayerRange layers;  // the layers that this rank computes
  int num_kv_heads = 1;
  size_t row_stride = 0;   // elements; latent attention only
  size_t key_bytes = 0;    // of one head in a page
  size_t value_bytes = 0;  // of one head in a page

  // parts: the ranks that divide the heads among them (model/tensor_group.h). Each caches only its
  // own heads; if there are more ranks than key-value heads, several cache the same head. Latents
  // are cached by all of them.
  KvLayout(const ModelConfig& config, Dtype cache_dtype, int parts = 1)
      : KvLayout(config, cache_dtype, {0, config.num_layers}, parts) {}
  KvLayout(const ModelConfig& config, Dtype cache_dtype, parallel::LayerRange of_layers, int parts)
      : dtype(cache_dtype), layers(of_layers) {
    if (config.is_mla()) {
      const int width = config.kv_lora_rank + config.qk_rope_head_dim;
      row_stride = static_cast<size_t>(kernels::padded_value_dim(width));
      key_bytes = kernels::kPageTokens * row_stride * dtype_bytes(dtype);
    } else {
      num_kv_heads = std::max(config.num_kv_heads / parts, 1);
      key_bytes = kernels::key_panel_bytes(dtype, config.head_dim);
      value_bytes = kernels::value_panel_bytes(dtype, config.head_dim);
    }
  }

  size_t layer_bytes() const { return num_kv_heads * (key_bytes + value_bytes); }
  size_t page_bytes() const { return layer_bytes() * layers.count(); }

  std::byte* keys(std::byte* page, int layer, int kv_head) const {
    return page + (layer - layers.first) * layer_bytes() + kv_head * (key_bytes + value_bytes);
  }
  std::byte* values(std::byte* page, int layer, int kv_head) const {
    return keys(page, layer, kv_head) + key_bytes;
  }
  // Latent attention: the row of a position.
  std::byte* row(std::byte* page, int layer, int slot) const {
    return keys(page, layer, 0) + static_cast<size_t>(slot) * row_stride * dtype_bytes(dtype);
  }
};

}  // namespace wideep::model
