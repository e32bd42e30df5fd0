// SPDX-License-Identifier: Apache-2.0
//
// Grouped-query attention (arXiv:2305.13245) with the options of GroupedQueryConfig and
// LayerConfig:
//
//   q, k, v = projections of h, with or without biases
//   norms of q and k before or after the rotation, of v; clamps; temperature by position
//   out     = o(softmax attention over the visible positions, times σ or softplus of gates)
//
// With an indexer (block_indexer.h), tokens from its first choice on attend to the blocks of
// positions that it chooses for them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/parts/block_indexer.h"
#include "model/parts/mixer.h"
#include "model/parts/rope.h"
#include "weights/weight_loader.h"

namespace wideep::model {

class GroupedQueryAttention : public Mixer {
 public:
  static Result<std::unique_ptr<Mixer>> load(const ModelConfig& config, int layer,
                                             const weights::WeightLoader& loader);

  void prepare(const MixerCall& call) const override;
  Result<const float*> forward(const MixerCall& call, const float* h) const override;

 private:
  GroupedQueryAttention(const ModelConfig& config, int layer);

  // Heads of one token that are normalised and rotated alike.
  struct Heads {
    float* first = nullptr;
    int count = 0;
    int stride = 0;                            // elements from head to head
    const std::vector<float>* norm = nullptr;  // empty: no weight
  };
  HeadRange heads_of(const TensorGroup& group) const {
    return group.heads(kind_.num_heads, kind_.num_kv_heads);
  }
  // The heads whose queries and keys are computed: all, if a norm goes over all of them.
  HeadRange computed_heads(const TensorGroup& group) const;
  bool normalizes() const;
  void normalize(const Compute& compute, const Heads& heads) const;
  void rotate(const Compute& compute, const float* cos_sin, const Heads& heads) const;
  void normalize_values(const Compute& compute, float* values, int count) const;
  void clamp(float* values, int count) const;
  void scale_by_position(const Compute& compute, int position, const Heads& heads) const;
  void write_cache(const MixerCall& call, float* q, float* k, float* v) const;
  // What gates a head's result: σ of numbers behind its query, or σ or softplus of g_proj's.
  void apply_gate(const Compute& compute, const float* gate, float* out) const;
  void gate(const Compute& compute, const TokenRun& run, const AttentionTask& task,
            const float* gates, float* heads) const;
  bool has_own_gate() const { return options_.gate != GroupedQueryConfig::Gate::kNone; }
  // Of the numbers that gate a head: how many there are, and from head to head.
  int gate_size() const {
    return options_.gate == GroupedQueryConfig::Gate::kHeads ? 1 : kind_.value_dim;
  }

  const ModelConfig& config_;
  const LayerConfig& layer_;
  const AttentionKind kind_;
  const GroupedQueryConfig& options_;  // of kind_
  Rope rope_;
  CachedAttention core_;
  weights::Matrix q_;  // [num_heads × head_dim (twice with gates), hidden]
  weights::Matrix k_;  // [num_kv_heads × head_dim, hidden]
  weights::Matrix v_;  // [num_kv_heads × value_dim, hidden]; empty where a value is its key
  weights::Matrix o_;  // [hidden, num_heads × value_dim]
  weights::Matrix g_;  // [num_heads or num_heads × value_dim, hidden]; empty: no gate of its own
  std::vector<float> q_bias_, k_bias_, v_bias_, o_bias_;  // as the rows; empty: none
  std::vector<float> q_norm_, k_norm_;   // [head_dim], or of all heads; empty: no weight
  std::vector<float> sinks_;             // [num_heads]; empty: none
  std::optional<BlockIndexer> indexer_;  // none: tokens attend to all positions
};

}  // namespace wideep::model
