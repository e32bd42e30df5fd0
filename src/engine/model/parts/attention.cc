// SPDX-License-Identifier: Apache-2.0
//
// A batch is cut two ways: into runs for the kernel, whose tokens have one role, and into pieces
// for writing the cache. The step, of which it may be a part, is cut into sequences, whose states
// go token after token. Tasks are cut from runs
// by tokens and heads, the longest first.
//
// A run says only where its tokens are; pages and arguments are gathered when a task runs, on its
// thread. So a step makes one list of tasks for all layers.
#include "model/parts/attention.h"

#include <algorithm>
#include <span>

#include "base/try.h"

namespace wideep::model {
namespace {

using kernels::kPageTokens;

constexpr int kPieceTokens = 16;  // divides kPageTokens: a piece lies in one page

enum class Roles { kOne, kBoth };

// The tokens of the step from `token` on that have its state.
TokenRun sequence_from(const Batch& batch, int token) {
  const auto first = batch.states.begin() + token;
  const auto end = std::find_if(first, batch.states.end(),
                                [&](const std::byte* state) { return state != *first; });
  return {.first_token = token, .num_tokens = static_cast<int>(end - first)};
}

// The longest run that begins with `token`.
TokenRun run_from(const Batch& batch, int token, Roles roles) {
  TokenRun run{.first_token = token,
               .num_tokens = 1,
               .first_position = batch.positions[token],
               .prompt_length = batch.prompt_lengths[token],
               .pages = batch.pages[token]};
  while (token + run.num_tokens < batch.num_tokens()) {
    const int next = token + run.num_tokens, position = run.first_position + run.num_tokens;
    if (batch.pages[next] != run.pages || batch.positions[next] != position) break;
    if (roles == Roles::kOne && (position < run.prompt_length) != run.is_prompt()) break;
    ++run.num_tokens;
  }
  return run;
}

// Cuts at multiples of kPieceTokens in the sequence, not in the run, so that pieces of different
// chunks meet at the same positions.
void cut(const TokenRun& run, std::vector<TokenRun>* pieces) {
  for (int done = 0; done < run.num_tokens;) {
    TokenRun piece = run;
    piece.first_token += done;
    piece.first_position += done;
    piece.num_tokens =
        std::min(kPieceTokens - piece.first_position % kPieceTokens, run.num_tokens - done);
    done += piece.num_tokens;
    pieces->push_back(piece);
  }
}

}  // namespace

void AttentionStep::start(const Batch& batch, int split, int num_kinds) {
  runs.clear();
  sequences.clear();
  pieces.clear();
  kinds.resize(static_cast<size_t>(num_kinds));
  for (OfKind& kind : kinds) kind.tasks.clear();
  for (int token = 0; token < batch.num_tokens(); token += runs.back().num_tokens) {
    runs.push_back(run_from(batch, token, Roles::kOne));
    TokenRun& run = runs.back();
    if (run.first_position < split) {
      run.num_tokens = std::min(run.num_tokens, split - run.first_position);
    }
  }
  for (int token = 0; token < batch.num_tokens();) {
    const TokenRun both = run_from(batch, token, Roles::kBoth);
    cut(both, &pieces);
    token += both.num_tokens;
  }
  const auto in_step = static_cast<int>(batch.states.size());
  for (int token = 0; token < in_step; token += sequences.back().num_tokens) {
    sequences.push_back(sequence_from(batch, token));
  }
}

void AttentionStep::rotate(const Compute& compute, const Batch& batch, int kind, const Rope& rope) {
  const int dim = rope.dim();
  std::vector<float>& angles = kinds[static_cast<size_t>(kind)].angles;
  angles.resize(static_cast<size_t>(batch.num_tokens()) * dim);
  compute.pool().parallel_for(batch.num_tokens(), kPieceTokens, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      rope.angles(batch.positions[token], angles.data() + token * dim);
    }
  });
}

void AttentionStep::add_tasks(const Compute& compute, int kind, int index, const HeadRange& heads) {
  add_split_tasks(kind, index, heads,
                  kernels::choose_split({.num_tokens = runs[index].num_tokens,
                                         .num_heads = heads.count,
                                         .num_kv_heads = heads.num_kv,
                                         .num_runs = static_cast<int>(runs.size()),
                                         .num_threads = compute.pool().num_threads()}));
}

void AttentionStep::add_token_tasks(const Compute& compute, int kind, int index,
                                    const HeadRange& heads) {
  const int others = static_cast<int>(runs.size()) - 1;
  add_split_tasks(kind, index, heads,
                  kernels::choose_split({.num_tokens = 1,
                                         .num_heads = heads.count,
                                         .num_kv_heads = heads.num_kv,
                                         .num_runs = runs[index].num_tokens + others,
                                         .num_threads = compute.pool().num_threads()}));
}

void AttentionStep::add_split_tasks(int kind, int index, const HeadRange& heads,
                                    const kernels::AttentionSplit& split) {
  const TokenRun& run = runs[index];
  const int group = heads.count / heads.num_kv;
  const int num_blocks = (run.num_tokens + split.tokens_per_task - 1) / split.tokens_per_task;
  // Later tokens attend to more positions. Starting with the longest tasks balances the threads.
  for (int block = num_blocks - 1; block >= 0; --block) {
    const int first = block * split.tokens_per_task;
    for (int kv_head = 0; kv_head < heads.num_kv; ++kv_head) {
      for (int head = 0; head < group; head += split.heads_per_task) {
        add(kind, {.run = index,
                   .kv_head = kv_head,
                   .first_head = heads.first + kv_head * group + head,
                   .num_heads = std::min(split.heads_per_task, group - head),
                   .first_token = first,
                   .num_tokens = std::min(split.tokens_per_task, run.num_tokens - first)});
      }
    }
  }
}

kernels::AttentionArgs CachedAttention::args(const TokenRun& run, const AttentionTask& task,
                                             const AttentionRows& rows) const {
  const size_t token = static_cast<size_t>(run.first_token + task.first_token);
  const auto head_stride = static_cast<size_t>(q_stride > 0 ? q_stride : key_dim);
  const size_t q_width = static_cast<size_t>(num_heads) * head_stride;
  const size_t out_width = static_cast<size_t>(num_heads) * value_dim;
  const size_t head = static_cast<size_t>(task.first_head);
  return {.num_tokens = task.num_tokens,
          .num_heads = task.num_heads,
          .first_position = run.first_position + task.first_token,
          .key_dim = key_dim,
          .value_dim = value_dim,
          .scale = scale,
          .window = window,
          .chunk = chunk,
          .sinks = sinks == nullptr ? nullptr : sinks + head,
          .q = rows.q + token * q_width + head * head_stride,
          .q_token_stride = q_width,
          .q_head_stride = head_stride,
          .out = rows.out + token * out_width + head * value_dim,
          .out_token_stride = out_width,
          .out_head_stride = static_cast<size_t>(value_dim)};
}

void CachedAttention::find_pages(const KvLayout& kv, const TokenRun& run, const AttentionTask& task,
                                 std::vector<kernels::KvPage>* pages,
                                 kernels::AttentionArgs* call) const {
  call->first_page = kernels::first_visible(window, chunk, call->first_position) / kPageTokens;
  const int end = (call->first_position + call->num_tokens + kPageTokens - 1) / kPageTokens;
  call->num_pages = end - call->first_page;
  for (int i = 0; i < call->num_pages; ++i) {
    std::byte* page = (*run.pages)[call->first_page + i];
    pages->push_back({kv.keys(page, layer, task.kv_head), kv.values(page, layer, task.kv_head)});
  }
}

// To the kernel the blocks are all positions that there are: keys are rotated already, so that it
// needs to know only how many positions the token sees.
void CachedAttention::find_blocks(const KvLayout& kv, const TokenRun& run,
                                  const AttentionTask& task, const SelectedBlocks& blocks,
                                  std::vector<kernels::KvPage>* pages,
                                  kernels::AttentionArgs* call) const {
  const auto list =
      static_cast<size_t>((run.first_token + task.first_token) * blocks.num_heads + task.kv_head);
  const std::span<const int32_t> chosen(blocks.first[list],
                                        static_cast<size_t>(blocks.count[list]));
  const int within = call->first_position % blocks.size;  // the token's own block
  call->first_position = (blocks.count[list] - 1) * blocks.size + within;
  call->first_page = 0;
  call->num_pages = call->first_position / kPageTokens + 1;
  const int pages_each = blocks.size / kPageTokens;
  for (int i = 0; i < call->num_pages; ++i) {
    const int page_index = chosen[i / pages_each] * pages_each + i % pages_each;
    std::byte* page = (*run.pages)[page_index];
    pages->push_back({kv.keys(page, layer, task.kv_head), kv.values(page, layer, task.kv_head)});
  }
}

void CachedAttention::run(const Compute& compute, const KvLayout& kv, const TokenRun& run,
                          const AttentionTask& task, const AttentionRows& rows) const {
  // Per thread: tasks run in parallel, and steady state shall not allocate.
  thread_local std::vector<kernels::KvPage> pages;
  thread_local Scratch scratch;
  kernels::AttentionArgs call = args(run, task, rows);
  call.cache_dtype = kv.dtype;
  call.form = value_in_key ? kernels::CacheForm::kRows : kernels::CacheForm::kPanels;
  call.row_stride = kv.row_stride;
  if (rows.selected != nullptr) {
    const int token = run.first_token + task.first_token;
    call.selected = rows.selected->first.data() + token;
    call.num_selected = rows.selected->count.data() + token;
  }
  pages.clear();
  if (rows.blocks != nullptr) {
    find_blocks(kv, run, task, *rows.blocks, &pages, &call);
  } else {
    find_pages(kv, run, task, &pages, &call);
  }
  call.pages = pages.data();
  call.scratch = scratch.get<std::byte>(attention_scratch_bytes(call));
  compute.kernels().attention(call);
}

void for_each_token(const Compute& compute, const AttentionStep& step,
                    const std::function<void(int token, std::byte* page, int slot)>& body) {
  compute.pool().parallel_for(
      static_cast<int64_t>(step.pieces.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const TokenRun& piece = step.pieces[i];
          for (int t = 0; t < piece.num_tokens; ++t) {
            const int position = piece.first_position + t;
            body(piece.first_token + t, (*piece.pages)[position / kPageTokens],
                 position % kPageTokens);
          }
        }
      });
}

}  // namespace wideep::model
