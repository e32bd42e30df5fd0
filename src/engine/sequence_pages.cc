// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence_pages.h"

#include <algorithm>

namespace wideep::engine {
namespace {

using kernels::kPageTokens;

std::vector<std::byte*> memories_of(const ContextPlace& place) {
  return place.caches.empty() ? std::vector<std::byte*>(static_cast<size_t>(place.size))
                              : place.caches;
}

}  // namespace

SequencePages::SequencePages(const model::KvLayout& kv, const SchedulerLimits& limits,
                             const ContextPlace& place)
    : cache_(kv.page_bytes(), limits.max_pages, memories_of(place)),
      num_ranks_(place.size),
      turn_pages_(limits.turn_pages),
      reuse_(limits.reuse_pages),
      roles_differ_(limits.roles_differ) {}

std::span<const int32_t> SequencePages::tokens_of_page(const Sequence& sequence, int page) const {
  return std::span(sequence.tokens).subspan(static_cast<size_t>(page) * kPageTokens, kPageTokens);
}

// The role that PageCache distinguishes: 0, or the length of the prompt for a page with generated
// tokens. Equal tokens and an equal prompt length mean an equal prompt.
int SequencePages::role(const Sequence& sequence, int page) const {
  const bool generated = (page + 1) * kPageTokens > sequence.prompt_length();
  return roles_differ_ && generated ? sequence.prompt_length() : 0;
}

std::optional<int> SequencePages::first_rank(const Sequence& sequence,
                                             const std::list<Sequence>& others) const {
  // A first page is shared only if it is full and not the page of the last token.
  if (!reuse_ || num_ranks_ == 1 || sequence.tokens.size() <= kPageTokens) return std::nullopt;
  const std::span<const int32_t> first = tokens_of_page(sequence, 0);
  const auto page = cache_.find(PageCache::kRoot, first, role(sequence, 0));
  if (page) return cache_.rank(*page);
  // A running sequence may compute the same page soon.
  for (const Sequence& other : others) {
    if (other.tokens.size() <= kPageTokens) continue;
    if (std::ranges::equal(first, tokens_of_page(other, 0))) return other.first_rank;
  }
  return std::nullopt;
}

// Turns are dealt round-robin: full rounds give every rank turn_pages, the last round is cut.
int SequencePages::pages_on(int rank, const Sequence& sequence, int count) const {
  const int turn = (rank - sequence.first_rank + num_ranks_) % num_ranks_;
  const int round = num_ranks_ * turn_pages_;
  const int rest = std::clamp(count % round - turn * turn_pages_, 0, turn_pages_);
  return count / round * turn_pages_ + rest;
}

void SequencePages::append(Sequence& sequence, PageCache::PageId page) {
  sequence.page_ids.push_back(page);
  sequence.pages.push_back(cache_.bytes(page));
}

int SequencePages::reuse(Sequence& sequence) {
  if (!reuse_) return 0;
  const int before = sequence.num_computed, all = static_cast<int>(sequence.tokens.size());
  while (sequence.num_computed % kPageTokens == 0 && sequence.num_computed + kPageTokens < all) {
    const int page = sequence.num_computed / kPageTokens;
    const auto known =
        cache_.find(sequence.prefix, tokens_of_page(sequence, page), role(sequence, page));
    // All bookkeeping assumes that a page lies on the rank of its turn.
    if (!known || cache_.rank(*known) != rank_of_page(sequence, page)) break;
    cache_.share(*known);
    append(sequence, *known);
    sequence.prefix = cache_.prefix(*known);
    sequence.num_computed += kPageTokens;
  }
  return sequence.num_computed - before;
}

int SequencePages::fitting(const Sequence& sequence, int count) const {
  std::vector<int> left;
  for (int rank = 0; rank < num_ranks_; ++rank) left.push_back(cache_.available(rank));
  auto page = static_cast<int>(sequence.pages.size());
  while (page * kPageTokens < sequence.num_computed + count) {
    if (left[rank_of_page(sequence, page)]-- == 0) break;
    ++page;
  }
  return std::min(count, page * kPageTokens - sequence.num_computed);
}

void SequencePages::grow(Sequence& sequence, int end) {
  while (static_cast<int>(sequence.pages.size()) < pages_for(end)) {
    const auto page = static_cast<int>(sequence.pages.size());
    append(sequence, cache_.take(rank_of_page(sequence, page)));
  }
  if (!reuse_) return;
  for (int page = sequence.num_computed / kPageTokens; page < end / kPageTokens; ++page) {
    sequence.prefix = cache_.enter(sequence.page_ids[page], sequence.prefix,
                                   tokens_of_page(sequence, page), role(sequence, page));
  }
}

// The last page first: the cache evicts in the order of release, and a page is worth keeping only
// while the pages before it are there.
void SequencePages::release(Sequence& sequence, bool goes_on) {
  for (auto page = static_cast<int>(sequence.pages.size()) - 1; page >= 0; --page) {
    const PageCache::PageId id = sequence.page_ids[page];
    // Only a request with the same prompt could match such a page: it is not worth keeping.
    if (!goes_on && role(sequence, page) != 0) cache_.forget(id);
    cache_.release(id);
  }
  sequence.pages.clear();
  sequence.page_ids.clear();
  sequence.prefix = PageCache::kRoot;
  sequence.num_computed = 0;
}

}  // namespace wideep::engine
