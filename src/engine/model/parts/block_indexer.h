// SPDX-License-Identifier: Apache-2.0
//
// The indexer of MiniMax sparse attention (MiniMax-M3): chooses for each token and key-value head
// the blocks of positions that the head's queries attend to.
//
//   q_I = q_proj(h), a head for each key-value head    normalised and rotated as the layer's queries
//   k_I = k_proj(h), one head                          likewise; cached
//   score(t, head, block) = max over its positions p ≤ t of q_I(t, head) · k_I(p)
//
// The token's own block and those just before it, `nearest` together, are always chosen, and then
// the blocks with the largest scores, until there are top_k. Tokens before position top_k · block
// attend to all positions, and need no choice.
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

class BlockIndexer {
 public:
  // prefix: "….self_attn.indexer.". Errors: as WeightLoader.
  static Result<BlockIndexer> load(const ModelConfig& config, int layer,
                                   const weights::WeightLoader& loader, const LayerForms& forms,
                                   const std::string& prefix);

  // Computes the batch's queries for these heads, and writes its keys into the cache. h:
  // [num_tokens, hidden], the layer's input. rope: of the layer's attention.
  void write_cache(const MixerCall& call, const float* h, const Rope& rope,
                   const HeadRange& heads) const;
  // After all keys are in the cache: chooses the blocks for these heads, into call.scratch.blocks.
  void select(const MixerCall& call, const HeadRange& heads) const;

  bool chooses(const TokenRun& run) const { return run.first_position >= options_.first_choice(); }

 private:
  BlockIndexer(const ModelConfig& config, int layer);
  void choose(const float* scores, int position, int32_t* blocks, int32_t* count) const;

  const ModelConfig* config_;
  int layer_;
  AttentionKind kind_;
  BlockIndexerConfig options_;
  weights::Matrix query_;                 // [num_kv_heads × head_dim, hidden]
  weights::Matrix key_;                   // [head_dim, hidden]
  std::vector<float> query_norm_, norm_;  // [head_dim] of the queries and of the keys
};

}  // namespace wideep::model
