// SPDX-License-Identifier: Apache-2.0
//
// Scores need memory for each token and each position before it, far more than the choice. So
// tokens are taken in blocks, as many at once as the scores have a fixed amount of room for, and
// each block is scored and then chosen from. A block's tokens share the reading of a page of keys.
//
// Queries are rotated in place and kept with their weights until all keys of the batch are in the
// cache, since tokens choose among positions of the same batch too.
#include "model/parts/sparse_indexer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/try.h"

namespace wideep::model {
namespace {

using kernels::kPageTokens;

constexpr int kTokensPerTask = 16;  // share each page of keys that is read
constexpr int kPagesPerTask = 16;
constexpr size_t kScoresTogether = size_t{1} << 20;  // as many as stay in a cache near the cores

}  // namespace

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

// ---- choice of positions ----

// A block: tokens of a run, which go through all pages of the run's keys together.
struct SparseIndexer::Block {
  kernels::IndexArgs args;
  std::vector<kernels::KvPage> pages;
  int first_token = 0;     // of the batch
  int first_choice = 0;    // of these tokens in index_positions
  size_t first_score = 0;  // in index_scores
};

// The kernel's arguments for tokens [first, first + count) of the run.
SparseIndexer::Block SparseIndexer::block_of(const MixerCall& call, const TokenRun& run, int first,
                                             int count) const {
  const IndexerConfig& options = config_->indexer;
  const auto heads = static_cast<size_t>(options.num_heads),
             dim = static_cast<size_t>(options.head_dim);
  const auto token = static_cast<size_t>(run.first_token + first);
  const int end = run.first_position + first + count;
  Block block;
  block.first_token = run.first_token + first;
  for (int page = 0; page * kPageTokens < end; ++page) {
    block.pages.push_back(
        {call.kv.index_keys((*run.pages)[static_cast<size_t>(page)], layer_), nullptr});
  }
  block.args = {.num_tokens = count,
                .num_heads = options.num_heads,
                .first_position = run.first_position + first,
                .dim = options.head_dim,
                .q = call.scratch.index_query.get<float>(0) + token * heads * dim,
                .q_token_stride = heads * dim,
                .q_head_stride = dim,
                .weights = call.scratch.index_weights.get<float>(0) + token * heads,
                .weights_stride = heads,
                .cache_dtype = call.kv.index_dtype(),
                .row_stride = call.kv.index_stride,
                .first_page = 0,
                .num_pages = static_cast<int>(block.pages.size()),
                .scores_stride = block.pages.size() * kPageTokens};
  return block;
}

// As many blocks at a time as the scores have room for.
void SparseIndexer::select(const MixerCall& call) const {
  MixerScratch& scratch = call.scratch;
  const int top_k = config_->indexer.top_k;
  const auto num_tokens = static_cast<size_t>(call.batch.num_tokens());
  scratch.selected.first.assign(num_tokens, nullptr);
  scratch.selected.count.assign(num_tokens, 0);
  int num_choosing = 0;
  for (const TokenRun& run : scratch.step.runs) {
    if (run.first_position >= top_k) num_choosing += run.num_tokens;
  }
  scratch.index_positions.resize(static_cast<size_t>(num_choosing) * static_cast<size_t>(top_k));
  std::vector<Block> blocks;
  int choice = 0;
  size_t scores = 0;
  for (const TokenRun& run : scratch.step.runs) {
    if (run.first_position < top_k) continue;
    for (int first = 0; first < run.num_tokens; first += kTokensPerTask) {
      const int count = std::min(kTokensPerTask, run.num_tokens - first);
      Block block = block_of(call, run, first, count);
      const size_t more = static_cast<size_t>(count) * block.args.scores_stride;
      if (scores + more > kScoresTogether) {
        select_blocks(call, blocks, scores);
        blocks.clear();
        scores = 0;
      }
      block.first_choice = choice;
      block.first_score = scores;
      choice += count;
      scores += more;
      blocks.push_back(std::move(block));
    }
  }
  select_blocks(call, blocks, scores);
}

// Two passes with all threads: over parts of the blocks' pages, so that a single token with a long
// context is shared too; then over the tokens.
void SparseIndexer::select_blocks(const MixerCall& call, std::vector<Block>& blocks,
                                  size_t num_scores) const {
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const auto top_k = static_cast<size_t>(config_->indexer.top_k);
  float* scores = scratch.index_scores.get<float>(num_scores);
  std::vector<std::pair<const Block*, int>> parts, tokens;  // with its first page, with its number
  for (Block& block : blocks) {
    block.args.pages = block.pages.data();
    block.args.scores = scores + block.first_score;
    for (int page = 0; page < block.args.num_pages; page += kPagesPerTask) {
      parts.emplace_back(&block, page);
    }
    for (int i = 0; i < block.args.num_tokens; ++i) tokens.emplace_back(&block, i);
  }
  compute.pool().parallel_for(
      static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
        thread_local Scratch memory;
        for (int64_t i = begin; i < end; ++i) {
          const auto& [block, first_page] = parts[static_cast<size_t>(i)];
          kernels::IndexArgs part = block->args;
          part.first_page = first_page;
          part.num_pages = std::min(kPagesPerTask, part.num_pages - first_page);
          part.pages += first_page;
          part.scratch = memory.get<std::byte>(index_scratch_bytes(part));
          compute.kernels().index_scores(part);
        }
      });
  compute.pool().parallel_for(
      static_cast<int64_t>(tokens.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const auto& [block, number] = tokens[static_cast<size_t>(i)];
          const auto token = static_cast<size_t>(block->first_token + number);
          int32_t* positions = scratch.index_positions.data() +
                               static_cast<size_t>(block->first_choice + number) * top_k;
          scratch.selected.first[token] = positions;
          scratch.selected.count[token] = kernels::select_top(
              block->args.scores + static_cast<size_t>(number) * block->args.scores_stride,
              block->args.first_position + number + 1, config_->indexer.top_k, positions);
        }
      });
}

}  // namespace wideep::model
