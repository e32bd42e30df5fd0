// SPDX-License-Identifier: Apache-2.0
//
// The pages that sequences have: taken as their tokens are computed, taken over from others where
// the tokens are the same, and given back.
//
// Whose pages may be taken over: those that hold the same tokens after the same tokens, whether of
// a prompt or generated. Where the two roles differ in bits (latent attention, model/latent_form.h)
// pages with generated tokens serve only the same request, paused and gone on with, or one that has
// come to the same tokens from the same prompt. Nothing else of a page depends on its request: not
// on its batch, on its chunks, or on who computed it. Full pages are known from the iteration that
// computes them on: within it, keys and values are written before anyone attends to them.
//
// Ranks that share sequences have their turns of pages (engine/scheduler.h), counted from the
// sequence's first rank: sequences that begin alike begin with the same rank.
//
// Not thread safe.
#pragma once

#include <list>
#include <optional>

#include "engine/page_cache.h"
#include "engine/request.h"
#include "engine/scheduler_limits.h"

namespace wideep::engine {

class SequencePages {
 public:
  SequencePages(const model::KvLayout& kv, const SchedulerLimits& limits,
                const ContextPlace& place);

  const PageCache& cache() const { return cache_; }

  // The rank that others who begin alike begin with; nothing: nobody does.
  std::optional<int> first_rank(const Sequence& sequence, const std::list<Sequence>& others) const;
  int rank_of_page(const Sequence& sequence, int page) const {
    return (sequence.first_rank + page / turn_pages_) % num_ranks_;
  }
  // Of the sequence's first `count` pages.
  int pages_on(int rank, const Sequence& sequence, int count) const;

  // Takes over the known pages that follow what is computed, all but the last token's; returns how
  // many tokens need not be computed.
  int reuse(Sequence& sequence);
  // The most of the next `count` tokens for which there are pages.
  int fitting(const Sequence& sequence, int count) const;
  // Pages for the tokens before `end`, which are computed now. REQUIRES: there are.
  void grow(Sequence& sequence, int end);
  // All of them. goes_on: the sequence will ask for its own again.
  void release(Sequence& sequence, bool goes_on);

 private:
  std::span<const int32_t> tokens_of_page(const Sequence& sequence, int page) const;
  int role(const Sequence& sequence, int page) const;
  void append(Sequence& sequence, PageCache::PageId page);

  PageCache cache_;
  int num_ranks_;
  int turn_pages_;
  bool reuse_;
  bool roles_differ_;
};

}  // namespace wideep::engine
