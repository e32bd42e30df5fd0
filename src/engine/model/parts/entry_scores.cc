// SPDX-License-Identifier: Apache-2.0
//
// Blocks of tokens are scored and then chosen from, as many as the scores have room for, like those
// of IndexScores. The kernel takes pages of kPageTokens keys, but the keys of entries are few in
// each page of the cache: a task gathers its own, which all tokens of the block share.
//
// The kernel counts positions where here are entries. Of consecutive tokens each sees at most one
// entry more than the one before: so the tokens of a block are taken as consecutive positions from
// the last entry of the first one on, and what is scored beyond a token's entries is not read.
#include "model/parts/entry_scores.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace wideep::model {
namespace {

using kernels::kPageTokens;

constexpr int kTokensPerTask = 16;  // share the keys that are gathered
constexpr int kPagesPerTask = 16;
constexpr size_t kScoresTogether = size_t{1} << 20;  // as many as stay in a cache near the cores

// Tokens of a run, with scores of all entries of the last one.
struct Block {
  const TokenRun* run = nullptr;
  int first = 0;  // of the run's tokens
  int num_tokens = 0;
  int first_entries = 0;  // that its first token sees
  int num_entries = 0;    // and its last one
  int num_pages = 0;      // of entries, with room for those beyond
  size_t first_score = 0;

  size_t stride() const { return static_cast<size_t>(num_pages) * kPageTokens; }
  size_t num_scores() const { return static_cast<size_t>(num_tokens) * stride(); }
};

class Scorer {
 public:
  Scorer(const MixerCall& call, const IndexerConfig& options, const EntryKeys& keys,
         const ChooseEntries& choose)
      : call_(call), options_(options), keys_(keys), choose_(choose) {}

  void add(const TokenRun& run, int first);
  void finish();

 private:
  void score(const Block& block, int first_page) const;

  const MixerCall& call_;
  const IndexerConfig& options_;
  const EntryKeys& keys_;
  const ChooseEntries& choose_;
  std::vector<Block> blocks_;
  size_t num_scores_ = 0;
};

// Adds the block of the run's tokens from `first` on.
void Scorer::add(const TokenRun& run, int first) {
  Block block{.run = &run, .first = first};
  block.num_tokens = std::min(kTokensPerTask, run.num_tokens - first);
  block.first_entries = keys_.visible(run.first_position + first);
  block.num_entries = keys_.visible(run.first_position + first + block.num_tokens - 1);
  block.num_pages = (block.first_entries + block.num_tokens + kPageTokens - 1) / kPageTokens;
  if (block.num_entries <= keys_.least) return;
  if (num_scores_ + block.num_scores() > kScoresTogether) finish();
  block.first_score = num_scores_;
  num_scores_ += block.num_scores();
  blocks_.push_back(block);
}

// The scores of some pages of entries.
void Scorer::score(const Block& block, int first_page) const {
  thread_local Scratch memory, gathered;
  thread_local std::vector<kernels::KvPage> pages;
  const Dtype dtype = call_.kv.index_dtype();
  const auto heads = static_cast<size_t>(options_.num_heads);
  const auto dim = static_cast<size_t>(options_.head_dim);
  const int num_pages = std::min(kPagesPerTask, block.num_pages - first_page);
  const size_t stride = static_cast<size_t>(kernels::padded_value_dim(options_.head_dim));
  const size_t row_bytes = stride * dtype_bytes(dtype), key_bytes = dim * dtype_bytes(dtype);
  const int begin = first_page * kPageTokens, end = (first_page + num_pages) * kPageTokens;
  auto* keys = gathered.get<std::byte>(static_cast<size_t>(end - begin) * row_bytes);
  for (int entry = begin; entry < end; ++entry) {
    std::byte* to = keys + static_cast<size_t>(entry - begin) * row_bytes;
    const size_t known = entry < block.num_entries ? key_bytes : 0;
    if (known > 0) std::memcpy(to, keys_.find(*block.run->pages, entry), known);
    std::memset(to + known, 0, row_bytes - known);
  }
  pages.clear();
  for (int i = 0; i < num_pages; ++i) {
    pages.push_back({keys + static_cast<size_t>(i * kPageTokens) * row_bytes, nullptr});
  }
  MixerScratch& scratch = call_.scratch;
  const auto token = static_cast<size_t>(block.run->first_token + block.first);
  kernels::IndexArgs args{.num_tokens = block.num_tokens,
                          .num_heads = options_.num_heads,
                          .first_position = block.first_entries,
                          .dim = options_.head_dim,
                          .q = scratch.index_query.get<float>(0) + token * heads * dim,
                          .q_token_stride = heads * dim,
                          .q_head_stride = dim,
                          .weights = scratch.index_weights.get<float>(0) + token * heads,
                          .weights_stride = heads,
                          .cache_dtype = dtype,
                          .row_stride = stride,
                          .pages = pages.data(),
                          .first_page = first_page,
                          .num_pages = num_pages,
                          .scores = scratch.index_scores.get<float>(0) + block.first_score,
                          .scores_stride = block.stride(),
                          .scratch = nullptr};
  args.scratch = memory.get<std::byte>(index_scratch_bytes(args));
  call_.compute.kernels().index_scores(args);
}

// Two passes with all threads: over pages of entries, so that a single token is shared too; then
// over the tokens.
void Scorer::finish() {
  if (blocks_.empty()) return;
  const Compute& compute = call_.compute;
  const float* const scores = call_.scratch.index_scores.get<float>(std::exchange(num_scores_, 0));
  std::vector<std::pair<const Block*, int>> parts, tokens;  // with its first page, with its number
  for (const Block& block : blocks_) {
    for (int first = 0; first < block.num_pages; first += kPagesPerTask) {
      parts.emplace_back(&block, first);
    }
    for (int i = 0; i < block.num_tokens; ++i) tokens.emplace_back(&block, i);
  }
  compute.pool().parallel_for(static_cast<int64_t>(parts.size()), 1, [&](int64_t i, int64_t) {
    const auto& [block, first] = parts[static_cast<size_t>(i)];
    score(*block, first);
  });
  compute.pool().parallel_for(static_cast<int64_t>(tokens.size()), 1, [&](int64_t i, int64_t) {
    const auto& [block, number] = tokens[static_cast<size_t>(i)];
    const int in_run = block->first + number;
    const int entries = keys_.visible(block->run->first_position + in_run);
    if (entries <= keys_.least) return;
    choose_(block->run->first_token + in_run, entries,
            scores + block->first_score + static_cast<size_t>(number) * block->stride());
  });
  blocks_.clear();
}

}  // namespace

void score_entries(const MixerCall& call, const IndexerConfig& options, const EntryKeys& keys,
                   const ChooseEntries& choose) {
  Scorer scorer(call, options, keys, choose);
  for (const TokenRun& run : call.scratch.step.runs) {
    if (keys.visible(run.first_position + run.num_tokens - 1) <= keys.least) continue;
    for (int first = 0; first < run.num_tokens; first += kTokensPerTask) scorer.add(run, first);
  }
  scorer.finish();
}

}  // namespace wideep::model
