// SPDX-License-Identifier: Apache-2.0
//
// The limits of a rank's iterations and KV cache, and the policies that distribute them to
// requests.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "schedule/prompt_gate.h"

namespace wideep::engine {

// When a request is admitted (TensorRT-LLM's scheduler_config.capacity_scheduler_policy).
enum class CapacityPolicy {
  kGuaranteedNoEvict,  // when the cache can hold all that it may generate: no request is paused
  kMaxUtilization,     // when it can hold its present tokens: when it is full, the youngest pause
};

struct SchedulerLimits {
  int max_batch_size = 64;   // requests in one iteration
  int max_num_tokens = 512;  // tokens in one iteration; at least max_batch_size
  int prefill_chunk = 0;     // most prompt tokens of one request in an iteration; 0: max_num_tokens
  // With context parallelism: most tokens of an iteration on one rank; 0: max_num_tokens.
  int max_rank_tokens = 0;
  // With context parallelism: consecutive pages of a sequence on one rank before the next rank.
  int turn_pages = 1;
  int max_pages = 0;  // pages of a rank's KV cache
  // Slots for the states of sequences (schedule/state_slots.h), at most as many run at once; 0: the
  // model keeps no states.
  int state_slots = 0;
  int draft_slots = 0;    // more of them, for states after drafts
  int draft_ahead = 0;    // tokens behind those of a step whose keys and values a drafter writes
  int micro_batches = 1;  // iterations in flight at the same time; the stages of a pipeline
  CapacityPolicy policy = CapacityPolicy::kGuaranteedNoEvict;
  // With kMaxUtilization: a request that has paused so often for want of pages runs again when the
  // cache can hold all that it may generate, and does not pause any more.
  int max_evictions = 3;
  PromptBalance balance;
  bool reuse_pages = false;  // requests share pages with equal tokens
  // The keys and values of a token depend on its role, prompt or generated
  // (model/parts/latent_form.h).
  bool roles_differ = false;
  // What pages are named by where they are kept beyond the cache (store/record.h); "": nowhere.
  std::string record_class = {};
};

// A rank's place among the ranks that share sequences (context parallelism).
struct ContextPlace {
  int rank = 0;
  int size = 1;
  // [size] the max_pages pages of each rank, readable by all; empty: size is 1, and the rank
  // allocates its pages itself.
  std::vector<std::byte*> caches;
};

}  // namespace wideep::engine
