// SPDX-License-Identifier: Apache-2.0
#include "model/parts/entry_indexer.h"

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "model/parts/entry_scores.h"

namespace wideep::model {

using kernels::kPageTokens;

// A list of each run, of which each token has a beginning. Tokens that may attend to more than there
// is room for get lists of their own.
void select_all_entries(const MixerCall& call, const CompressedPage& page, int room) {
  MixerScratch& scratch = call.scratch;
  const auto num_tokens = static_cast<size_t>(call.batch.num_tokens());
  scratch.selected.first.assign(num_tokens, nullptr);
  scratch.selected.count.assign(num_tokens, 0);
  size_t size = num_tokens * static_cast<size_t>(room);
  const auto entries_of = [&](const TokenRun& run) {
    const int visible = page.visible(run.first_position + run.num_tokens - 1);
    return room > 0 ? std::min(visible, room) : visible;
  };
  for (const TokenRun& run : scratch.step.runs) size += static_cast<size_t>(entries_of(run));
  scratch.index_positions.resize(size);
  int32_t* slots = scratch.index_positions.data() + num_tokens * static_cast<size_t>(room);
  for (const TokenRun& run : scratch.step.runs) {
    const int entries = entries_of(run);
    for (int i = 0; i < entries; ++i) slots[i] = page.slot(i);
    for (int t = 0; t < run.num_tokens; ++t) {
      const auto token = static_cast<size_t>(run.first_token + t);
      scratch.selected.first[token] = slots;
      scratch.selected.count[token] = page.visible(run.first_position + t);
    }
    slots += entries;
  }
}

Result<EntryIndexer> EntryIndexer::load(const ModelConfig& config, int layer,
                                        const weights::WeightLoader& loader,
                                        const LayerForms& forms, const std::string& prefix) {
  EntryIndexer indexer(config, layer);
  const IndexerConfig& options = config.indexer;
  WIDEEP_TRY_ASSIGN(indexer.query_,
                    loader.matrix(prefix + "q_b_proj.weight", options.num_heads * options.head_dim,
                                  config.compressed.query_rank, forms.index_query));
  WIDEEP_TRY_ASSIGN(
      indexer.weights_,
      loader.matrix(prefix + "scorer.weights_proj.weight", options.num_heads, config.hidden_size,
                    weights::default_form(kernels::WeightFormat::kF32)));
  return indexer;
}

void EntryIndexer::make_queries(const MixerCall& call, const float* h, const float* low,
                                const Rope& rope) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const IndexerConfig& options = config_->indexer;
  const int num_tokens = call.batch.num_tokens(), hidden = config_->hidden_size;
  const int rank = config_->compressed.query_rank;
  const auto tokens = static_cast<size_t>(num_tokens);
  const auto heads = static_cast<size_t>(options.num_heads);
  const auto dim = static_cast<size_t>(options.head_dim);
  float* q = scratch.index_query.get<float>(tokens * heads * dim);
  float* w = scratch.index_weights.get<float>(tokens * heads);
  compute.matmul(
      compute.cast(query_.packed.shape, float_rows(low, rank, num_tokens, rank), scratch.low_cast),
      query_.packed, q, heads * dim);
  compute.matmul(
      compute.cast(weights_.packed.shape, float_rows(h, hidden, num_tokens, hidden), scratch.cast),
      weights_.packed, w, heads);
  const float scale = 1.0f / std::sqrt(static_cast<float>(heads) * static_cast<float>(dim));
  const int kind = config_->layers[static_cast<size_t>(layer_)].attention_kind;
  const size_t plain = dim - static_cast<size_t>(rope.dim());
  compute.pool().parallel_for_ranges(num_tokens, 1, [&](int64_t begin, int64_t end) {
    for (auto token = static_cast<size_t>(begin); token < static_cast<size_t>(end); ++token) {
      const float* cos_sin = scratch.step.angles_of(kind, static_cast<int>(token), rope.dim());
      for (size_t head = 0; head < heads; ++head) {
        rope.rotate(compute.kernels(), cos_sin, q + (token * heads + head) * dim + plain);
      }
      compute.kernels().scale_row(scale, options.num_heads, w + token * heads);
    }
  });
}

void EntryIndexer::choose(const MixerCall& call, const CompressedPage& page) const {
  MixerScratch& scratch = call.scratch;
  const KvLayout& kv = call.kv;
  const int top_k = config_->indexer.top_k;
  const size_t row_bytes = page.index_stride * dtype_bytes(kv.index_dtype());
  const EntryKeys keys = {
      .group = page.group, .least = top_k, .find = [&](const PageList& pages, int entry) {
        const int slot = page.slot(entry);
        return kv.keys(pages[static_cast<size_t>(slot / kPageTokens)], layer_, 0) +
               page.index_keys + static_cast<size_t>(slot % kPageTokens) * row_bytes;
      }};
  score_entries(call, config_->indexer, keys, [&](int token, int entries, const float* scores) {
    const auto at = static_cast<size_t>(token);
    int32_t* chosen = scratch.index_positions.data() + at * static_cast<size_t>(top_k);
    const int count = kernels::select_top(scores, entries, top_k, chosen);
    for (int k = 0; k < count; ++k) chosen[k] = page.slot(chosen[k]);
    scratch.selected.first[at] = chosen;
    scratch.selected.count[at] = count;
  });
}

}  // namespace wideep::model
