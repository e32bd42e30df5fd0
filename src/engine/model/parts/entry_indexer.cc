// SPDX-License-Identifier: Apache-2.0
//
// Blocks of tokens are scored and then chosen from, as many as the scores have room for, like those
// of SparseIndexer. The kernel takes pages of kPageTokens keys, but the keys of entries are few in
// each page of the cache: a task gathers its own, which all tokens of the block share.
//
// The kernel counts positions where here are entries. Of consecutive tokens each sees at most one
// entry more than the one before: so the tokens of a block are taken as consecutive positions from
// the last entry of the first one on, and what is scored beyond a token's entries is not read.
#include "model/parts/entry_indexer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace wideep::model {
namespace {

using kernels::kPageTokens;

constexpr int kTokensPerTask = 16;  // share the keys that are gathered
constexpr int kPagesPerTask = 16;
constexpr size_t kScoresTogether = size_t{1} << 20;  // as many as stay in a cache near the cores

}  // namespace

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

// ---- choice of entries ----

// Tokens of a run, with scores of all entries of the last one.
struct EntryIndexer::Block {
  const TokenRun* run = nullptr;
  int first = 0;  // of the run's tokens
  int num_tokens = 0;
  int first_entries = 0;  // that its first token may attend to
  int num_entries = 0;    // and its last one
  int num_pages = 0;      // of entries, with room for those beyond
  size_t first_score = 0;

  size_t stride() const { return static_cast<size_t>(num_pages) * kPageTokens; }
  size_t num_scores() const { return static_cast<size_t>(num_tokens) * stride(); }
};

EntryIndexer::Block EntryIndexer::block_of(const CompressedPage& page, const TokenRun& run,
                                           int first) const {
  Block block{.run = &run, .first = first};
  block.num_tokens = std::min(kTokensPerTask, run.num_tokens - first);
  block.first_entries = page.visible(run.first_position + first);
  block.num_entries = page.visible(run.first_position + first + block.num_tokens - 1);
  block.num_pages = (block.first_entries + block.num_tokens + kPageTokens - 1) / kPageTokens;
  return block;
}

void EntryIndexer::choose(const MixerCall& call, const CompressedPage& page) const {
  std::vector<Block> blocks;
  size_t scores = 0;
  for (const TokenRun& run : call.scratch.step.runs) {
    if (page.visible(run.first_position + run.num_tokens - 1) <= config_->indexer.top_k) continue;
    for (int first = 0; first < run.num_tokens; first += kTokensPerTask) {
      Block block = block_of(page, run, first);
      if (block.num_entries <= config_->indexer.top_k) continue;
      if (scores + block.num_scores() > kScoresTogether) {
        choose_of(call, page, blocks);
        blocks.clear();
        scores = 0;
      }
      block.first_score = scores;
      scores += block.num_scores();
      blocks.push_back(block);
    }
  }
  choose_of(call, page, blocks);
}

// The scores of some pages of entries, from page `first` on.
void EntryIndexer::score(const MixerCall& call, const CompressedPage& page, const Block& block,
                         int first) const {
  thread_local Scratch memory, gathered;
  thread_local std::vector<kernels::KvPage> pages;
  const KvLayout& kv = call.kv;
  const IndexerConfig& options = config_->indexer;
  const auto heads = static_cast<size_t>(options.num_heads);
  const auto dim = static_cast<size_t>(options.head_dim);
  const int num_pages = std::min(kPagesPerTask, block.num_pages - first);
  const size_t row_bytes = page.index_stride * dtype_bytes(kv.index_dtype());
  const int begin = first * kPageTokens, end = (first + num_pages) * kPageTokens;
  auto* keys = gathered.get<std::byte>(static_cast<size_t>(end - begin) * row_bytes);
  for (int entry = begin; entry < end; ++entry) {
    std::byte* to = keys + static_cast<size_t>(entry - begin) * row_bytes;
    if (entry >= block.num_entries) {
      std::memset(to, 0, row_bytes);
      continue;
    }
    const int slot = page.slot(entry);
    std::byte* of_page = (*block.run->pages)[static_cast<size_t>(slot / kPageTokens)];
    std::memcpy(to,
                kv.keys(of_page, layer_, 0) + page.index_keys +
                    static_cast<size_t>(slot % kPageTokens) * row_bytes,
                row_bytes);
  }
  pages.clear();
  for (int i = 0; i < num_pages; ++i) {
    pages.push_back({keys + static_cast<size_t>(i * kPageTokens) * row_bytes, nullptr});
  }
  const auto token = static_cast<size_t>(block.run->first_token + block.first);
  kernels::IndexArgs args{.num_tokens = block.num_tokens,
                          .num_heads = options.num_heads,
                          .first_position = block.first_entries,
                          .dim = options.head_dim,
                          .q = call.scratch.index_query.get<float>(0) + token * heads * dim,
                          .q_token_stride = heads * dim,
                          .q_head_stride = dim,
                          .weights = call.scratch.index_weights.get<float>(0) + token * heads,
                          .weights_stride = heads,
                          .cache_dtype = kv.index_dtype(),
                          .row_stride = page.index_stride,
                          .pages = pages.data(),
                          .first_page = first,
                          .num_pages = num_pages,
                          .scores = call.scratch.index_scores.get<float>(0) + block.first_score,
                          .scores_stride = block.stride(),
                          .scratch = nullptr};
  args.scratch = memory.get<std::byte>(index_scratch_bytes(args));
  call.compute.kernels().index_scores(args);
}

// Two passes with all threads: over pages of entries, so that a single token is shared too; then
// over the tokens.
void EntryIndexer::choose_of(const MixerCall& call, const CompressedPage& page,
                             std::vector<Block>& blocks) const {
  if (blocks.empty()) return;
  const Compute& compute = call.compute;
  MixerScratch& scratch = call.scratch;
  const int top_k = config_->indexer.top_k;
  scratch.index_scores.get<float>(blocks.back().first_score + blocks.back().num_scores());
  std::vector<std::pair<const Block*, int>> parts, tokens;
  for (const Block& block : blocks) {
    for (int first = 0; first < block.num_pages; first += kPagesPerTask) {
      parts.emplace_back(&block, first);
    }
    for (int i = 0; i < block.num_tokens; ++i) tokens.emplace_back(&block, i);
  }
  compute.pool().parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t i, int64_t) {
    const auto& [block, first] = parts[static_cast<size_t>(i)];
    score(call, page, *block, first);
  });
  compute.pool().parallel_for(static_cast<int64_t>(tokens.size()), 1, [&](int64_t i, int64_t) {
    const auto& [block, number] = tokens[static_cast<size_t>(i)];
    const auto token = static_cast<size_t>(block->run->first_token + block->first + number);
    const int entries = page.visible(block->run->first_position + block->first + number);
    if (entries <= top_k) return;
    int32_t* chosen = scratch.index_positions.data() + token * static_cast<size_t>(top_k);
    const float* scores = scratch.index_scores.get<float>(0) + block->first_score +
                          static_cast<size_t>(number) * block->stride();
    const int count = kernels::select_top(scores, entries, top_k, chosen);
    for (int k = 0; k < count; ++k) chosen[k] = page.slot(chosen[k]);
    scratch.selected.first[token] = chosen;
    scratch.selected.count[token] = count;
  });
}

}  // namespace wideep::model
