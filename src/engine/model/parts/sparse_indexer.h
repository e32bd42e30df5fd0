// SPDX-License-Identifier: Apache-2.0
//
// The indexer of DeepSeek sparse attention (DeepSeek-V3.2): chooses for each token the top_k
// positions that its layer, and later layers that share its choice, attend to.
//
//   q_I = wq_b(latent query), per head          its first dimensions are rotated
//   k_I = layer_norm(wk(h))                     rotated likewise; cached
//   w   = weights(h) · heads^-½ · head_dim^-½
//   score(t, p) = Σ_heads w · relu(q_I(t) · k_I(p))
//
// Tokens before position top_k attend to all positions, and need no choice.
//
// Thread safety: constant after loading; the scratch belongs to the calling rank.
#pragma once

#include <string>
#include <vector>

#include "model/model_forms.h"
#include "model/parts/mixer.h"
#include "model/parts/rope.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class SparseIndexer {
 public:
  // prefix: "….self_attn.indexer.". Errors: as WeightLoader.
  static Result<SparseIndexer> load(const ModelConfig& config, int layer,
                                    const weights::WeightLoader& loader, const LayerForms& forms,
                                    const std::string& prefix);

  // Computes the batch's queries, and writes its keys into the cache. h: [num_tokens, hidden], the
  // layer's input; low: [num_tokens, q_lora_rank], the latent queries.
  void write_cache(const MixerCall& call, const float* h, const float* low) const;
  // After all keys are in the cache: chooses the positions of the batch's tokens, into
  // call.scratch.selected.
  void select(const MixerCall& call) const;

 private:
  SparseIndexer(const ModelConfig& config, int layer)
      : config_(&config), layer_(layer), rope_(rope_of(config), config.qk_rope_head_dim) {}
  static RopeConfig rope_of(const ModelConfig& config);
  void normalize(float* key) const;

  const ModelConfig* config_;
  int layer_;
  Rope rope_;
  weights::Matrix query_;           // [heads × head_dim, q_lora_rank]
  weights::Matrix key_;             // [head_dim, hidden]
  weights::Matrix weights_;         // [heads, hidden], float32
  std::vector<float> norm_, bias_;  // [head_dim] of the keys' layer norm
};

}  // namespace wideep::model
