// SPDX-License-Identifier: Apache-2.0
//
// Qwen3's grouped-query attention (arXiv:2505.09388): each head's query and key are normalised
// before they are rotated.
#pragma once

#include <memory>
#include <vector>

#include "model/attention.h"
#include "model/rope.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class GroupedQueryAttention : public Attention {
 public:
  static Result<std::unique_ptr<Attention>> load(const ModelConfig& config, int layer,
                                                 const weights::WeightLoader& loader);

  void prepare(const AttentionCall& call) const override;
  Result<const float*> forward(const AttentionCall& call, const float* h) const override;

 private:
  GroupedQueryAttention(const ModelConfig& config, int layer);
  void normalize_and_rotate(const Compute& compute, const float* norm, const float* cos_sin,
                            int num_heads, float* heads) const;

  HeadRange heads_of(const TensorGroup& group) const {
    return group.heads(config_.num_heads, config_.num_kv_heads);
  }
  void write_cache(const AttentionCall& call, float* q, float* k, const float* v) const;

  const ModelConfig& config_;
  Rope rope_;
  CachedAttention core_;
  weights::Matrix q_;          // [num_heads × head_dim, hidden]
  weights::Matrix k_;          // [num_kv_heads × head_dim, hidden]
  weights::Matrix v_;          // [num_kv_heads × head_dim, hidden]
  weights::Matrix o_;          // [hidden, num_heads × head_dim]
  std::vector<float> q_norm_;  // [head_dim]
  std::vector<float> k_norm_;  // [head_dim]
};

}  // namespace wideep::model
