// SPDX-License-Identifier: Apache-2.0
//
// Queries are rotated in place and kept until all keys of the batch are in the cache, since tokens
// choose among positions of the same batch too.
#include "model/parts/block_indexer.h"

#include <algorithm>
#include <limits>

#include "base/try.h"
#include "model/parts/index_scores.h"
#include "model/parts/norms.h"

namespace wideep::model {

BlockIndexer::BlockIndexer(const ModelConfig& config, int layer)
    : config_(&config),
      layer_(layer),
      kind_(config.attention_of(layer)),
      options_(kind_.options.blocks) {}

Result<BlockIndexer> BlockIndexer::load(const ModelConfig& config, int layer,
                                        const weights::WeightLoader& loader,
                                        const LayerForms& forms, const std::string& prefix) {
  BlockIndexer indexer(config, layer);
  const int hidden = config.hidden_size, dim = indexer.options_.head_dim;
  WIDEEP_TRY_ASSIGN(indexer.query_,
                    loader.matrix(prefix + "q_proj.weight", indexer.kind_.num_kv_heads * dim,
                                  hidden, forms.index_query));
  WIDEEP_TRY_ASSIGN(indexer.key_,
                    loader.matrix(prefix + "k_proj.weight", dim, hidden, forms.index_key));
  WIDEEP_TRY_ASSIGN(indexer.query_norm_, load_norm(config, loader, prefix + "q_norm.weight", dim));
  WIDEEP_TRY_ASSIGN(indexer.norm_, load_norm(config, loader, prefix + "k_norm.weight", dim));
  return indexer;
}

void BlockIndexer::write_cache(const MixerCall& call, const float* h, const Rope& rope,
                               const HeadRange& heads) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const int num_tokens = call.batch.num_tokens(), hidden = config_->hidden_size;
  const int dim = options_.head_dim;
  const size_t q_width = query_.packed.n();
  float* q = scratch.index_query.get<float>(static_cast<size_t>(num_tokens) * q_width);
  float* k = scratch.index_key.get<float>(static_cast<size_t>(num_tokens) * dim);
  const SourceRows rows = float_rows(h, hidden, num_tokens, hidden);
  const Product query{&query_.packed, q, q_width,
                      panels_of_columns(heads.first_kv * dim, heads.num_kv * dim), nullptr};
  compute.matmul(compute.cast(query_.packed.shape, rows, scratch.cast), std::span(&query, 1));
  compute.matmul(compute.cast(key_.packed.shape, rows, scratch.cast), key_.packed, k, dim);
  const kernels::Kernels& kernels = compute.kernels();
  const KvLayout& kv = call.kv;
  const int kind = config_->layers[static_cast<size_t>(layer_)].attention_kind;
  const size_t row_bytes = kv.heads_of(layer_).index_stride * dtype_bytes(kv.index_dtype());
  const float epsilon = config_->rms_norm_eps;
  for_each_token(compute, scratch.step, [&](int token, std::byte* page, int slot) {
    const float* cos_sin = scratch.step.angles_of(kind, token, rope.dim());
    const auto turn = [&](float* x, const std::vector<float>& norm) {
      kernels.rms_norm(x, norm.data(), epsilon, dim, x);
      rope.rotate(kernels, cos_sin, x);
    };
    float* key = k + static_cast<size_t>(token) * dim;
    turn(key, norm_);
    kernels.store_row(kv.index_dtype(), key, dim,
                      kv.index_keys(page, layer_) + static_cast<size_t>(slot) * row_bytes);
    for (int head = heads.first_kv; head < heads.first_kv + heads.num_kv; ++head) {
      turn(q + static_cast<size_t>(token) * q_width + static_cast<size_t>(head) * dim, query_norm_);
    }
  });
}

void BlockIndexer::select(const MixerCall& call, const HeadRange& heads) const {
  MixerScratch& scratch = call.scratch;
  SelectedBlocks& selected = scratch.blocks;
  const auto dim = static_cast<size_t>(options_.head_dim),
             q_width = static_cast<size_t>(query_.packed.n());
  const auto top_k = static_cast<size_t>(options_.top_k);
  const auto num_heads = static_cast<size_t>(heads.num_kv);
  const size_t num_lists = static_cast<size_t>(call.batch.num_tokens()) * num_heads;
  selected.size = options_.block;
  selected.num_heads = heads.num_kv;
  selected.first.assign(num_lists, nullptr);
  selected.count.assign(num_lists, 0);
  scratch.index_positions.resize(num_lists * top_k);
  static constexpr float kWeight = 1.0f;
  for (size_t head = 0; head < num_heads; ++head) {
    IndexScores scores(
        call.compute, call.kv, layer_, scratch.index_scores,
        [&](const IndexScores::Block& block, int number, const float* of_token) {
          const size_t list = static_cast<size_t>(block.first_token + number) * num_heads + head;
          int32_t* const chosen = scratch.index_positions.data() + list * top_k;
          selected.first[list] = chosen;
          choose(of_token, block.args.first_position + number, chosen, &selected.count[list]);
        });
    for (const TokenRun& run : scratch.step.runs) {
      if (!chooses(run)) continue;
      scores.add(run, {.num_heads = 1,
                       .dim = options_.head_dim,
                       .q = scratch.index_query.get<float>(0) +
                            static_cast<size_t>(run.first_token) * q_width +
                            (static_cast<size_t>(heads.first_kv) + head) * dim,
                       .q_token_stride = q_width,
                       .q_head_stride = dim,
                       .weights = &kWeight,
                       .weights_stride = 0,
                       .rectifies = false});
    }
    scores.finish();
  }
}

// The blocks of a token from its scores of positions.
void BlockIndexer::choose(const float* scores, int position, int32_t* blocks,
                          int32_t* count) const {
  thread_local std::vector<float> best;
  const int size = options_.block, last = position / size;
  best.clear();
  for (int block = 0; block <= last; ++block) {
    if (block > last - options_.nearest) {
      best.push_back(std::numeric_limits<float>::infinity());
      continue;
    }
    const float* const first = scores + static_cast<size_t>(block) * static_cast<size_t>(size);
    best.push_back(*std::max_element(first, first + size));
  }
  *count = kernels::select_top(best.data(), last + 1, options_.top_k, blocks);
}

}  // namespace wideep::model
