// SPDX-License-Identifier: Apache-2.0
//
// A model on one rank: the weights that every rank has, and the forward pass over a batch.
#pragma once

#include <memory>
#include <vector>

#include "model/attention.h"
#include "model/config.h"
#include "model/moe.h"

namespace wideep::model {

// One layer. Either `mlp` (dense) or `moe` is there.
struct Layer {
  std::vector<float> attention_norm;  // [hidden]
  std::unique_ptr<Attention> attention;
  std::vector<float> mlp_norm;  // [hidden]
  weights::MlpRecord mlp;
  std::unique_ptr<MoeWeights> moe;
};

// Everything but the routed experts; constant after loading, so that the ranks of a machine share
// it.
class ModelWeights {
 public:
  // REQUIRES: config outlives the result.
  static Result<ModelWeights> load(const ModelConfig& config, const weights::WeightLoader& loader);

  Dtype dtype = Dtype::kBf16;    // of the embedding: kBf16 or kF32
  base::AlignedBytes embedding;  // [vocab, hidden] of dtype
  std::vector<Layer> layers;
  std::vector<float> final_norm;  // [hidden]
  weights::Matrix lm_head;        // [vocab, hidden]
};

class Model {
 public:
  Model(const ModelConfig& config, const ModelWeights& weights, Compute compute, MoeRunner& moe)
      : config_(config), weights_(weights), compute_(compute), moe_(moe) {}

  // One iteration of the forward pass: collective over the ranks of `moe`.
  // logits: [batch.logit_rows, vocab], in the order of logit_rows.
  Status forward(const Batch& batch, const KvLayout& kv, int64_t iteration,
                 std::vector<float>* logits);

 private:
  // run(row) for every row, on all threads.
  template <typename Run>
  void for_each_row(int num_rows, Run run) const {
    constexpr int64_t kRowsPerChunk = 16;
    compute_.pool().parallel_for(num_rows, kRowsPerChunk, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) run(row);
    });
  }
  void embed(const Batch& batch);
  Status forward_layer(const Batch& batch, const KvLayout& kv, int layer, int64_t iteration);
  void head(const Batch& batch, std::vector<float>* logits);

  const ModelConfig& config_;
  const ModelWeights& weights_;
  Compute compute_;
  MoeRunner& moe_;
  std::vector<float> x_;  // [num_tokens, hidden] residual stream
  std::vector<float> h_;  // [num_tokens, hidden] normalised
  Scratch cast_;
  AttentionScratch attention_scratch_;
  MlpRunner mlp_runner_;
  std::vector<float> mlp_out_;
};

}  // namespace wideep::model
