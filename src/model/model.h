// SPDX-License-Identifier: Apache-2.0
//
// A model on one rank: the weights outside the experts, and the forward pass over a batch.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/mixer.h"
#include "model/moe.h"
#include "parallel/mapping.h"

namespace wideep::model {

// One layer. Either `mlp` (dense) or `moe` is set.
struct Layer {
  std::vector<float> mixer_norm;  // [hidden]
  std::unique_ptr<Mixer> mixer;
  std::vector<float> mlp_norm;  // [hidden]
  weights::MlpRecord mlp;
  std::unique_ptr<MoeWeights> moe;
};

// All weights but the routed experts; constant after loading, so that the ranks of a machine can
// share them.
class ModelWeights {
 public:
  // of_layers: the layers of a pipeline stage; nullopt: all. The other layers stay empty. Only the
  // first stage has the embedding, only the last the final norm and the LM head. REQUIRES: config
  // outlives the result. Errors: as WeightLoader.
  static Result<ModelWeights> load(const ModelConfig& config, const weights::WeightLoader& loader,
                                   std::optional<parallel::LayerRange> of_layers = {});

  Dtype dtype = Dtype::kBf16;    // of the embedding: kBf16 or kF32
  base::AlignedBytes embedding;  // [vocab, hidden] of dtype
  std::vector<Layer> layers;
  std::vector<float> final_norm;  // [hidden]
  weights::Matrix lm_head;        // [vocab, hidden]
};

// The rows that pass from one pipeline stage to the next: the residual stream of this rank's
// tokens, [group().tokens(batch).size, hidden] float32.
struct StageRows {
  const float* in = nullptr;  // from the previous stage; null: the first stage, embeds the tokens
  float* out = nullptr;       // for the next stage; null: the last stage, computes logits
};

// Thread safety: one thread per rank, which uses the threads of `compute`.
class Model {
 public:
  // layers: the layers of this rank's pipeline stage. group: the ranks that compute the same
  // batches (tensor parallelism); by default this rank alone. context: the ranks that hold other
  // tokens of the same sequences and read each other's pages (context parallelism). References
  // outlive this.
  Model(const ModelConfig& config, const ModelWeights& weights, Compute compute, MoeRunner& moe,
        parallel::LayerRange layers, TensorGroup group = {}, TensorGroup context = {})
      : config_(config),
        weights_(weights),
        compute_(compute),
        moe_(moe),
        layers_(layers),
        states_(config, layers),
        group_(std::move(group)),
        context_(std::move(context)) {}
  // All layers.
  Model(const ModelConfig& config, const ModelWeights& weights, Compute compute, MoeRunner& moe)
      : Model(config, weights, compute, moe, {0, config.num_layers}) {}

  const TensorGroup& group() const { return group_; }
  TensorGroup& context() { return context_; }
  const TensorGroup& context() const { return context_; }

  // The forward pass of one iteration. Collective over the ranks of `moe`, of the group (all pass
  // the same batch) and of the context, also for ranks without tokens. Errors: a peer failed or did
  // not answer in time. logits: [batch.logit_rows, vocab], filled on the last stage only.
  Status forward(const Batch& batch, const KvLayout& kv, int64_t iteration, const StageRows& rows,
                 std::vector<float>* logits);
  Status forward(const Batch& batch, const KvLayout& kv, int64_t iteration,
                 std::vector<float>* logits) {
    return forward(batch, kv, iteration, {}, logits);
  }

 private:
  // Calls run(row) for every row of this rank's tokens, on all threads.
  template <typename Run>
  void for_each_row(Run run) const {
    constexpr int64_t kRowsPerChunk = 16;
    compute_.pool().parallel_for_ranges(own_.size, kRowsPerChunk, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) run(own_.begin + row);
    });
  }
  void start(const Batch& batch);
  void prepare(const MixerCall& call);
  void embed(const Batch& batch);
  void copy_in(const float* rows);
  void copy_out(float* rows) const;
  void normalize(const std::vector<float>& norm);
  void add(const float* y);
  transport::Written own_input() const;
  Status forward_layer(const MixerCall& call, int layer);
  Status forward_mlp(const MixerCall& call, int layer);
  Status forward_moe(const MixerCall& call, int layer);
  Result<const float*> run_shared(const MixerCall& call, const MoeWeights& weights,
                                  std::span<const int32_t> tokens);
  void find_rows(const Batch& batch);
  Status head(const Batch& batch, const transport::Awaited& where, std::vector<float>* logits);

  const ModelConfig& config_;
  const ModelWeights& weights_;
  Compute compute_;
  MoeRunner& moe_;
  parallel::LayerRange layers_;
  StateLayout states_;
  TensorGroup group_, context_;
  ep::TokenRange own_;    // this rank's tokens of the batch; all but in a tensor group
  std::vector<float> x_;  // [num_tokens, hidden] residual stream; only own rows are computed
  float* h_ = nullptr;  // [num_tokens, hidden] normalised x_, in kInput; this rank writes own rows
  Scratch cast_;
  MixerScratch mixer_scratch_;
  MlpRunner mlp_runner_;
  std::vector<int32_t> all_;     // [num_tokens] 0, 1, ...
  std::vector<int32_t> wanted_;  // own tokens with logits, as indices from own_.begin, ascending
};

}  // namespace wideep::model
