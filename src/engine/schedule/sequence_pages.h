// SPDX-License-Identifier: Apache-2.0
//
// The pages of sequences: taken from the cache as tokens are computed, shared between sequences
// with equal tokens, and released.
//
// A sequence may share a page that holds the same tokens after the same prefix, of a prompt or
// generated. If the two roles differ in bits (latent attention, model/parts/latent_form.h), a page
// with generated tokens may be shared only by sequences with a prompt of the same length, hence the
// same prompt: the same request after a pause, or another request that generated the same tokens.
// Nothing else about a page depends on its request: not the batch, the chunks, or the rank that
// computed it. A full page can be shared from the iteration that computes it on: within an
// iteration, each layer writes all keys and values before any token attends to them.
//
// If the model keeps states, a running sequence also has the slot of its state. It can then share
// pages only up to a snapshot of the state there, so snapshots are kept where a later sequence may
// continue: at the last full page of a prompt (keep_state(), next_cut()), at the last one before its
// last message, at the last full page of a text so far, and at the end of pages that another
// sequence has too, but without a snapshot: where a third sequence may branch off as well. A
// snapshot ends with its page in the cache's index.
//
// With context parallelism, ranks hold the pages of their turns (schedule/scheduler.h), counted
// from the sequence's first rank. Sequences with the same first page have the same first rank, so
// that they can share pages.
//
// Where pages are kept beyond the cache (limits.record_class), it is told which pages have become
// known and computed, or are known no more, and which snapshots there are (take_news()). A page with
// a role is not kept: few requests can share it.
//
// Not thread safe.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "schedule/page_cache.h"
#include "schedule/page_changes.h"
#include "schedule/request.h"
#include "schedule/scheduler_limits.h"
#include "schedule/state_slots.h"

namespace wideep::engine {

class SequencePages {
 public:
  // state_bytes: of a sequence on this rank, whose states have no other bytes than its own, also if
  // other ranks share its sequences.
  SequencePages(const model::KvLayout& kv, size_t state_bytes, const SchedulerLimits& limits,
                const ContextPlace& place);
  SequencePages(const SequencePages&) = delete;
  SequencePages& operator=(const SequencePages&) = delete;

  const PageCache& cache() const { return cache_; }

  // The rank that has the sequence's first page; nullopt: the page is not known.
  std::optional<int> known_first_rank(const Sequence& sequence) const;
  // Whether they can share their first page, if one of them has computed it.
  bool begin_alike(const Sequence& a, const Sequence& b) const;
  int rank_of_page(const Sequence& sequence, int page) const {
    return (sequence.first_rank + page / turn_pages_) % num_ranks_;
  }
  // How many of the sequence's first `count` pages lie on `rank`.
  int pages_on(int rank, const Sequence& sequence, int count) const;

  // What the cache has of a sequence that has computed nothing: how many of its first pages can be
  // shared, and after how many of them there is a snapshot of the state.
  struct Known {
    int pages = 0;
    std::vector<int32_t> states;
  };
  Known known(const Sequence& sequence) const;

  // Shares the known pages that follow the computed tokens, but never the page of the last token,
  // whose logits are needed. Returns the number of tokens that need not be computed.
  int reuse(Sequence& sequence);
  // How many of the next `count` tokens have a page or can get one.
  int fitting(const Sequence& sequence, int count) const;
  // Takes pages for the tokens before `end`, which this iteration computes, and for `drafts` more,
  // and slots for the states before these. Enters the full pages into the cache's index, but for
  // those with drafts. REQUIRES: fitting(), fitting_drafts().
  void grow(Sequence& sequence, int end, int drafts = 0);
  // Takes the pages for the tokens before `end`, which grow() would take. REQUIRES: fitting().
  void take_pages(Sequence& sequence, int end);
  // How many of `drafts` drafts have slots for their states.
  int fitting_drafts(int drafts) const {
    return keeps_states() ? std::min(drafts, states_.num_free_for_drafts()) : drafts;
  }
  // The tokens from num_computed to `end` were drafts that turned out right: enters the pages that
  // they fill, and returns to the state after them. What other drafts have left in the pages is
  // overwritten by the tokens that come there.
  void accept(Sequence& sequence, int end);

  // ---- a step that is given up (Scheduler::give_up_step) ----

  // Before anything is entered for the tokens of a step: what was entered before is computed.
  void begin_step();
  // Removes from the index the pages that were entered since then: nobody has computed them.
  void forget_new_pages();
  // Whether another sequence has one of these pages too.
  bool shares_new_page(const Sequence& sequence) const;
  // The sequence has computed what it had before the step. It keeps its pages.
  static void take_back(Sequence& sequence);

  // Releases all pages and the state. goes_on: the sequence is paused and will look for its pages
  // again.
  void release(Sequence& sequence, bool goes_on);

  // ---- pages that are filled from elsewhere (schedule/lent_pages.h) ----

  // Shares the known pages, whether or not there is a snapshot.
  void share_known(Sequence& sequence);
  // null: the page lies on another rank, or has no bytes.
  std::byte* own_bytes(PageCache::PageId page) const;
  // Enters the sequence's pages up to `end`, which somebody has filled, into the cache's index.
  void import(Sequence& sequence, int end);

  // ---- news ----

  // Since the last call, of all steps but the present one.
  PageNews take_news();
  // The next news begin with all that was told, for one who knows nothing.
  void tell_again() { cache_.tell_again(); }

  // ---- states ----

  bool keeps_states() const { return states_.max_slots() > 0; }
  const StateSlots& states() const { return states_; }
  // Takes the slot of a sequence that begins to run, with the state after its computed tokens.
  // REQUIRES: keeps_states(), and a slot without a running sequence.
  void take_state(Sequence& sequence);
  // Takes a slot with undefined contents, without any tokens. REQUIRES: as take_state().
  void reserve_state(Sequence& sequence) { sequence.state = states_.reserve(); }
  // The reserved state has been filled: it becomes the snapshot after the computed tokens, which are
  // all known.
  void import_state(Sequence& sequence);
  // Null: it has no bytes.
  std::byte* state_bytes(const Sequence& sequence) {
    return has_state_bytes_ ? states_.bytes(sequence.state) : nullptr;
  }
  // The state after the computed tokens.
  std::byte* state(const Sequence& sequence) { return states_.bytes(sequence.state); }
  // The state after the draft before `draft`, or before the first one.
  std::byte* state_before_draft(const Sequence& sequence, int draft) {
    return states_.bytes(sequence.draft_states[static_cast<size_t>(draft)]);
  }
  // Makes a snapshot of the state if a later sequence may continue from it; in_any_case: wherever a
  // page ends. Once per place, so it may be called at any time after the tokens scheduled so far
  // were computed.
  void keep_state(Sequence& sequence, bool in_any_case = false);
  // The position before which the next chunk must end, because a snapshot is made there; or that of
  // the last token + 1.
  int next_cut(const Sequence& sequence) const;

 private:
  struct NewPage {
    PageCache::PageId id = 0;
    PageCache::Prefix prefix = PageCache::kRoot;  // another one: it has other contents since
    bool is_imported = false;                     // somebody has filled it
  };
  std::optional<PageCache::PageId> next_known(const Sequence& sequence, int page,
                                              PageCache::Prefix prefix) const;
  void share(Sequence& sequence, PageCache::PageId page);
  int reuse_pages(Sequence& sequence);
  bool keeps(PageCache::PageId page, const PageNames::Named& named) const;
  static int turn_end(const Sequence& sequence);
  void note_snapshot(const Sequence& sequence, bool is_imported);
  int reuse_to_snapshot(Sequence& sequence);
  std::span<const int32_t> tokens_of_page(const Sequence& sequence, int page) const;
  int role(const Sequence& sequence, int page) const;
  void append(Sequence& sequence, PageCache::PageId page);
  void enter(Sequence& sequence, int end);

  PageCache cache_;
  std::vector<NewPage> new_pages_;  // entered since begin_step()
  StateSlots states_;
  std::vector<KeptBytes> kept_;  // since take_news()
  int rank_;
  int num_ranks_;
  int turn_pages_;
  bool reuse_;
  bool roles_differ_;
  bool has_page_bytes_;
  bool has_state_bytes_;
};

}  // namespace wideep::engine
