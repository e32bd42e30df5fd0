// SPDX-License-Identifier: Apache-2.0
//
// Which tokens of which requests a rank computes next: in-flight batching with chunked prefill.
//
// An iteration takes one token of every request that generates, then fills what is left of
// max_num_tokens with chunks of prompts. Requests are admitted in the order in which they come;
// when, the CapacityPolicy says:
//
//   guaranteed_no_evict  when the cache can hold its prompt and all it may generate
//   max_utilization      when it can hold what there is of it; when pages run out the youngest is
//                        paused: its pages are free, and it is computed again when there is room,
//                        before any that came later. The oldest always goes on.
//
// Pages that others have computed are taken over (engine/sequence_pages.h). Of prompts the oldest
// has the iteration's tokens, but up to half of them go to prompts with fewer tokens left, so that
// a long prompt does not hold up short ones, nor they the long one by more than as long as it takes
// itself. Nothing here changes an answer: see the promise of equal
// bits.
//
// In a pipeline several iterations are under way at once, micro-batches of different requests or of
// consecutive chunks of one prompt: a request whose token is still to come waits. Each iteration
// takes the next token of at most its share of the requests, so that all have about as many.
//
// Ranks that share sequences (context parallelism) schedule the same. The pages of a sequence are
// dealt to them in turns: a rank has those of its turns in its memory and computes their tokens, so
// that work grows evenly along a prompt though later tokens attend to more. Sequences begin with
// different ranks, so that short ones are spread too.
//
// Not thread safe.
#pragma once

#include <list>
#include <vector>

#include "engine/queue_record.h"
#include "engine/request.h"
#include "engine/scheduler_limits.h"
#include "engine/sequence_pages.h"
#include "model/batch.h"
#include "wideep/status.h"

namespace wideep::engine {

class Scheduler {
 public:
  Scheduler(const model::KvLayout& kv, const SchedulerLimits& limits, ContextPlace place = {});

  // Errors (invalid input): the request can never fit into the cache.
  Status submit(Request request);
  // Requests that have not begun wait until it is false again. REQUIRES: none has begun.
  void hold_requests(bool hold) { hold_requests_ = hold; }
  bool has_work() const { return !running_.empty() || (!waiting_.empty() && !hold_requests_); }
  int num_requests() const { return static_cast<int>(waiting_.size() + running_.size()); }

  // What one iteration computes. The batch, of this rank's tokens, points into the sequences' page
  // lists; `sampled[logit_places[i]]` is the sequence that its logit row i belongs to, and
  // `owners[t]` the one that token t belongs to.
  struct Step {
    model::Batch batch;
    std::vector<int32_t> logit_places;
    std::vector<Sequence*> owners;
    std::vector<Sequence*> sampled;  // on whatever rank
    int num_tokens = 0;              // likewise
    int prompt_tokens = 0;
    int num_requests = 0;
    int num_prompts = 0;  // of these: with prompt tokens
  };
  Step& schedule();
  // How things stood after the last schedule().
  const QueueRecord& record() const { return record_; }

  // For PromptGate: new prompts begin, or wait, from the next schedule() on.
  RankReadiness readiness() const;
  void hold_new_prompts(bool hold) { hold_new_prompts_ = hold; }

  // Ends the request of that index, if there is one: now, or with the token that it awaits.
  void cancel(int index);

  // Ends a request: its pages are free again. Invalidates the pointer.
  void finish(Sequence* sequence);

 private:
  using Sequences = std::list<Sequence>;

  void clear_step();
  void admit();
  bool begin(Sequence& sequence, std::vector<int>& claimed);
  void note_reuse(Sequence& sequence, int tokens);
  void insert_by_arrival(Sequences& from, Sequences::iterator sequence, Sequences& to);
  int pages_claimed(const Sequence& sequence) const;
  void add_claims(const Sequence& sequence, std::vector<int>& claimed) const;

  void make_room();
  bool room_for(const Sequence& sequence, int count, std::vector<int>& planned) const;
  bool pause_youngest_after(const Sequence& sequence);

  int share() const;
  void add_generating();
  void add_prompts();
  void add_short_prompts(int most);
  bool add_chunk(Sequence& sequence, int most);
  void add_tokens(Sequence& sequence, int count);
  void add_token(Sequence& sequence, int position);
  int fitting(const Sequence& sequence, int count) const;
  void note_record();

  SchedulerLimits limits_;
  ContextPlace place_;
  SequencePages pages_;
  std::vector<int> rank_tokens_;  // of each rank: of the step
  int next_first_rank_ = 0;
  int64_t num_submitted_ = 0;
  bool hold_new_prompts_ = false;
  bool hold_requests_ = false;
  Sequences waiting_, running_;     // lists: addresses stay. By arrival
  std::vector<Sequence*> prompts_;  // of the step, that may have a chunk
  Step step_;
  QueueRecord record_;
};

}  // namespace wideep::engine
