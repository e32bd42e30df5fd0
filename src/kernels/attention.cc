// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::kernels {
namespace {

constexpr size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Rows of a task at most: their state (query, output, weights) stays in the second-level cache.
constexpr int kMostRows = 128;
// Fewer rows than this do not pay for packing a page of latents twice.
constexpr int kFewestRows = 16;
// Tasks per thread from which dynamic hand-out evens out what causality makes unequal.
constexpr int kTasksPerThread = 4;

}  // namespace

size_t attention_scratch_bytes(const AttentionArgs& args) {
  const size_t rows = static_cast<size_t>(args.num_rows());
  const size_t key = static_cast<size_t>(padded_key_dim(args.key_dim));
  const size_t value = static_cast<size_t>(padded_value_dim(args.value_dim));
  // Per row: query, output, sum lanes, largest (and as much again for ref's doubles).
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
  AttentionSplit split{.tokens_per_task = std::clamp(kMostRows / group, 1, problem.num_tokens),
                       .heads_per_task = std::min(group, kMostRows)};
  const int wanted = problem.num_threads * kTasksPerThread;
  const auto num_tasks = [&] {
    const int blocks = (problem.num_tokens + split.tokens_per_task - 1) / split.tokens_per_task;
    const int parts = (group + split.heads_per_task - 1) / split.heads_per_task;
    return problem.num_runs * problem.num_kv_heads * blocks * parts;
  };
  const auto rows = [&] { return split.tokens_per_task * split.heads_per_task; };
  if (problem.num_threads > 1) {
    while (num_tasks() < wanted && split.tokens_per_task > 1 && rows() >= 2 * kFewestRows) {
      split.tokens_per_task = (split.tokens_per_task + 1) / 2;
    }
    while (num_tasks() < problem.num_threads && rows() >= 2 * kFewestRows) {
      split.heads_per_task = (split.heads_per_task + 1) / 2;
    }
  }
  return split;
}

}  // namespace wideep::kernels
