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
// Keys may be pooled (GLM-5.3-Flash): then groups of positions are scored and chosen, each by one
// key, and the positions after the last complete group are always attended to:
//
//   z_I = gate(h) + bias of the position in its group
//   key = Σ_j softmax_j(z_I(j)) · k_I(j)        of each element, over the positions of the group
//
// A position keeps k_I and its gates, rounded to the cache's dtype. The key of a group is made of
// them when its last position is computed, and lies in that one's row in place of k_I, which is not
// read again: whatever computes the position anew writes the whole row, and the rows before are as
// they were. So groups need no room of their own, and pages are final once their positions are.
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
  // Whether keys are pooled: then make_keys() and a meeting of the ranks come before select().
  bool pools() const { return config_->indexer.group > 0; }
  // After all rows are in the cache: the keys of the groups that end in the batch.
  void make_keys(const MixerCall& call) const;
  // After all keys are in the cache: chooses the positions of the batch's tokens, into
  // call.scratch.selected.
  void select(const MixerCall& call) const;

 private:
  SparseIndexer(const ModelConfig& config, int layer);
  static RopeConfig rope_of(const ModelConfig& config);
  void normalize(float* key) const;
  std::byte* row(const MixerCall& call, const PageList& pages, int position) const;
  void make_key(const MixerCall& call, const PageList& pages, int group) const;
  void select_positions(const MixerCall& call) const;
  void select_groups(const MixerCall& call) const;

  const ModelConfig* config_;
  int layer_;
  Rope rope_;
  weights::Matrix query_;           // [heads × head_dim, q_lora_rank]
  weights::Matrix key_;             // [head_dim, hidden]
  weights::Matrix weights_;         // [heads, hidden], float32
  std::vector<float> norm_, bias_;  // [head_dim] of the keys' layer norm
  weights::Matrix gate_;            // [head_dim, hidden], where keys are pooled
  std::vector<float> gate_bias_;    // [group, head_dim]
};

}  // namespace wideep::model
