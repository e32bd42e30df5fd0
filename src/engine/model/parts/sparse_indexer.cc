// SPDX-License-Identifier: Apache-2.0
//
// Queries are rotated in place and kept with their weights until all keys of the batch are in the
// cache, since tokens choose among positions of the same batch too.
#include "model/parts/sparse_indexer.h"

#include <cmath>
#include <utility>

#include "base/try.h"
#include "model/parts/entry_scores.h"
#include "model/parts/group_pool.h"
#include "model/parts/index_scores.h"

namespace wideep::model {

using kernels::kPageTokens;

SparseIndexer::SparseIndexer(const ModelConfig& config, int layer)
    : config_(&config),
      layer_(layer),
      rope_(rope_of(config),
            config.layers[static_cast<size_t>(layer)].rotates ? config.qk_rope_head_dim : 0) {}

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
  if (!indexer.pools()) return indexer;
  WIDEEP_TRY_ASSIGN(indexer.gate_,
                    loader.matrix(prefix + "gate_proj.weight", dim, hidden, forms.index_key));
  WIDEEP_TRY_ASSIGN(indexer.gate_bias_,
                    loader.floats(prefix + "position_bias", {options.group, dim}));
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
  const int width = options.row_width();
  float* k = scratch.index_key.get<float>(tokens * width);
  float* w = scratch.index_weights.get<float>(tokens * heads);
  const SourceRows rows = float_rows(h, hidden, num_tokens, hidden);
  const SourceRows low_rows =
      float_rows(low, config_->q_lora_rank, num_tokens, config_->q_lora_rank);
  compute.matmul(compute.cast(query_.packed.shape, low_rows, scratch.low_cast), query_.packed, q,
                 static_cast<size_t>(heads) * dim);
  compute.matmul(compute.cast(weights_.packed.shape, rows, scratch.cast), weights_.packed, w,
                 heads);
  std::vector<Product> products = {
      {&key_.packed, k, static_cast<size_t>(width), all_panels(key_.packed)}};
  if (pools()) {
    products.push_back(
        {&gate_.packed, k + dim, static_cast<size_t>(width), all_panels(gate_.packed)});
  }
  compute.matmul(compute.cast(key_.packed.shape, rows, scratch.cast), products);
  const float scale = 1.0f / std::sqrt(static_cast<float>(heads) * static_cast<float>(dim));
  const kernels::Kernels& kernels = compute.kernels();
  const KvLayout& kv = call.kv;
  for_each_token(compute, scratch.step, [&](int token, std::byte* page, int slot) {
    const auto at = static_cast<size_t>(token);
    const float* cos_sin = scratch.step.angles_of(/*kind=*/0, token, rope_.dim());
    float* key = k + at * width;
    normalize(key);
    rope_.rotate(kernels, cos_sin, key);
    kernels.store_row(kv.index_dtype(), key, width,
                      kv.index_keys(page, layer_) + static_cast<size_t>(slot) * kv.index_stride *
                                                        dtype_bytes(kv.index_dtype()));
    for (int head = 0; head < heads; ++head) {
      rope_.rotate(kernels, cos_sin, q + (at * heads + head) * dim);
    }
    kernels.scale_row(scale, heads, w + at * heads);
  });
}

// ---- keys of groups ----

std::byte* SparseIndexer::row(const MixerCall& call, const PageList& pages, int position) const {
  const KvLayout& kv = call.kv;
  return kv.index_keys(pages[static_cast<size_t>(position / kPageTokens)], layer_) +
         static_cast<size_t>(position % kPageTokens) * kv.index_stride *
             dtype_bytes(kv.index_dtype());
}

void SparseIndexer::make_keys(const MixerCall& call) const {
  const int group = config_->indexer.group;
  std::vector<std::pair<const TokenRun*, int>> groups;
  for (const TokenRun& run : call.scratch.step.runs) {
    const int end = (run.first_position + run.num_tokens) / group;
    for (int i = run.first_position / group; i < end; ++i) groups.emplace_back(&run, i);
  }
  call.compute.pool().parallel_for(static_cast<int64_t>(groups.size()), 1, [&](int64_t i, int64_t) {
    const auto& [run, index] = groups[static_cast<size_t>(i)];
    make_key(call, *run->pages, index);
  });
}

void SparseIndexer::make_key(const MixerCall& call, const PageList& pages, int group) const {
  thread_local std::vector<float> rows, key;
  const Dtype dtype = call.kv.index_dtype();
  const int count = config_->indexer.group, dim = config_->indexer.head_dim;
  const auto width = static_cast<size_t>(2 * dim);
  rows.resize(static_cast<size_t>(count) * width);
  key.resize(static_cast<size_t>(dim));
  for (int j = 0; j < count; ++j) {
    const auto at = static_cast<size_t>(j);
    float* to = rows.data() + at * width;
    read_cached_row(dtype, row(call, pages, group * count + j), 0, 2 * dim, to);
    const float* bias = gate_bias_.data() + at * static_cast<size_t>(dim);
    for (int i = 0; i < dim; ++i) to[dim + i] += bias[i];
  }
  pool_group(rows.data(), count, dim, key.data());
  call.compute.kernels().store_row(dtype, key.data(), dim,
                                   row(call, pages, (group + 1) * count - 1));
}

// ---- choice ----

void SparseIndexer::select(const MixerCall& call) const {
  const auto num_tokens = static_cast<size_t>(call.batch.num_tokens());
  call.scratch.selected.first.assign(num_tokens, nullptr);
  call.scratch.selected.count.assign(num_tokens, 0);
  if (pools()) return select_groups(call);
  select_positions(call);
}

// All positions of the chosen groups, and those after the last complete one.
void SparseIndexer::select_groups(const MixerCall& call) const {
  thread_local std::vector<int32_t> chosen;
  MixerScratch& scratch = call.scratch;
  const IndexerConfig& options = config_->indexer;
  const int group = options.group, best = options.top_k / group;
  const auto room = static_cast<size_t>(options.first_choice());
  std::vector<size_t> choices(static_cast<size_t>(call.batch.num_tokens()));
  std::vector<int> positions(choices.size());
  size_t num_choosing = 0;
  for (const TokenRun& run : scratch.step.runs) {
    if (run.first_position < options.first_choice()) continue;
    for (int t = 0; t < run.num_tokens; ++t) {
      const auto token = static_cast<size_t>(run.first_token + t);
      choices[token] = num_choosing++;
      positions[token] = run.first_position + t;
    }
  }
  scratch.index_positions.resize(num_choosing * room);
  const EntryKeys keys = {.group = group,
                          .least = best,
                          .find = [&](const PageList& pages, int entry) -> const std::byte* {
                            return row(call, pages, (entry + 1) * group - 1);
                          }};
  score_entries(call, options, keys, [&](int index, int num_groups, const float* scores) {
    const auto token = static_cast<size_t>(index);
    chosen.resize(static_cast<size_t>(best));
    kernels::select_top(scores, num_groups, best, chosen.data());
    int32_t* const first = scratch.index_positions.data() + choices[token] * room;
    int32_t* to = first;
    for (const int32_t each : chosen) {
      for (int j = 0; j < group; ++j) *to++ = each * group + j;
    }
    for (int p = num_groups * group; p <= positions[token]; ++p) *to++ = p;
    scratch.selected.first[token] = first;
    scratch.selected.count[token] = static_cast<int32_t>(to - first);
  });
}

void SparseIndexer::select_positions(const MixerCall& call) const {
  MixerScratch& scratch = call.scratch;
  const IndexerConfig& options = config_->indexer;
  const auto heads = static_cast<size_t>(options.num_heads),
             dim = static_cast<size_t>(options.head_dim),
             top_k = static_cast<size_t>(options.top_k);
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
