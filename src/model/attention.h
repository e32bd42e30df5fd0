// SPDX-License-Identifier: Apache-2.0
//
// The attention half of a layer: x += attention(rms_norm(x)). One class per architecture, in
// deepseek_v3.h and qwen3_moe.h.
//
// Thread safety: weights are constant; everything else is used by one thread per rank.
#pragma once

#include <functional>
#include <vector>

#include "model/batch.h"
#include "model/compute.h"
#include "model/rope.h"
#include "model/tensor_group.h"

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
  // Consecutive tokens of a sequence with any roles, cut at every 16th position. Different threads
  // may write different pieces into the cache. They must not be smaller than a pair of positions:
  // writing an even position of a page also clears the odd one after it.
  std::vector<TokenRun> pieces;
  std::vector<AttentionTask> tasks;
  std::vector<float> angles;  // [num_tokens, rope dim], see Rope::angles

  // Computes runs, pieces and angles of the batch; clears the tasks.
  void start(const Compute& compute, const Batch& batch, const Rope& rope);
  // Adds the tasks of run `index` for these heads, cut by kernels::choose_split, the longest first.
  void add_tasks(const Compute& compute, int index, const HeadRange& heads);
  const float* angles_of(int token, int rope_dim) const {
    return angles.data() + static_cast<size_t>(token) * rope_dim;
  }
};

// Memory for intermediate results, shared by all layers of a rank.
struct AttentionScratch {
  AttentionStep step;
  Scratch cast, low_cast;
  Scratch query_low, query, key, value, kv_row;
  Scratch latent_query, latent_out;
};

// The arguments of one layer's attention.
struct AttentionCall {
  const Compute& compute;
  TensorGroup& group;
  TensorGroup& context;  // ranks that hold other tokens of the same sequences
  const Batch& batch;
  const KvLayout& kv;
  transport::Awaited where;
  AttentionScratch& scratch;
};

// The weights of one layer's attention; constant after loading, so that ranks can share them.
class Attention {
 public:
  virtual ~Attention() = default;

  // Computes call.scratch.step, which all layers share. Called on one of them before the first
  // layer's forward.
  virtual void prepare(const AttentionCall& call) const = 0;

  // h: [num_tokens, hidden], the normalised input. Writes the keys and values of the batch, for
  // this rank's heads, into the cache. Returns the output over all heads, [num_tokens, hidden], in
  // JointBuffer::kOutput. Collective over call.group and call.context.
  virtual Result<const float*> forward(const AttentionCall& call, const float* h) const = 0;

 protected:
  // A barrier of call.context after the batch's keys and values are written. Afterwards the pages
  // of all its ranks can be read in place: they lie in shared memory.
  static Status meet_in_cache(const AttentionCall& call, int layer);
  // The output projection: heads · oᵀ, where heads, [num_tokens, o.k()], is what all ranks of the
  // group have written to kHeads. Collective over call.group.
  static Result<const float*> project(const AttentionCall& call, const kernels::PackedMatrix& o);
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

  // Runs one task. q: [num_tokens, num_heads × key_dim]; out: [num_tokens, num_heads × value_dim],
  // both of the whole batch.
  void run(const Compute& compute, const KvLayout& kv, const TokenRun& run,
           const AttentionTask& task, const float* q, float* out) const;

  // The kernel's arguments, without pages and scratch.
  kernels::AttentionArgs args(const TokenRun& run, const AttentionTask& task, const float* q,
                              float* out) const;
};

// Calls body(token, page, slot) for every token, on all threads. Tokens of one piece (see
// AttentionStep) are called on one thread, in ascending order.
void for_each_token(const Compute& compute, const AttentionStep& step,
                    const std::function<void(int token, std::byte* page, int slot)>& body);

}  // namespace wideep::model
