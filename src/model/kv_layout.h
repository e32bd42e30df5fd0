// SPDX-License-Identifier: Apache-2.0
//
// What one page of the KV cache holds: kPageTokens consecutive positions of one sequence, for all
// layers.
//
//   page     [num_layers] layers
//   layer    keys   [kPageTokens, key_row], then values [kPageTokens, value_row]
//
//   key_row    num_kv_heads × head_dim; for MLA kv_lora_rank + qk_rope_head_dim
//   value_row  num_kv_heads × head_dim; for MLA none: its values are the first part of the keys
#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype.h"
#include "kernels/attention.h"
#include "model/config.h"

namespace wideep::model {

// A sequence's pages in order of position: page i holds positions 64·i ... 64·i + 63.
using PageList = std::vector<std::byte*>;

struct KvLayout {
  Dtype dtype = Dtype::kBf16;
  int num_layers = 0;
  size_t key_row = 0;    // elements
  size_t value_row = 0;  // elements

  KvLayout(const ModelConfig& config, Dtype cache_dtype)
      : dtype(cache_dtype), num_layers(config.num_layers) {
    if (config.is_mla()) {
      key_row = static_cast<size_t>(config.kv_lora_rank) + config.qk_rope_head_dim;
    } else {
      key_row = value_row = static_cast<size_t>(config.num_kv_heads) * config.head_dim;
    }
  }

  size_t layer_bytes() const {
    return kernels::kPageTokens * (key_row + value_row) * dtype_bytes(dtype);
  }
  size_t page_bytes() const { return layer_bytes() * num_layers; }

  std::byte* keys(std::byte* page, int layer) const { return page + layer * layer_bytes(); }
  std::byte* values(std::byte* page, int layer) const {
    return keys(page, layer) + kernels::kPageTokens * key_row * dtype_bytes(dtype);
  }
  std::byte* key(const PageList& pages, int layer, int position) const {
    return keys(pages[position / kernels::kPageTokens], layer) +
           position % kernels::kPageTokens * key_row * dtype_bytes(dtype);
  }
  std::byte* value(const PageList& pages, int layer, int position) const {
    return values(pages[position / kernels::kPageTokens], layer) +
           position % kernels::kPageTokens * value_row * dtype_bytes(dtype);
  }
};

}  // namespace wideep::model
