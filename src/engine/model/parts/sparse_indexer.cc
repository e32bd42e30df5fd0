// SPDX-License-Identifier: Apache-2.0
//
// Queries are rotated in place and kept with their weights until all keys of the batch are in the
// cache, since tokens choose among positions of the same batch too.
#include "model/parts/sparse_indexer.h"

#include <cmath>

#include "base/try.h"
#include "model/parts/index_scores.h"

namespace wideep::model {

// The frequencies are those of the attention; the pairs may be others.
RopeConfig SparseIndexer::rope_of(const ModelConfig& config) {
  RopeConfig rope = config.rope;
  rope.interleaved = config.indexer.rotates_interleaved;
  return rope;
}

Result<SparseIndexer> SparseIndexer::load(const ModelConfig& config, int layer,
                                          const weights::WeightLoader& loader,
                                          const LayerForms& forms, const std::string& prefix) {
  SparseIndexer indexer(config, layer);
  const IndexerConfig& options = config.indexer;
  const int hidden = config.hidden_size, dim = options.head_dim;
  WIDEEP_TRY_ASSIGN(indexer.query_, loader.matrix(prefix + "wq_b.weight", options.num_heads * dim,
                                                  config.q_lora_rank, forms.index_query));
  WIDEEP_TRY_ASSIGN(indexer.key_,
                    loader.matrix(prefix + "wk.weight", dim, hidden, forms.index_key));
  WIDEEP_TRY_ASSIGN(indexer.weights_,
                    loader.matrix(prefix + "weights_proj.weight", options.num_heads, hidden,
                                  weights::default_form(kernels::WeightFormat::kF32)));
  WIDEEP_TRY_ASSIGN(indexer.norm_, loader.floats(prefix + "k_norm.weight", {dim}));
  WIDEEP_TRY_ASSIGN(indexer.bias_, loader.floats(prefix + "k_norm.bias", {dim}));
  return indexer;
}

// Layer norm in place.
void SparseIndexer::normalize(float* key) const {
  const int dim = config_->indexer.head_dim;
  float sum = 0.0f, squares = 0.0f;
  for (int i = 0; i < dim; ++i) sum += key[i];
  const float mean = sum / static_cast<float>(dim);
  for (int i = 0; i < dim; ++i) squares += (key[i] - mean) * (key[i] - mean);
  const float inverse =
      1.0f / std::sqrt(squares / static_cast<float>(dim) + config_->indexer.norm_eps);
  for (int i = 0; i < dim; ++i) {
    const auto at = static_cast<size_t>(i);
    key[i] = (key[i] - mean) * inverse * norm_[at] + bias_[at];
  }
}

void SparseIndexer::write_cache(const MixerCall& call, const float* h, const float* low) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const IndexerConfig& options = config_->indexer;
  const int num_tokens = call.batch.num_tokens(), hidden = config_->hidden_size;
  const int dim = options.head_dim, heads = options.num_heads;
  const auto tokens = static_cast<size_t>(num_tokens);
  float* q = scratch.index_query.get<float>(tokens * heads * dim);
  float* k = scratch.index_key.get<float>(tokens * dim);
  float* w = scratch.index_weights.get<float>(tokens * heads);
  const SourceRows rows = float_rows(h, hidden, num_tokens, hidden);
  const SourceRows low_rows =
      float_rows(low, config_->q_lora_rank, num_tokens, config_->q_lora_rank);
  compute.matmul(compute.cast(query_.packed.shape, low_rows, scratch.low_cast), query_.packed, q,
                 static_cast<size_t>(heads) * dim);
  compute.matmul(compute.cast(weights_.packed.shape, rows, scratch.cast), weights_.packed, w,
                 heads);
  compute.matmul(compute.cast(key_.packed.shape, rows, scratch.cast), key_.packed, k, dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(heads) * static_cast<float>(dim));
  const kernels::Kernels& kernels = compute.kernels();
  const KvLayout& kv = call.kv;
  for_each_token(compute, scratch.step, [&](int token, std::byte* page, int slot) {
    const auto at = static_cast<size_t>(token);
    const float* cos_sin = scratch.step.angles_of(/*kind=*/0, token, rope_.dim());
    float* key = k + at * dim;
    normalize(key);
    rope_.rotate(kernels, cos_sin, key);
    kernels.store_row(kv.index_dtype(), key, dim,
                      kv.index_keys(page, layer_) + static_cast<size_t>(slot) * kv.index_stride *
                                                        dtype_bytes(kv.index_dtype()));
    for (int head = 0; head < heads; ++head) {
      rope_.rotate(kernels, cos_sin, q + (at * heads + head) * dim);
    }
    kernels.scale_row(scale, heads, w + at * heads);
  });
}

void SparseIndexer::select(const MixerCall& call) const {
  MixerScratch& scratch = call.scratch;
  const IndexerConfig& options = config_->indexer;
  const auto heads = static_cast<size_t>(options.num_heads),
             dim = static_cast<size_t>(options.head_dim),
             top_k = static_cast<size_t>(options.top_k);
  const auto num_tokens = static_cast<size_t>(call.batch.num_tokens());
  scratch.selected.first.assign(num_tokens, nullptr);
  scratch.selected.count.assign(num_tokens, 0);
  size_t num_choosing = 0;
  for (const TokenRun& run : scratch.step.runs) {
    if (run.first_position >= options.top_k) num_choosing += static_cast<size_t>(run.num_tokens);
  }
  scratch.index_positions.resize(num_choosing * top_k);
  IndexScores scores(
      call.compute, call.kv, layer_, scratch.index_scores,
      [&](const IndexScores::Block& block, int number, const float* of_token) {
        const auto token = static_cast<size_t>(block.first_token + number);
        int32_t* positions = scratch.index_positions.data() +
                             static_cast<size_t>(block.first_choice + number) * top_k;
        scratch.selected.first[token] = positions;
        scratch.selected.count[token] = kernels::select_top(
            of_token, block.args.first_position + number + 1, options.top_k, positions);
      });
  for (const TokenRun& run : scratch.step.runs) {
    if (run.first_position < options.top_k) continue;
    const auto token = static_cast<size_t>(run.first_token);
    scores.add(run, {.num_heads = options.num_heads,
                     .dim = options.head_dim,
                     .q = scratch.index_query.get<float>(0) + token * heads * dim,
                     .q_token_stride = heads * dim,
                     .q_head_stride = dim,
                     .weights = scratch.index_weights.get<float>(0) + token * heads,
                     .weights_stride = heads});
  }
  scores.finish();
}

}  // namespace wideep::model
