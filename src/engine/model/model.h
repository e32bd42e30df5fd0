// SPDX-License-Identifier: Apache-2.0
//
// A model on one rank: the weights outside the experts, and the forward pass over a batch.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/config/config.h"
#include "model/parts/hyper_connection.h"
#include "model/parts/mixer.h"
#include "model/parts/moe.h"
#include "model/parts/norms.h"
#include "parallel/mapping.h"

namespace wideep::model {

// What a prediction layer (multi-token prediction, MTP) has around the parts of a layer. Its input
// is projection · [norm(embedding of the next token) ‖ norm(hidden)], where hidden is the output of
// the main model, or of a prediction, after its final norm.
//
// With hyper-connections hidden is each of the residual streams, before they are collapsed, and the
// projection is cut in two: stream s = stream_projection · norm(stream s) + projection · norm(e).
struct PredictionWeights {
  StreamNorm embedding_norm;
  StreamNorm hidden_norm;
  weights::Matrix projection;  // [hidden, 2 · hidden]; with hyper-connections [hidden, hidden]
  weights::Matrix stream_projection;  // [hidden, hidden]; with hyper-connections only
  HyperWeights end_hyper;             // as of the main model's end, ModelWeights::end_hyper
  StreamNorm final_norm;
};

// One layer. Either `mlp` (dense) or `moe` is set, or both (dense_beside_experts), or none where
// the layer is a mixer alone; the mixer is null where it is a feed-forward part alone. With
// hyper-connections each part has one; else they are empty. All norms are
// [hidden], and empty where the model has none; with parallel_parts mixer_norm is that of both
// parts.
struct Layer {
  std::unique_ptr<PredictionWeights> prediction;  // null: a layer of the main model
  HyperWeights mixer_hyper, mlp_hyper;
  StreamNorm mixer_norm, mixer_output_norm;
  std::unique_ptr<Mixer> mixer;
  StreamNorm mlp_norm, mlp_output_norm;
  weights::MlpRecord mlp;
  std::unique_ptr<MoeWeights> moe;
  // Of a dense MLP beside experts. mlp_norm is then of what the MLP takes, mlp_output_norm of the
  // sum of both results.
  StreamNorm dense_output_norm, experts_norm, experts_output_norm;
  float scalar = 1.0f;

  bool has_both() const { return moe != nullptr && !mlp.empty(); }
};

// All weights but the routed experts; constant after loading, so that the ranks of a machine can
// share them.
class ModelWeights {
 public:
  // of_layers: the layers of a pipeline stage; nullopt: all. The other layers stay empty. Only the
  // first stage and the one with prediction layers have the embedding, only the last the final norm
  // and the LM head. REQUIRES: config outlives the result. Errors: as WeightLoader.
  static Result<ModelWeights> load(const ModelConfig& config, const weights::WeightLoader& loader,
                                   std::optional<parallel::LayerRange> of_layers = {});

  Dtype dtype = Dtype::kBf16;    // of the embedding: kBf16 or kF32
  base::AlignedBytes embedding;  // [vocab, hidden] of dtype
  std::vector<Layer> layers;
  HyperWeights end_hyper;  // empty without hyper-connections, or without a learned end
  StreamNorm final_norm;
  weights::Matrix lm_head;       // [vocab, hidden]
  std::vector<float> head_bias;  // [vocab], or empty: none
};

// The rows that pass from one pipeline stage to the next: the residual streams of this rank's
// tokens, [group().tokens(batch).size, ModelConfig::stream_width()] float32.
struct StageRows {
  const float* in = nullptr;  // from the previous stage; null: the first stage, embeds the tokens
  float* out = nullptr;       // for the next stage; null: the last stage, computes logits
};

// A pass of a prediction layer.
struct PredictionCall {
  int layer = 0;  // of the prediction layers
  // ids: the tokens that follow the rows. positions: where the rows' keys and values are in the
  // layer's part of the cache.
  const Batch& batch;
  // [tokens of the batch] the outputs that the rows continue (Model::output());
  // null: zeros. Only those of this rank's tokens are read.
  std::span<const float* const> before;
  // The most logit rows of each rank that dispatches to this one; may be empty unless they share
  // the LM head.
  std::span<const int32_t> rows_of_ranks = {};
};

// Ranks with batches of their own that compute the LM head of their predictions together
// (enable_lm_head_tp_in_adp): neighbours, as many as lm_head_size() says, at most max_size.
struct SharedHead {
  TensorGroup ranks = {};  // all that dispatch to each other
  int max_size = 1;
};

// Thread safety: one thread per rank, which uses the threads of `compute`.
class Model {
 public:
  // layers: the layers of this rank's pipeline stage. group: the ranks that compute the same
  // batches (tensor parallelism); by default this rank alone. context: the ranks that hold other
  // tokens of the same sequences and read each other's pages (context parallelism). heads: the
  // ranks with batches of their own that share the LM head of predictions. References outlive this.
  Model(const ModelConfig& config, const ModelWeights& weights, Compute compute, MoeRunner& moe,
        parallel::LayerRange layers, TensorGroup group = {}, TensorGroup context = {},
        SharedHead heads = {})
      : config_(config),
        weights_(weights),
        compute_(compute),
        moe_(moe),
        layers_(layers),
        connection_(config),
        ahead_connection_(config),
        states_(config, layers,
                StatePart::of_rank(group.rank(), group.size(), context.rank(), context.size())),
        group_(std::move(group)),
        context_(std::move(context)),
        heads_(std::move(heads)) {}
  // All layers.
  Model(const ModelConfig& config, const ModelWeights& weights, Compute compute, MoeRunner& moe)
      : Model(config, weights, compute, moe, {0, config.num_all_layers()}) {}

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

  // Whether forward() has put out numbers for a token of the batch, of this rank's.
  bool is_number(int token) const {
    const float first =
        x_[static_cast<size_t>(token) * static_cast<size_t>(config_.stream_width())];
    return first == first;
  }

  // Multi-token prediction, on the last stage of a model with prediction layers, after forward():
  // what may follow the tokens of the batch. tokens: [batch.logit_rows] the likeliest token, of
  // equal ones the smallest. Collective as forward(), also for ranks without tokens.
  Status predict(const PredictionCall& call, const KvLayout& kv, int64_t iteration,
                 std::vector<int32_t>* tokens);
  // What the last call has put out after the final norm, [hidden]; with hyper-connections the
  // streams that this norm's input is collapsed from. forward(): for a row of this rank's tokens.
  // predict(): for a row of the batch; of the last prediction layer, for an index in logit_rows.
  // Valid until the next call returns.
  const float* output(int row) const {
    return hidden_.data() + static_cast<int64_t>(row) * config_.stream_width();
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
  // The rows whose maxima this rank finds, in a part of the vocabulary, and its own among them.
  struct HeadShare {
    const float* rows = nullptr;  // [num_rows, hidden]
    int num_rows = 0;
    int first_own = 0, num_own = 0;
    int part = 0, parts = 1;
    // [parts, rows of the group] of all parts; null: there is only one.
    Likeliest* maxima = nullptr;
    int first_row = 0, all_rows = 0;  // where `rows` begin in it
  };
  void start(const Batch& batch);
  void prepare(const MixerCall& call);
  void embed(const Batch& batch);
  void copy_in(const float* rows);
  void copy_out(float* rows) const;
  void normalize(const StreamNorm& norm);
  void take_in(const HyperWeights& hyper, const StreamNorm& norm);
  void add(const float* y, const StreamNorm& norm);
  void scale(float factor);
  transport::Written own_input() const;
  Status forward_layer(const MixerCall& call, int layer);
  Status forward_mlp(const MixerCall& call, int layer);
  Status forward_moe(const MixerCall& call, int layer);
  Result<const float*> run_mlp(const MixerCall& call, int layer);
  Status run_beside(const MixerCall& call, int layer);
  const float* router_rows(const HyperWeights& hyper, const StreamNorm& norm, Scratch* scratch);
  void add_experts(const Layer& layer);
  NextMoe next_moe(const Batch& batch, int index);
  Result<const float*> run_shared(const MixerCall& call, const MoeWeights& weights,
                                  std::span<const int32_t> tokens);
  void find_rows(const Batch& batch);
  ep::TokenRange own_logit_rows(const Batch& batch) const;
  Status normalize_logit_rows(const Batch& batch, const HyperWeights& end, const StreamNorm& norm,
                              const transport::Awaited& where);
  Status head(int num_rows, const transport::Awaited& where, std::vector<float>* logits);
  void finish_logits(int num_rows, float* logits) const;
  void keep_hidden();
  void normalize_input(const float* x, const StreamNorm& norm, float* y) const;
  void enter_prediction(const PredictionCall& call, const PredictionWeights& prediction);
  void enter_streams(const PredictionCall& call, const PredictionWeights& prediction);
  Status keep_outputs(const PredictionCall& call, const PredictionWeights& prediction,
                      const transport::Awaited& where);
  Status keep_streams(const PredictionCall& call, const PredictionWeights& prediction,
                      const transport::Awaited& where);
  HeadShare head_share(int num_rows);
  HeadShare gather_rows(int num_rows, std::span<const int32_t> rows_of_ranks);
  void find_maxima(const HeadShare& share);
  void choose_likeliest(const HeadShare& share, std::vector<int32_t>* tokens) const;

  const ModelConfig& config_;
  const ModelWeights& weights_;
  Compute compute_;
  MoeRunner& moe_;
  parallel::LayerRange layers_;
  HyperConnection connection_;
  HyperConnection ahead_connection_;  // of rows for other routers, beside those of connection_
  StateLayout states_;
  TensorGroup group_, context_;
  SharedHead heads_;
  ep::TokenRange own_;  // this rank's tokens of the batch; all but in a tensor group
  // [num_tokens, stream width] residual stream, or streams; only own rows are computed
  std::vector<float> x_;
  float* h_ = nullptr;  // [num_tokens, hidden] normalised x_, in kInput; this rank writes own rows
  Scratch cast_;
  Scratch next_h_;  // [own tokens, hidden] see NextMoe
  // [own tokens, hidden] where norms or hyper-connections follow: what experts, or the dense MLP
  // beside them, put out; and what the router takes, where it has a norm of its own.
  Scratch routed_, beside_, router_h_;
  MixerScratch mixer_scratch_;
  MlpRunner mlp_runner_;
  std::vector<int32_t> all_;     // [num_tokens] 0, 1, ...
  std::vector<int32_t> wanted_;  // own tokens with logits, as indices from own_.begin, ascending
  // With prediction layers: [rows, stream width], see output().
  std::vector<float> hidden_;
  std::vector<float> logit_rows_;  // [logit rows, hidden] of a prediction
  // [own tokens, 2 · hidden] the input of a projection. With hyper-connections: the normalised
  // streams, then embeddings, then what these give to all streams.
  Scratch joined_;
  std::vector<float> prediction_logits_;  // see find_maxima()
  std::vector<Likeliest> maxima_;         // [rows] of this rank's part of the vocabulary
};

}  // namespace wideep::model
