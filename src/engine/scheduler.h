// SPDX-License-Identifier: Apache-2.0
//
// Which tokens of which requests a rank computes next: in-flight batching with chunked prefill.
//
// An iteration takes one token of every request that generates, then fills what is left of
// max_num_tokens with chunks of prompts, oldest request first. A request is admitted when the cache
// can hold its prompt and all it may generate, so that none is ever evicted (TensorRT-LLM's
// guaranteed_no_evict). Nothing here changes an answer: see the promise of equal bits.
//
// Not thread safe.
#pragma once

#include <deque>
#include <list>
#include <vector>

#include "engine/page_pool.h"
#include "engine/request.h"
#include "model/batch.h"
#include "wideep/status.h"

namespace wideep::engine {

struct SchedulerLimits {
  int max_batch_size = 64;   // requests in one iteration
  int max_num_tokens = 512;  // tokens in one iteration; at least max_batch_size
  int prefill_chunk = 0;     // most prompt tokens of one request in an iteration; 0: max_num_tokens
  int max_pages = 0;         // of the KV cache
};

class Scheduler {
 public:
  Scheduler(const model::KvLayout& kv, const SchedulerLimits& limits);

  // Errors (invalid input): the request can never fit into the cache.
  Status submit(Request request);
  bool has_work() const { return !waiting_.empty() || !running_.empty(); }

  // What one iteration computes. The batch points into the sequences' page lists; `sampled[i]` is
  // the sequence that logit row i belongs to, and `owners[t]` the one that token t belongs to.
  struct Step {
    model::Batch batch;
    std::vector<Sequence*> sampled;
    std::vector<Sequence*> owners;
    int prompt_tokens = 0;
  };
  Step& schedule();

  // Ends a request: its pages are free again. Invalidates the pointer.
  void finish(Sequence* sequence);

 private:
  void admit();
  void add_tokens(Sequence& sequence, int count);

  SchedulerLimits limits_;
  PagePool pool_;
  int reserved_pages_ = 0;  // by running requests, taken or not yet
  std::deque<Request> waiting_;
  std::list<Sequence> running_;  // a list: addresses stay
  Step step_;
};

}  // namespace wideep::engine
