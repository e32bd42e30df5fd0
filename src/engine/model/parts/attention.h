// SPDX-License-Identifier: Apache-2.0
//
// What the kinds of attention share: how an iteration's tokens are cut into runs and tasks, and the
// softmax attention of a task over cached pages.
//
// Thread safety: weights are constant; everything else is used by one thread per rank.
#pragma once

#include <functional>
#include <vector>

#include "model/batch.h"
#include "model/parts/compute.h"
#include "model/parts/rope.h"
#include "model/parts/tensor_group.h"

namespace wideep::model {

// Consecutive tokens of one sequence with one role: prompt or generated.
struct TokenRun {
  int first_token = 0;  // in the batch
  int num_tokens = 0;
  int first_position = 0;
  int prompt_length = 0;  // of the sequence
  const PageList* pages = nullptr;

  bool is_prompt() const { return first_position < prompt_length; }
};

// One call of the attention kernel, over all pages up to its last token.
struct AttentionTask {
  int run = 0;         // index in AttentionStep::runs
  int kv_head = 0;     // index in this rank's cache
  int first_head = 0;  // query head, counted over all heads of the model
  int num_heads = 0;
  int first_token = 0;  // of the run
  int num_tokens = 0;
};

// What all layers of an iteration share.
struct AttentionStep {
  std::vector<TokenRun> runs;
  // The tokens of each sequence in the step, whose states go token after token (Batch::states):
  // only first_token, counted in the step, and num_tokens.
  std::vector<TokenRun> sequences;
  // Consecutive tokens of a sequence with any roles, cut at every 16th position. Different threads
  // may write different pieces into the cache. They must not be smaller than a pair of positions:
  // writing an even position of a page also clears the odd one after it.
  std::vector<TokenRun> pieces;
  // What the layers of one kind share (LayerConfig::attention_kind).
  struct OfKind {
    std::vector<AttentionTask> tasks;
    std::vector<float> angles;  // [num_tokens, rope dim], see Rope::angles
  };
  std::vector<OfKind> kinds;

  // Computes runs, sequences and pieces of the batch; clears the tasks. split: runs end before this
  // position; 0: they do not.
  void start(const Batch& batch, int split, int num_kinds);
  const std::vector<AttentionTask>& tasks(int kind) const {
    return kinds[static_cast<size_t>(kind)].tasks;
  }
  void add(int kind, const AttentionTask& task) {
    kinds[static_cast<size_t>(kind)].tasks.push_back(task);
  }
  // Computes the angles of the batch.
  void rotate(const Compute& compute, const Batch& batch, int kind, const Rope& rope);
  // Adds the tasks of run `index` for these heads, cut by kernels::choose_split, the longest first.
  void add_tasks(const Compute& compute, int kind, int index, const HeadRange& heads);
  // The same with a task for each token, whose positions are its own choice.
  void add_token_tasks(const Compute& compute, int kind, int index, const HeadRange& heads);
  const float* angles_of(int kind, int token, int rope_dim) const {
    return kinds[static_cast<size_t>(kind)].angles.data() + static_cast<size_t>(token) * rope_dim;
  }

 private:
  void add_split_tasks(int kind, int index, const HeadRange& heads,
                       const kernels::AttentionSplit& split);
};

// The positions that each token of a batch attends to, ascending.
struct SelectedPositions {
  std::vector<const int32_t*> first;  // [num_tokens]
  std::vector<int32_t> count;         // [num_tokens]
};

// The blocks of positions that the tokens of a batch attend to, for each key-value head: ascending,
// and the last one is the token's own.
struct SelectedBlocks {
  int size = 0;       // positions of a block
  int num_heads = 0;  // of this rank's cache
  // [num_tokens, num_heads]
  std::vector<const int32_t*> first;
  std::vector<int32_t> count;
};

// What tasks read and write, of the whole batch.
struct AttentionRows {
  const float* q = nullptr;                     // [num_tokens, num_heads × key_dim]
  float* out = nullptr;                         // [num_tokens, num_heads × value_dim]
  const SelectedPositions* selected = nullptr;  // that the tokens attend to; null: all
  // Likewise, for tasks of one token. Not with `selected`, nor with a window or chunks.
  const SelectedBlocks* blocks = nullptr;
};

// The attention of one layer over cached pages.
struct CachedAttention {
  int layer = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  float scale = 1.0f;
  bool value_in_key = false;  // absorbed form: the value is the key's first value_dim elements
  // Grouped-query attention only.
  int q_stride = 0;  // elements from head to head of a query; 0: key_dim
  int window = 0;    // as in LayerConfig
  int chunk = 0;
  const float* sinks = nullptr;  // [num_heads], or null

  // Runs one task.
  void run(const Compute& compute, const KvLayout& kv, const TokenRun& run,
           const AttentionTask& task, const AttentionRows& rows) const;

  // The kernel's arguments, without pages, selected positions and scratch.
  kernels::AttentionArgs args(const TokenRun& run, const AttentionTask& task,
                              const AttentionRows& rows) const;

 private:
  // Appends the pages that the task attends to, and sets which ones they are in `call`.
  void find_pages(const KvLayout& kv, const TokenRun& run, const AttentionTask& task,
                  std::vector<kernels::KvPage>* pages, kernels::AttentionArgs* call) const;
  void find_blocks(const KvLayout& kv, const TokenRun& run, const AttentionTask& task,
                   const SelectedBlocks& blocks, std::vector<kernels::KvPage>* pages,
                   kernels::AttentionArgs* call) const;
};

// Calls body(token, page, slot) for every token, on all threads. Tokens of one piece (see
// AttentionStep) are called on one thread, in ascending order.
void for_each_token(const Compute& compute, const AttentionStep& step,
                    const std::function<void(int token, std::byte* page, int slot)>& body);

}  // namespace wideep::model
