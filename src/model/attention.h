// SPDX-License-Identifier: Apache-2.0
//
// The attention half of a layer: x += attention(rms_norm(x)). One class per architecture, in
// deepseek_v3.h and qwen3_moe.h.
#pragma once

#include "model/batch.h"
#include "model/compute.h"

namespace wideep::model {

// Memory for the steps in between, shared by all layers of a rank.
struct AttentionScratch {
  Scratch cast, low_cast, angles;
  Scratch query_low, query, key, value, kv_row;
  Scratch latent_query, latent_out;
  Scratch heads, out;
};

// The weights of one layer's attention; constant after loading, so that ranks can share them.
class Attention {
 public:
  virtual ~Attention() = default;

  // h: [num_tokens, hidden], the normalised input. Writes the batch's keys and values into the
  // cache and returns the output, [num_tokens, hidden], in `scratch`: valid until its next use.
  virtual const float* forward(const Compute& compute, const Batch& batch, const KvLayout& kv,
                               const float* h, AttentionScratch& scratch) const = 0;
};

// Attention of every token of the batch over the cached positions up to its own.
struct CachedAttention {
  int layer = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  float scale = 1.0f;
  bool value_in_key = false;  // MLA: the value is the first value_dim elements of the key

  // q: [num_tokens, num_heads × key_dim]; out: [num_tokens, num_heads × value_dim].
  void forward(const Compute& compute, const Batch& batch, const KvLayout& kv, const float* q,
               float* out) const;
};

// Stores `count` float32 elements as the cache's dtype.
void store_row(const Compute& compute, Dtype dtype, const float* x, int count, std::byte* out);

}  // namespace wideep::model
