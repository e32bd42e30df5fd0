// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek's multi-head latent attention (arXiv:2412.19437, section 2.1.1). The cache holds per
// position one latent vector and one rotary key for all heads. There are two forms (latent_form.h):
// generated tokens take the absorbed form (each head's query is projected into the latent space,
// and its output out of it), prompts the expanded form (each head's keys and values are expanded
// from the latents, page by page).
//
// With an indexer (sparse_indexer.h), tokens from position top_k on take the absorbed form over the
// positions that were chosen for them, whatever their role.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/model_forms.h"
#include "model/parts/latent_form.h"
#include "model/parts/mixer.h"
#include "model/parts/rope.h"
#include "model/parts/sparse_indexer.h"
#include "weights/weight_loader.h"

namespace wideep::model {

// One head's keys and values of a page, with scratch memory for their computation.
struct ExpandedPage {
  Scratch keys, values;     // panels
  Scratch wide, rows;       // latents widened from fp8; latents as operands of the weights
  Scratch floats, rounded;  // products in float32; products in the cache's dtype
};

class LatentAttention : public Mixer {
 public:
  static Result<std::unique_ptr<Mixer>> load(const ModelConfig& config, int layer,
                                             const weights::WeightLoader& loader);

  void prepare(const MixerCall& call) const override;
  Result<const float*> forward(const MixerCall& call, const float* h) const override;

 private:
  LatentAttention(const ModelConfig& config, int layer);
  Status load_query(const weights::WeightLoader& loader, const LayerForms& forms,
                    const std::string& prefix);
  Status load_latent(const weights::WeightLoader& loader, const LayerForms& forms,
                     const std::string& prefix);

  std::vector<TokenRun> absorbed_ranges(const AttentionStep& step) const;
  LatentForm form_of(const TokenRun& run) const;
  // Whether the run attends to chosen positions only.
  bool is_sparse(const TokenRun& run) const {
    return config_.indexer.num_heads > 0 && run.first_position >= config_.indexer.first_choice();
  }
  // In the expanded form every head has keys of its own: num_kv_heads = num_heads.
  HeadRange heads_of(const TensorGroup& group) const {
    return group.heads(config_.num_heads, config_.num_heads);
  }
  float* queries(const MixerCall& call, const Rows& h) const;
  void write_cache(const MixerCall& call, const Rows& h, float* q) const;
  void scale_by_position(const Compute& compute, int position, float* q) const;
  void enter_latent(const MixerCall& call, const TokenRun& tokens, const float* q,
                    float* latent_q) const;
  void leave_latent(const MixerCall& call, const TokenRun& tokens, const float* latent,
                    float* heads) const;
  void gate(const MixerCall& call, const float* h, float* heads) const;
  void attend_expanded(const MixerCall& call, const TokenRun& run, const AttentionTask& task,
                       const AttentionRows& rows) const;
  Rows latents(const MixerCall& call, const std::byte* page, int count,
               ExpandedPage& expanded) const;
  void expand_page(const MixerCall& call, const std::byte* page, int count, int head,
                   ExpandedPage& expanded) const;

  const ModelConfig& config_;
  bool rotates_;
  Rope rope_;
  CachedAttention absorbed_;
  CachedAttention expanded_;

  // Query: q_b(rms_norm(q_a(h))), or q(h) alone when q_lora_rank is 0.
  weights::Matrix q_a_;          // [q_lora_rank, hidden]
  std::vector<float> q_a_norm_;  // [q_lora_rank]
  weights::Matrix q_b_;          // [num_heads × (nope + rope), q_lora_rank or hidden]
  // Key and value: latent and rotary key of a position.
  weights::Matrix kv_a_;          // [kv_lora_rank + rope, hidden]
  std::vector<float> kv_a_norm_;  // [kv_lora_rank]
  // kv_b of the checkpoint, [num_heads × (nope + v), kv_lora_rank], split per head.
  std::vector<weights::Matrix> to_latent_;            // [num_heads] of [kv_lora_rank, nope]
  std::vector<weights::Matrix> from_latent_;          // [num_heads] of [v, kv_lora_rank]
  std::vector<weights::Matrix> to_keys_;              // [num_heads] of [nope, kv_lora_rank]
  weights::Matrix gate_;                              // [num_heads, hidden], if there are gates
  weights::Matrix o_;                                 // [hidden, num_heads × v]
  std::vector<float> q_a_bias_, kv_a_bias_, o_bias_;  // as the rows; empty: none
  std::optional<SparseIndexer> indexer_;  // none: the model has none, or an earlier layer's choice
};

}  // namespace wideep::model
