// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V3's multi-head latent attention (arXiv:2412.19437, section 2.1.1), in the absorbed
// form: the cache holds per position one latent vector and one rotary key for all heads; each
// head's query is carried into the latent space, and its output out of it. Prompt and generated
// tokens take the same path.
#pragma once

#include <memory>
#include <vector>

#include "model/attention.h"
#include "model/rope.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class LatentAttention : public Attention {
 public:
  static Result<std::unique_ptr<Attention>> load(const ModelConfig& config, int layer,
                                                 const weights::WeightLoader& loader);

  const float* forward(const Compute& compute, const Batch& batch, const KvLayout& kv,
                       const float* h, AttentionScratch& scratch) const override;

 private:
  LatentAttention(const ModelConfig& config, int layer);
  Status load_query(const weights::WeightLoader& loader, const std::string& prefix);
  Status load_latent(const weights::WeightLoader& loader, const std::string& prefix);

  const float* queries(const Compute& compute, const Rows& h, AttentionScratch& scratch) const;
  void write_cache(const Compute& compute, const Batch& batch, const KvLayout& kv, const Rows& h,
                   AttentionScratch& scratch) const;
  const float* latent_queries(const Compute& compute, const Batch& batch, const float* q,
                              AttentionScratch& scratch) const;
  const float* leave_latent(const Compute& compute, int num_tokens, const float* latent,
                            AttentionScratch& scratch) const;

  const ModelConfig& config_;
  Rope rope_;
  CachedAttention core_;

  // Query: q_b(rms_norm(q_a(h))), or q(h) alone when q_lora_rank is 0.
  weights::Matrix q_a_;          // [q_lora_rank, hidden]
  std::vector<float> q_a_norm_;  // [q_lora_rank]
  weights::Matrix q_b_;          // [num_heads × (nope + rope), q_lora_rank or hidden]
  // Key and value: latent and rotary key of a position.
  weights::Matrix kv_a_;          // [kv_lora_rank + rope, hidden]
  std::vector<float> kv_a_norm_;  // [kv_lora_rank]
  // kv_b of the checkpoint, [num_heads × (nope + v), kv_lora_rank], taken apart per head.
  std::vector<weights::Matrix> to_latent_;    // [num_heads] of [kv_lora_rank, nope]
  std::vector<weights::Matrix> from_latent_;  // [num_heads] of [v, kv_lora_rank]
  weights::Matrix o_;                         // [hidden, num_heads × v]
};

}  // namespace wideep::model
