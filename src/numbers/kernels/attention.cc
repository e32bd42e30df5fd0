// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::kernels {
namespace {

constexpr size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// So that the rows' state (query, output, weights) stays in the second-level cache.
constexpr int kMaxRowsPerTask = 128;
// With fewer rows, packing the same page of latents in two tasks costs more than it gains.
constexpr int kMinRowsPerTask = 16;
// Causal masking makes tasks unequal. With this many per thread, dynamic scheduling balances them.
constexpr int kTasksPerThread = 4;

}  // namespace

size_t attention_scratch_bytes(const AttentionArgs& args) {
  const size_t rows = static_cast<size_t>(args.num_rows());
  const size_t key = static_cast<size_t>(padded_key_dim(args.key_dim));
  const size_t value = static_cast<size_t>(padded_value_dim(args.value_dim));
  // Per row: query, output, sums by lane, maximum; twice the latter three, since ref uses doubles.
  const size_t state = aligned(rows * key * sizeof(float)) +
                       2 * aligned(rows * (value + kPanelWidth + 2) * sizeof(float));
  const size_t width = std::max({key, value, args.row_stride});
  return state + 3 * aligned(kPageTokens * width * sizeof(float));  // a page: keys, values, rows
}

std::string AttentionSplit::to_string() const {
  return fmt::format("{} tokens × {} heads per task", tokens_per_task, heads_per_task);
}

AttentionSplit choose_split(const AttentionProblem& problem) {
  const int group = problem.num_heads / problem.num_kv_heads;
  AttentionSplit split{
      .tokens_per_task = std::clamp(kMaxRowsPerTask / group, 1, problem.num_tokens),
      .heads_per_task = std::min(group, kMaxRowsPerTask)};
  const int wanted = problem.num_threads * kTasksPerThread;
  const auto num_tasks = [&] {
    const int blocks = (problem.num_tokens + split.tokens_per_task - 1) / split.tokens_per_task;
    const int parts = (group + split.heads_per_task - 1) / split.heads_per_task;
    return problem.num_runs * problem.num_kv_heads * blocks * parts;
  };
  const auto rows = [&] { return split.tokens_per_task * split.heads_per_task; };
  if (problem.num_threads > 1) {
    while (num_tasks() < wanted && split.tokens_per_task > 1 && rows() >= 2 * kMinRowsPerTask) {
      split.tokens_per_task = (split.tokens_per_task + 1) / 2;
    }
    while (num_tasks() < problem.num_threads && rows() >= 2 * kMinRowsPerTask) {
      split.heads_per_task = (split.heads_per_task + 1) / 2;
    }
  }
  return split;
}

}  // namespace wideep::kernels
