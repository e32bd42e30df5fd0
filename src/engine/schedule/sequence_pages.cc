// SPDX-License-Identifier: Apache-2.0
//
// A sequence has pages in a row, of which the first num_computed / kPageTokens are full, and a
// prefix that names their contents. reuse() appends known pages, grow() new ones, and both move the
// prefix on; release() undoes everything.
//
// Pages enter the index when their tokens are scheduled, before they are computed. So a request of
// the same iteration can share them already; a step that is given up takes them out again
// (new_pages_). Drafts enter only when they are accepted: a page with a wrong token must not be
// found. For the same reason pages are told as known only when the next step begins.
#include "schedule/sequence_pages.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace wideep::engine {
namespace {

using kernels::kPageTokens;

std::vector<std::byte*> memories_of(const ContextPlace& place) {
  return place.caches.empty() ? std::vector<std::byte*>(static_cast<size_t>(place.size))
                              : place.caches;
}

// The end of the last page that a sequence with so many tokens can share: never that of its last
// token.
int last_end(int num_tokens) { return (num_tokens - 1) / kPageTokens * kPageTokens; }

}  // namespace

SequencePages::SequencePages(const model::KvLayout& kv, size_t state_bytes,
                             const SchedulerLimits& limits, const ContextPlace& place)
    : cache_(kv.page_bytes(), limits.max_pages, memories_of(place), limits.record_class),
      states_(state_bytes, limits.state_slots, limits.draft_slots),
      rank_(place.rank),
      num_ranks_(place.size),
      turn_pages_(limits.turn_pages),
      reuse_(limits.reuse_pages),
      roles_differ_(limits.roles_differ),
      has_page_bytes_(kv.page_bytes() > 0),
      has_state_bytes_(state_bytes > 0) {
  if (!keeps_states()) return;
  cache_.on_forget([this](PageCache::Prefix prefix) { states_.drop(prefix); });
}

std::span<const int32_t> SequencePages::tokens_of_page(const Sequence& sequence, int page) const {
  return std::span(sequence.tokens).subspan(static_cast<size_t>(page) * kPageTokens, kPageTokens);
}

// The role that PageCache distinguishes: 0, or the length of the prompt for a page with generated
// tokens. Equal tokens and an equal prompt length mean an equal prompt.
int SequencePages::role(const Sequence& sequence, int page) const {
  const bool generated = (page + 1) * kPageTokens > sequence.prompt_length();
  return roles_differ_ && generated ? sequence.prompt_length() : 0;
}

// A first page is shared only if it is full and not the page of the last token.
std::optional<int> SequencePages::known_first_rank(const Sequence& sequence) const {
  if (!reuse_ || sequence.tokens.size() <= kPageTokens) return std::nullopt;
  const auto page = cache_.find(PageCache::kRoot, tokens_of_page(sequence, 0), role(sequence, 0),
                                sequence.request.salt);
  return page ? std::optional(cache_.rank(*page)) : std::nullopt;
}

bool SequencePages::begin_alike(const Sequence& a, const Sequence& b) const {
  return reuse_ && a.tokens.size() > kPageTokens && b.tokens.size() > kPageTokens &&
         a.request.salt == b.request.salt &&
         std::ranges::equal(tokens_of_page(a, 0), tokens_of_page(b, 0));
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

SequencePages::Known SequencePages::known(const Sequence& sequence) const {
  Known known;
  if (!reuse_) return known;
  PageCache::Prefix prefix = PageCache::kRoot;
  while (const auto next = next_known(sequence, known.pages, prefix)) {
    ++known.pages;
    prefix = cache_.prefix(*next);
    if (states_.knows(prefix)) known.states.push_back(known.pages);
  }
  return known;
}

int SequencePages::reuse(Sequence& sequence) {
  if (!reuse_ || sequence.num_computed % kPageTokens != 0) return 0;
  return keeps_states() ? reuse_to_snapshot(sequence) : reuse_pages(sequence);
}

// The known page that follows `page` pages, of which the last one ends with `prefix`; nullopt:
// there is none, or it is the page of the last token.
std::optional<PageCache::PageId> SequencePages::next_known(const Sequence& sequence, int page,
                                                           PageCache::Prefix prefix) const {
  if ((page + 1) * kPageTokens >= static_cast<int>(sequence.tokens.size())) return std::nullopt;
  const auto known = cache_.find(prefix, tokens_of_page(sequence, page), role(sequence, page),
                                 sequence.request.salt);
  // All bookkeeping assumes that a page lies on the rank of its turn.
  if (!known || cache_.rank(*known) != rank_of_page(sequence, page)) return std::nullopt;
  return known;
}

// A sequence whose step was given up has a page there already, which it has not computed.
void SequencePages::share(Sequence& sequence, PageCache::PageId page) {
  cache_.share(page);
  const auto at = static_cast<size_t>(sequence.num_computed / kPageTokens);
  if (at < sequence.page_ids.size()) {
    cache_.release(std::exchange(sequence.page_ids[at], page));
    sequence.pages[at] = cache_.bytes(page);
  } else {
    append(sequence, page);
  }
  sequence.prefix = cache_.prefix(page);
  sequence.prefix_page = page;
  sequence.num_computed += kPageTokens;
}

int SequencePages::reuse_pages(Sequence& sequence) {
  const int before = sequence.num_computed;
  while (const auto known =
             next_known(sequence, sequence.num_computed / kPageTokens, sequence.prefix)) {
    share(sequence, *known);
  }
  return sequence.num_computed - before;
}

// Pages after the last snapshot are computed again, together with the state.
int SequencePages::reuse_to_snapshot(Sequence& sequence) {
  const int first = sequence.num_computed / kPageTokens;
  std::vector<PageCache::PageId> known;
  size_t useful = 0;  // pages up to the last snapshot
  PageCache::Prefix prefix = sequence.prefix;
  while (const auto next = next_known(sequence, first + static_cast<int>(known.size()), prefix)) {
    known.push_back(*next);
    prefix = cache_.prefix(*next);
    if (states_.knows(prefix)) useful = known.size();
  }
  if (first == 0 && known.size() > useful) {
    sequence.branch = static_cast<int>(known.size()) * kPageTokens;
  }
  if (useful == 0) return 0;
  for (size_t i = 0; i < useful; ++i) share(sequence, known[i]);
  sequence.kept_at = sequence.num_computed;
  if (sequence.state != StateSlots::kNone) states_.restore(sequence.state, sequence.prefix);
  return static_cast<int>(useful) * kPageTokens;
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

void SequencePages::take_pages(Sequence& sequence, int end) {
  while (static_cast<int>(sequence.pages.size()) < pages_for(end)) {
    const auto page = static_cast<int>(sequence.pages.size());
    append(sequence, cache_.take(rank_of_page(sequence, page)));
  }
}

void SequencePages::grow(Sequence& sequence, int end, int drafts) {
  take_pages(sequence, end + drafts);
  enter(sequence, end);
  if (!keeps_states()) return;
  for (int draft = 0; draft < drafts; ++draft) sequence.draft_states.push_back(states_.lend());
}

// A snapshot may be wanted at each page's end that the drafts have passed.
void SequencePages::accept(Sequence& sequence, int end) {
  std::vector<int32_t>& before = sequence.draft_states;
  if (before.empty()) return enter(sequence, end);
  const int first = sequence.num_computed;
  for (int at = pages_for(first) * kPageTokens; at < end; at += kPageTokens) {
    enter(sequence, at);
    sequence.num_computed = at;
    int32_t& state = before[static_cast<size_t>(at - first)];
    StateSlots::exchange(sequence.state, state);
    keep_state(sequence, true);
    StateSlots::exchange(sequence.state, state);
  }
  enter(sequence, end);
  const auto accepted = static_cast<size_t>(end - first);
  if (accepted < before.size()) StateSlots::exchange(sequence.state, before[accepted]);
  for (const int32_t slot : before) states_.give_back(slot);
  before.clear();
}

void SequencePages::enter(Sequence& sequence, int end) {
  if (!reuse_ || sequence.is_spoiled) return;
  for (int page = sequence.num_computed / kPageTokens; page < end / kPageTokens; ++page) {
    const PageCache::Prefix before = sequence.prefix;
    const std::span<const int32_t> tokens = tokens_of_page(sequence, page);
    const PageCache::PageId id = sequence.page_ids[page];
    const std::string& salt = sequence.request.salt;
    sequence.prefix = cache_.enter(id, before, tokens, role(sequence, page), salt);
    if (cache_.prefix(id) == sequence.prefix) {
      new_pages_.push_back({.id = id, .prefix = sequence.prefix});
    }
    // Another page may have the same content and be the known one.
    if (keeps_states()) {
      sequence.prefix_page = *cache_.find(before, tokens, role(sequence, page), salt);
    }
  }
}

void SequencePages::begin_step() {
  for (const auto& [page, prefix, is_imported] : new_pages_) {
    // It may have been lent since, and imported behind pages that are told after this one.
    if (cache_.prefix(page) != prefix) continue;
    const PageNames::Named* named = cache_.tell(page);
    if (named == nullptr || !keeps(page, *named)) continue;
    const Version& version = cache_.version(page);
    kept_.push_back({.head = named->head,
                     .bytes = cache_.bytes(page),
                     .version = &version,
                     .seen = version.now(),
                     .is_imported = is_imported});
  }
  new_pages_.clear();
}

void SequencePages::forget_new_pages() {
  for (const auto& [page, prefix, is_imported] : new_pages_) {
    if (!is_imported && cache_.prefix(page) == prefix) cache_.forget(page);
  }
}

bool SequencePages::shares_new_page(const Sequence& sequence) const {
  return std::ranges::any_of(sequence.page_ids, [this](PageCache::PageId page) {
    return cache_.users(page) > 1 &&
           std::ranges::find(new_pages_, page, &NewPage::id) != new_pages_.end();
  });
}

void SequencePages::take_back(Sequence& sequence) {
  sequence.num_computed = sequence.before_step->num_computed;
  sequence.prefix = sequence.before_step->prefix;
  sequence.is_spoiled = sequence.before_step->is_spoiled;
  sequence.num_verifying = 0;
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
  sequence.is_spoiled = false;
  for (const int32_t slot : sequence.draft_states) states_.give_back(slot);
  sequence.draft_states.clear();
  if (sequence.state != StateSlots::kNone) states_.release(sequence.state);
  sequence.state = StateSlots::kNone;
  sequence.prefix_page = -1;
  sequence.kept_at = 0;
  sequence.own_snapshot = StateSlots::kNoTokens;
  sequence.branch = 0;
}

// ---- pages that are filled from elsewhere ----

void SequencePages::share_known(Sequence& sequence) {
  if (reuse_) reuse_pages(sequence);
}

std::byte* SequencePages::own_bytes(PageCache::PageId page) const {
  return has_page_bytes_ && cache_.rank(page) == rank_ ? cache_.bytes(page) : nullptr;
}

void SequencePages::import(Sequence& sequence, int end) {
  const size_t before = new_pages_.size();
  enter(sequence, end);
  for (size_t i = before; i < new_pages_.size(); ++i) new_pages_[i].is_imported = true;
  sequence.num_computed = end;
}

void SequencePages::import_state(Sequence& sequence) {
  const StateSlots::SlotId state = std::exchange(sequence.state, StateSlots::kNone);
  if (states_.adopt(state, sequence.prefix)) note_snapshot(sequence, /*is_imported=*/true);
}

// ---- news ----

PageNews SequencePages::take_news() {
  return {.changes = cache_.take_changes(), .kept = std::exchange(kept_, {})};
}

bool SequencePages::keeps(PageCache::PageId page, const PageNames::Named& named) const {
  return named.role == 0 && own_bytes(page) != nullptr;
}

void SequencePages::note_snapshot(const Sequence& sequence, bool is_imported) {
  const PageNames::Named* named = cache_.named(sequence.prefix_page);
  if (named == nullptr || named->role != 0 || !has_state_bytes_) return;
  const StateSlots::SlotId slot = states_.snapshot(sequence.prefix);
  const Version& version = states_.version(slot);
  kept_.push_back({.head = named->head,
                   .bytes = states_.bytes(slot),
                   .version = &version,
                   .seen = version.now(),
                   .is_imported = is_imported});
  kept_.back().head.kind = store::Kind::kState;
}

// ---- states ----

void SequencePages::take_state(Sequence& sequence) {
  sequence.state = states_.take(sequence.prefix);
}

// The end of the last page before the last message, which a later prompt may replace or follow; at
// most that of the last page that can be shared. 0: there is none.
int SequencePages::turn_end(const Sequence& sequence) {
  return std::min(sequence.request.turn_begin / kPageTokens * kPageTokens,
                  last_end(sequence.prompt_length()));
}

int SequencePages::next_cut(const Sequence& sequence) const {
  const auto all = static_cast<int>(sequence.tokens.size());
  if (!keeps_states() || !reuse_) return all;
  int cut = all;
  for (const int end : {sequence.branch, turn_end(sequence), last_end(all)}) {
    if (end > sequence.num_computed) cut = std::min(cut, end);
  }
  return cut;
}

// Of a prompt, one snapshot stays; of the text after it only the latest, because a chat continues
// from its end.
void SequencePages::keep_state(Sequence& sequence, bool in_any_case) {
  const int end = sequence.num_computed;
  if (!reuse_ || sequence.is_spoiled) return;
  if (end % kPageTokens != 0 || end == sequence.kept_at) return;
  const bool at_cut = in_any_case || end == sequence.branch || end == turn_end(sequence) ||
                      end == last_end(static_cast<int>(sequence.tokens.size())) ||
                      !sequence.in_prefill();
  // The known page may be that of another sequence, and be gone already.
  if (!at_cut || cache_.prefix(sequence.prefix_page) != sequence.prefix) return;
  sequence.kept_at = end;
  const bool follows_prompt = end > last_end(sequence.prompt_length());
  if (follows_prompt && sequence.own_snapshot != StateSlots::kNoTokens) {
    states_.drop(std::exchange(sequence.own_snapshot, StateSlots::kNoTokens));
  }
  // While drafts are verified, `state` already follows them.
  const bool in_flight = !in_any_case && !sequence.draft_states.empty();
  const StateSlots::SlotId state = in_flight ? sequence.draft_states.front() : sequence.state;
  const bool is_new = states_.keep(state, sequence.prefix);
  if (!is_new) return;
  if (follows_prompt) sequence.own_snapshot = sequence.prefix;
  note_snapshot(sequence, /*is_imported=*/false);
}

}  // namespace wideep::engine
