// SPDX-License-Identifier: Apache-2.0
//
// Which tokens of which requests a rank computes next: in-flight batching with chunked prefill.
//
// An iteration takes one token of every request that generates, then fills the rest of
// max_num_tokens with chunks of prompts. Requests are admitted in the order of submission. The
// CapacityPolicy decides when:
//
//   guaranteed_no_evict  when the cache can hold the prompt and all tokens that it may generate
//   max_utilization      when the cache can hold the tokens that exist. When pages run out, the
//                        youngest request is paused: its pages become free, and it is computed
//                        again when there is room, before any later request. The oldest request is
//                        never paused, and no request more than a few times: then it gets all pages
//                        that it may need.
//
// Drafts of generating requests (engine/speculation) take what is left of max_num_tokens after the
// tokens of all of these; at most half of it if prompts wait. They are computed like generated
// tokens, and those that turn out right are.
//
// A request shares pages that other requests have computed (schedule/sequence_pages.h). The oldest
// prompt gets the prompt tokens of an iteration, but up to half of them go to prompts with fewer
// tokens left. So a long prompt does not block short ones, and the short ones at most double its
// time. The schedule changes no answer: see the promise of equal bits.
//
// With the role decode an iteration that generates takes few prompt tokens beside, so that the next
// tokens of answers come evenly. Other iterations, and other roles, take as many as there is room
// for.
//
// In a pipeline several iterations (micro-batches) are in flight: of different requests, or of
// consecutive chunks of one prompt. A request whose sampled token is in flight waits. Each
// micro-batch samples at most its share of the running requests, so that all are about equally
// full.
//
// If the model keeps states (schedule/state_slots.h), a request is admitted when there is also a
// slot for its state, and chunks of its prompt end where a snapshot is made for others with the same
// prefix. A forward pass has advanced all states by the tokens of the step before the next
// schedule(), cancel() or finish().
//
// Ranks that share sequences (context parallelism) schedule the same. The pages of a sequence are
// dealt to them in turns. A rank holds the pages of its turns and computes their tokens. Later
// tokens attend to more keys; turns spread this work evenly. Different sequences begin with
// different ranks, so that short sequences are spread too.
//
// Pages of a prompt that are kept elsewhere need not be computed: the scheduler lends pages of its
// cache to be filled (schedule/lent_pages.h), and says which pages it has that are worth keeping
// (schedule/page_changes.h).
//
// Not thread safe.
#pragma once

#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/batch.h"
#include "schedule/lent_pages.h"
#include "schedule/page_changes.h"
#include "schedule/queue_record.h"
#include "schedule/request.h"
#include "schedule/role.h"
#include "schedule/scheduler_limits.h"
#include "schedule/sequence_pages.h"
#include "wideep/status.h"

namespace wideep::engine {

class Scheduler {
 public:
  // state_bytes: of a sequence on this rank, if the model keeps states (limits.state_slots > 0).
  Scheduler(const model::KvLayout& kv, const SchedulerLimits& limits, ContextPlace place = {},
            size_t state_bytes = 0);

  // Errors (invalid input): the request can never fit into the cache.
  Status submit(Request request);
  // While true, no request is admitted. REQUIRES, for true: no request is running.
  void hold_requests(bool hold) { hold_requests_ = hold; }
  // From the next schedule() on. Ranks that schedule the same hear it before the same one.
  void prefer(Role role) { role_ = role; }
  bool has_work() const { return !running_.empty() || (!waiting_.empty() && !hold_requests_); }
  int num_requests() const { return static_cast<int>(waiting_.size() + running_.size()); }

  // What one iteration computes. Valid until the next schedule().
  struct Step {
    // The tokens of this rank. Points into the page lists of the sequences.
    model::Batch batch;
    std::vector<int32_t> logit_places;  // [batch.logit_rows] which row of all logits it is
    std::vector<Sequence*> owners;      // [tokens of the batch] the sequence of each token
    // Over all ranks that share sequences:
    std::vector<Sequence*> sampled;  // sequences that get their next token
    // [sampled + 1] the first row of a sequence in all logits: those after its last token, then
    // those after each of its num_verifying drafts.
    std::vector<int32_t> first_row;
    int num_tokens = 0;
    int prompt_tokens = 0;
    int num_requests = 0;
    int num_prompts = 0;  // requests with prompt tokens
    // Of these, those that report it (Request::reports_progress), before their first token.
    std::vector<Sequence*> reporting;
  };
  Step& schedule();
  // The state after the last schedule().
  const QueueRecord& record() const { return record_; }

  // For PromptGate. hold_new_prompts takes effect with the next schedule().
  RankReadiness readiness() const;
  void hold_new_prompts(bool hold) { hold_new_prompts_ = hold; }

  // The tokens that a step has yielded for a sequence that it sampled: as many of its drafts as
  // were right, and one more. drafts: what may follow them.
  void append(Sequence& sequence, std::span<const int32_t> tokens, std::vector<int32_t> drafts);

  // Ends the request with that Request::index, if there is one: now, or if a token of it is in
  // flight, with that token. Returns whether it has ended.
  bool cancel(int index);

  // Ends a request and releases its pages. Invalidates the pointer.
  void finish(Sequence* sequence);

  // The last step was not computed, and never will be: its requests are as before it. Those that
  // this cannot be said of are paused: requests with states, which the step may have changed, and
  // those that share a page with a request of the step. Returns the requests that end, because they
  // were cancelled. REQUIRES: no other step is in flight.
  // Nobody shares the pages of the present step: they have wrong contents.
  void forget_step() { pages_.forget_new_pages(); }
  std::vector<int> give_up_step();
  // Ends all requests, which may come again: their pages stay, and what is lent stays lent. Returns
  // them. REQUIRES: no step is in flight.
  std::vector<int> drop_requests();

  // ---- pages that are kept elsewhere, too ----
  // Between steps: what was scheduled before is computed.

  // What the cache has of a prompt: how many of its first pages, never that of the last token, and
  // after how many of them a state.
  using KnownPrefix = SequencePages::Known;
  KnownPrefix known(const SharedTokens& prompt, const std::string& salt) const;

  // Pages to be filled with the prompt's pages from the known ones to num_pages, and a slot for the
  // state after them. nullopt: there is no room beside what running requests may claim, all of them
  // are known, or the ticket has lent already.
  // awaits_peer: the index of the request whose prompt it is, if a peer may compute it meanwhile.
  // Such a loan is long (schedule/lent_pages.h), and does not overtake waiting requests with a
  // smaller index: there must be room for these, too.
  using Lent = LentPages::Lent;
  std::optional<Lent> lend(uint64_t ticket, const SharedTokens& prompt, const std::string& salt,
                           int num_pages, std::optional<int> awaits_peer = std::nullopt);
  // The last long loan, if the last schedule() found requests but nothing to compute, because of
  // what is lent. If that lasts, the loan should end: servers may wait for each other.
  std::optional<uint64_t> loan_in_the_way() const;
  // The first num_pages pages of the prompt are filled, and, if these are all, the state: they are
  // known from now on. All that the ticket has lent is given back. No effect if that is nothing.
  void import(uint64_t ticket, int num_pages) { lent_.import(ticket, num_pages); }
  // All that is lent is given back; nothing was filled.
  void take_back_lent() { lent_.take_back(); }

  // What has happened to known pages since the last call; empty without limits.record_class. What
  // the present step computes, or was imported after it, is told after the next schedule().
  PageNews take_news() { return pages_.take_news(); }
  // The next news begin with all that was told, for one who knows nothing.
  void tell_again() { pages_.tell_again(); }

 private:
  using Sequences = std::list<Sequence>;

  void clear_step();
  void keep_states();
  void admit();
  size_t max_running() const;
  bool begin(Sequence& sequence, std::vector<int>& claimed);
  std::optional<int> first_rank(const Sequence& sequence) const;
  void note_reuse(Sequence& sequence, int tokens);
  void insert_by_arrival(Sequences& from, Sequences::iterator sequence, Sequences& to);
  bool has_reserved(const Sequence& sequence) const;
  int pages_claimed(const Sequence& sequence) const;
  void add_claims(const Sequence& sequence, std::vector<int>& claimed) const;
  std::vector<int> claims_of_running() const;
  void add_claims_before(int index, LentPages::Terms& terms) const;
  Sequence sequence_of(const SharedTokens& prompt, const std::string& salt) const;

  void make_room();
  bool room_for(const Sequence& sequence, int count, std::vector<int>& planned) const;
  bool pause_youngest_after(const Sequence& sequence);
  void pause(Sequences::iterator sequence);

  int share() const;
  void add_generating();
  void take_ahead(Sequence& sequence);
  bool reserve_token(Sequence& sequence, std::vector<int>& tokens);
  int left_for_drafts() const;
  int fitting_drafts(const Sequence& sequence, int max, std::vector<int>& tokens) const;
  void add_prompts();
  int left_for_prompts() const;
  void add_short_prompts(int max);
  bool add_chunk(Sequence& sequence, int max);
  void add_tokens(Sequence& sequence, int count, int drafts = 0);
  void add_token(Sequence& sequence, int position);
  int fitting(const Sequence& sequence, int count) const;
  void note_record();

  SchedulerLimits limits_;
  ContextPlace place_;
  SequencePages pages_;
  LentPages lent_;
  std::vector<int> rank_tokens_;  // [ranks that share sequences] tokens of the step
  int next_first_rank_ = 0;
  int64_t num_submitted_ = 0;
  bool hold_new_prompts_ = false;
  bool hold_requests_ = false;
  Role role_ = Role::kBoth;
  Sequences waiting_, running_;        // by arrival; lists, because a Step points to the elements
  std::vector<Sequence*> generating_;  // get a token in the step
  std::vector<Sequence*> prompts_;     // may get a chunk in the step
  Step step_;
  QueueRecord record_;
};

}  // namespace wideep::engine
