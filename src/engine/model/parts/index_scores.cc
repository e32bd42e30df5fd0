// SPDX-License-Identifier: Apache-2.0
#include "model/parts/index_scores.h"

#include <algorithm>
#include <utility>

namespace wideep::model {
namespace {

using kernels::kPageTokens;

constexpr int kTokensTogether = 16;  // share each page of keys that is read
constexpr int kPagesPerTask = 16;
constexpr size_t kScoresTogether = size_t{1} << 20;  // as many as stay in a cache near the cores

}  // namespace

IndexScores::IndexScores(const Compute& compute, const KvLayout& kv, int layer, Scratch& memory,
                         Choose choose)
    : compute_(compute), kv_(kv), layer_(layer), memory_(memory), choose_(std::move(choose)) {}

void IndexScores::add(const TokenRun& run, const kernels::IndexArgs& args) {
  for (int first = 0; first < run.num_tokens; first += kTokensTogether) {
    Block block{.args = args,
                .first_token = run.first_token + first,
                .first_choice = num_choices_,
                .pages = {},
                .first_score = 0};
    kernels::IndexArgs& own = block.args;
    own.num_tokens = std::min(kTokensTogether, run.num_tokens - first);
    own.first_position = run.first_position + first;
    own.q += static_cast<size_t>(first) * own.q_token_stride;
    own.weights += static_cast<size_t>(first) * own.weights_stride;
    own.cache_dtype = kv_.index_dtype();
    own.row_stride = kv_.heads_of(layer_).index_stride;
    const int end = own.first_position + own.num_tokens;
    for (int page = 0; page * kPageTokens < end; ++page) {
      block.pages.push_back(
          {kv_.index_keys((*run.pages)[static_cast<size_t>(page)], layer_), nullptr});
    }
    own.first_page = 0;
    own.num_pages = static_cast<int>(block.pages.size());
    own.scores_stride = block.pages.size() * kPageTokens;
    const size_t more = static_cast<size_t>(own.num_tokens) * own.scores_stride;
    if (num_scores_ + more > kScoresTogether) finish();
    block.first_score = num_scores_;
    num_scores_ += more;
    num_choices_ += own.num_tokens;
    blocks_.push_back(std::move(block));
  }
}

// Two passes with all threads: over parts of the blocks' pages, so that a single token with a long
// context is shared too; then over the tokens.
void IndexScores::finish() {
  float* const scores = memory_.get<float>(std::exchange(num_scores_, 0));
  std::vector<std::pair<const Block*, int>> parts, tokens;  // with its first page, with its number
  for (Block& block : blocks_) {
    block.args.pages = block.pages.data();
    block.args.scores = scores + block.first_score;
    for (int page = 0; page < block.args.num_pages; page += kPagesPerTask) {
      parts.emplace_back(&block, page);
    }
    for (int i = 0; i < block.args.num_tokens; ++i) tokens.emplace_back(&block, i);
  }
  compute_.pool().parallel_for(
      static_cast<int64_t>(parts.size()), 1, [&](int64_t begin, int64_t end) {
        thread_local Scratch memory;
        for (int64_t i = begin; i < end; ++i) {
          const auto& [block, first_page] = parts[static_cast<size_t>(i)];
          kernels::IndexArgs part = block->args;
          part.first_page = first_page;
          part.num_pages = std::min(kPagesPerTask, part.num_pages - first_page);
          part.pages += first_page;
          part.scratch = memory.get<std::byte>(index_scratch_bytes(part));
          compute_.kernels().index_scores(part);
        }
      });
  compute_.pool().parallel_for(
      static_cast<int64_t>(tokens.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const auto& [block, number] = tokens[static_cast<size_t>(i)];
          choose_(*block, number,
                  block->args.scores + static_cast<size_t>(number) * block->args.scores_stride);
        }
      });
  blocks_.clear();
}

}  // namespace wideep::model
