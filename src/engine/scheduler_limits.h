// SPDX-License-Identifier: Apache-2.0
//
// What bounds a rank's iterations and its cache, and by which policies requests get their shares.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/prompt_gate.h"

namespace wideep::engine {

// When a request is admitted (TensorRT-LLM's scheduler_config.capacity_scheduler_policy).
enum class CapacityPolicy {
  kGuaranteedNoEvict,  // when the cache can hold all it may generate: nobody is ever paused
  kMaxUtilization,     // when it can hold what is there: the youngest are paused when it is full
};

struct SchedulerLimits {
  int max_batch_size = 64;   // requests in one iteration
  int max_num_tokens = 512;  // tokens in one iteration; at least max_batch_size
  int prefill_chunk = 0;     // most prompt tokens of one request in an iteration; 0: max_num_tokens
  int max_rank_tokens = 0;   // of these on one rank that shares sequences; 0: max_num_tokens
  int turn_pages = 1;        // of a sequence that such a rank has before the next one's
  int max_pages = 0;         // of a rank's KV cache
  int micro_batches = 1;     // iterations under way at once; the stages of a pipeline
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  PromptBalance balance;
  bool reuse_pages = false;   // requests share pages whose tokens are the same
  bool roles_differ = false;  // keys and values of a token differ between prompt and generated
};

// A rank's place among those that share sequences.
struct ContextPlace {
  int rank = 0;
  int size = 1;
  // [size] where each one's pages lie, max_pages of them, for all to read; empty: of a rank alone,
  // in its own memory.
  std::vector<std::byte*> caches;
};

}  // namespace wideep::engine
