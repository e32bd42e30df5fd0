// SPDX-License-Identifier: Apache-2.0
//
// schedule(): make snapshots of states → admit waiting requests → with max_utilization, pause
// requests until the others' pages suffice → one token for each generating request → chunks of
// prompts with the tokens left.
//
// Several ranks run this code on equal inputs and must get equal results: ranks that compute one
// batch together, ranks that share sequences, stages of a pipeline. So nothing here may depend on
// time, on addresses or on the rank. Only add_token() looks at the rank, to fill its own batch.
#include "schedule/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace wideep::engine {
namespace {

int max_pages_needed(const Request& request) {
  // The last generated token is never fed back, but reserving for it keeps the rule simple.
  return pages_for(static_cast<int>(request.prompt.size()) + request.max_tokens);
}

// Also before the first admission.
int num_tokens(const Sequence& sequence) {
  const Request& request = sequence.request;
  return static_cast<int>(sequence.tokens.empty() ? request.prompt.size() + request.answered.size()
                                                  : sequence.tokens.size());
}

}  // namespace

Scheduler::Scheduler(const model::KvLayout& kv, const SchedulerLimits& limits, ContextPlace place,
                     size_t state_bytes)
    : limits_(limits),
      place_(std::move(place)),
      pages_(kv, state_bytes, limits, place_),
      lent_(pages_, place_.size),
      rank_tokens_(static_cast<size_t>(place_.size)) {
  WIDEEP_CHECK_GE(limits.max_num_tokens, limits.max_batch_size);
  if (limits_.prefill_chunk <= 0) limits_.prefill_chunk = limits_.max_num_tokens;
  if (limits_.max_rank_tokens <= 0) limits_.max_rank_tokens = limits_.max_num_tokens;
  step_.reporting.reserve(static_cast<size_t>(limits_.max_batch_size));
}

Status Scheduler::submit(Request request) {
  const int pages = max_pages_of_rank(max_pages_needed(request), place_.size, limits_.turn_pages);
  if (pages > limits_.max_pages) {
    return invalid_input(fmt::format(
        "request {}: {} prompt tokens and {} to generate need {} pages of the KV cache, found {}; "
        "shorten it or raise kv_cache_config.max_tokens",
        request.index, request.prompt.size(), request.max_tokens, pages, limits_.max_pages));
  }
  waiting_.push_back({.request = std::move(request), .arrival = num_submitted_++});
  return {};
}

// ---- who runs ----

// Nothing to do for models without states.
void Scheduler::keep_states() {
  if (!pages_.keeps_states()) return;
  for (Sequence& sequence : running_) pages_.keep_state(sequence);
}

size_t Scheduler::max_running() const {
  const int max = limits_.max_batch_size * limits_.micro_batches;
  const int slots = limits_.state_slots - lent_.num_states();
  return static_cast<size_t>(pages_.keeps_states() ? std::min(max, slots) : max);
}

void Scheduler::admit() {
  const size_t max = max_running();
  if (waiting_.empty() || hold_requests_ || running_.size() >= max) return;
  std::vector<int> claimed = claims_of_running();
  while (!waiting_.empty() && running_.size() < max) {
    if (!begin(waiting_.front(), claimed)) return;  // in order: none overtakes
    insert_by_arrival(waiting_, waiting_.begin(), running_);
  }
}

// Whether all pages that it may need are its own from its admission on.
bool Scheduler::has_reserved(const Sequence& sequence) const {
  return limits_.policy == CapacityPolicy::kGuaranteedNoEvict ||
         sequence.evictions >= limits_.max_evictions;
}

// The pages that admission reserves for a sequence. With max_utilization that is one page more than
// its tokens need, so that a request is not paused right after it was admitted.
int Scheduler::pages_claimed(const Sequence& sequence) const {
  const int max = max_pages_needed(sequence.request);
  if (has_reserved(sequence)) return max;
  return std::min(max, pages_for(num_tokens(sequence)) + 1);
}

// Adds, per rank, the claimed pages that the sequence does not hold yet.
void Scheduler::add_claims(const Sequence& sequence, std::vector<int>& claimed) const {
  const auto held = static_cast<int>(sequence.pages.size());
  const int all = std::max(pages_claimed(sequence), held);
  for (int rank = 0; rank < place_.size; ++rank) {
    claimed[rank] += pages_.pages_on(rank, sequence, all) - pages_.pages_on(rank, sequence, held);
  }
}

std::vector<int> Scheduler::claims_of_running() const {
  std::vector<int> claimed(static_cast<size_t>(place_.size));
  for (const Sequence& sequence : running_) add_claims(sequence, claimed);
  return claimed;
}

// That of a sequence with the same first page, which is known, or which may be soon, because the
// sequence is running or its pages are being filled; nullopt: there is none.
std::optional<int> Scheduler::first_rank(const Sequence& sequence) const {
  if (place_.size == 1) return 0;
  if (const std::optional<int> known = pages_.known_first_rank(sequence)) return known;
  for (const Sequence& other : running_) {
    if (pages_.begin_alike(sequence, other)) return other.first_rank;
  }
  return lent_.first_rank(sequence);
}

// Shares the pages that other requests have computed, and returns whether there is room for the
// rest; if not, it gives the shared pages back. `claimed`: pages per rank that running requests
// will still take.
bool Scheduler::begin(Sequence& sequence, std::vector<int>& claimed) {
  if (sequence.tokens.empty()) {
    const Request& request = sequence.request;
    sequence.tokens = request.prompt.ids();
    sequence.tokens.insert(sequence.tokens.end(), request.answered.begin(), request.answered.end());
  }
  const std::optional<int> first = first_rank(sequence);
  sequence.first_rank = first.value_or(next_first_rank_);
  const int reused = pages_.reuse(sequence);
  std::vector<int> all = claimed;
  add_claims(sequence, all);
  for (int rank = 0; rank < place_.size; ++rank) {
    if (all[rank] <= pages_.cache().available(rank)) continue;
    pages_.release(sequence, true);
    return false;
  }
  claimed = std::move(all);
  if (!first) next_first_rank_ = (next_first_rank_ + 1) % place_.size;
  note_reuse(sequence, reused);
  if (pages_.keeps_states()) pages_.take_state(sequence);
  return true;
}

// After a pause a sequence finds its own pages again; only what it finds before that was computed
// by others and is reported to the client.
void Scheduler::note_reuse(Sequence& sequence, int tokens) {
  record_.reused_tokens += tokens;
  if (sequence.pauses == 0) sequence.cached_tokens += tokens;
}

void Scheduler::insert_by_arrival(Sequences& from, Sequences::iterator sequence, Sequences& to) {
  auto place = to.end();
  while (place != to.begin() && std::prev(place)->arrival > sequence->arrival) --place;
  to.splice(place, from, sequence);
}

// ---- max_utilization ----

// Plans pages for the next tokens of every running request, the oldest first, and pauses the
// youngest when pages run out. Requests with a token in flight are not paused: the token may end
// them, and finish() expects them in running_. Nor are those that were paused too often: their
// pages are planned before all others. If no other younger request exists, this one waits.
void Scheduler::make_room() {
  std::vector<int> planned(static_cast<size_t>(place_.size));
  for (const Sequence& sequence : running_) {
    if (has_reserved(sequence)) add_claims(sequence, planned);
  }
  int left = limits_.max_num_tokens;
  for (const Sequence& sequence : running_) left -= sequence.in_prefill() ? 0 : 1;
  for (Sequence& sequence : running_) {
    sequence.lacks_pages = false;
    if (sequence.awaits_token()) continue;
    int count = 1;
    if (sequence.in_prefill()) {
      count = std::clamp(left, 0, std::min(limits_.prefill_chunk, sequence.num_to_compute()));
      left -= count;
    }
    if (has_reserved(sequence)) continue;
    while (!sequence.lacks_pages && !room_for(sequence, count, planned)) {
      sequence.lacks_pages = !pause_youngest_after(sequence);
    }
  }
}

// Whether there are pages for the sequence's next `count` tokens beside those in `planned`, to
// which it then adds them.
bool Scheduler::room_for(const Sequence& sequence, int count, std::vector<int>& planned) const {
  const auto held = static_cast<int>(sequence.pages.size());
  const int wanted = std::max(pages_for(sequence.num_computed + count), held);
  std::vector<int> all = planned;
  for (int rank = 0; rank < place_.size; ++rank) {
    all[rank] += pages_.pages_on(rank, sequence, wanted) - pages_.pages_on(rank, sequence, held);
    if (all[rank] > pages_.cache().available(rank)) return false;
  }
  planned = std::move(all);
  return true;
}

bool Scheduler::pause_youngest_after(const Sequence& sequence) {
  auto youngest = std::prev(running_.end());
  const auto stays = [this](const Sequence& each) {
    return each.awaits_token() || has_reserved(each);
  };
  while (&*youngest != &sequence && stays(*youngest)) --youngest;
  if (&*youngest == &sequence) return false;
  ++youngest->evictions;
  pause(youngest);
  return true;
}

void Scheduler::pause(Sequences::iterator sequence) {
  pages_.release(*sequence, true);
  sequence->before_step.reset();
  sequence->drafts.clear();
  sequence->num_verifying = 0;
  ++sequence->pauses;
  ++record_.pauses;
  insert_by_arrival(running_, sequence, waiting_);
}

// ---- what they compute ----

Scheduler::Step& Scheduler::schedule() {
  clear_step();
  keep_states();
  admit();
  if (limits_.policy == CapacityPolicy::kMaxUtilization) make_room();
  add_generating();
  add_prompts();
  for (Sequence* sequence : step_.sampled) take_ahead(*sequence);
  note_record();
  return step_;
}

void Scheduler::clear_step() {
  for (Sequence& sequence : running_) sequence.before_step.reset();
  pages_.begin_step();
  step_.batch.clear();
  step_.logit_places.clear();
  step_.owners.clear();
  step_.sampled.clear();
  step_.reporting.clear();
  step_.first_row.assign(1, 0);
  step_.num_tokens = 0;
  step_.prompt_tokens = 0;
  step_.num_requests = 0;
  step_.num_prompts = 0;
  std::fill(rank_tokens_.begin(), rank_tokens_.end(), 0);
}

// How many requests one micro-batch may sample: the running requests divided by the micro-batches.
// A request that is left out has no token in flight, so it is ready for the next micro-batch before
// those that were taken; no request is left out by all micro-batches in flight.
int Scheduler::share() const {
  const int running = static_cast<int>(running_.size());
  return (running + limits_.micro_batches - 1) / limits_.micro_batches;
}

void Scheduler::add_generating() {
  // max_batch_size needs no check: admit() limits running_, so that a share never exceeds it.
  generating_.clear();
  for (Sequence& sequence : running_) {
    if (static_cast<int>(generating_.size()) == share()) break;
    if (sequence.in_prefill() || sequence.awaits_token() || sequence.lacks_pages) continue;
    generating_.push_back(&sequence);
  }
  std::vector<int> tokens = rank_tokens_;
  std::erase_if(generating_, [&](Sequence* each) { return !reserve_token(*each, tokens); });
  int left = left_for_drafts();
  for (Sequence* sequence : generating_) {
    const int drafts = fitting_drafts(*sequence, left, tokens);
    add_tokens(*sequence, 1, drafts);
    left -= drafts;
  }
}

// Takes the pages that a drafter needs behind the step's tokens, where there are any left.
void Scheduler::take_ahead(Sequence& sequence) {
  if (limits_.draft_ahead == 0) return;
  const int max = sequence.prompt_length() + sequence.request.max_tokens;
  const int end =
      std::min(sequence.num_computed + sequence.num_verifying + limits_.draft_ahead, max);
  pages_.take_pages(sequence,
                    sequence.num_computed + pages_.fitting(sequence, end - sequence.num_computed));
}

// Takes the page of the sequence's next token, and counts the token for its rank; false: it does
// not fit. All generating sequences get theirs before any gets drafts.
bool Scheduler::reserve_token(Sequence& sequence, std::vector<int>& tokens) {
  const int page = sequence.num_computed / kernels::kPageTokens;
  int& of_rank = tokens[static_cast<size_t>(pages_.rank_of_page(sequence, page))];
  if (of_rank == limits_.max_rank_tokens || pages_.fitting(sequence, 1) == 0) return false;
  ++of_rank;
  pages_.take_pages(sequence, sequence.num_computed + 1);
  return true;
}

// Half of what the generating sequences leave belongs to prompts, if there are any.
int Scheduler::left_for_drafts() const {
  const int left = limits_.max_num_tokens - static_cast<int>(generating_.size());
  const bool prompts = std::ranges::any_of(running_, [&](const Sequence& sequence) {
    return sequence.in_prefill() && (sequence.may_begin || !hold_new_prompts_);
  });
  return prompts ? left / 2 : left;
}

// How many of its drafts the sequence verifies; counts their tokens for the ranks.
int Scheduler::fitting_drafts(const Sequence& sequence, int max, std::vector<int>& tokens) const {
  const int wanted = pages_.fitting_drafts(std::min(max, static_cast<int>(sequence.drafts.size())));
  const int fits = pages_.fitting(sequence, 1 + wanted) - 1;
  for (int i = 0; i < fits; ++i) {
    const int page = (sequence.num_computed + 1 + i) / kernels::kPageTokens;
    int& of_rank = tokens[static_cast<size_t>(pages_.rank_of_page(sequence, page))];
    if (of_rank == limits_.max_rank_tokens) return i;
    ++of_rank;
  }
  return std::max(fits, 0);
}

void Scheduler::add_prompts() {
  prompts_.clear();
  for (Sequence& sequence : running_) {
    if (!sequence.in_prefill() || sequence.lacks_pages) continue;
    sequence.may_begin |= !hold_new_prompts_;
    if (sequence.may_begin) prompts_.push_back(&sequence);
  }
  if (prompts_.empty()) return;
  const int left = left_for_prompts();
  const int end = step_.num_tokens + left;
  if (prompts_.front()->num_to_compute() > left) add_short_prompts(left / 2);
  for (Sequence* sequence : prompts_) {
    if (!add_chunk(*sequence, end - step_.num_tokens)) return;
  }
}

// Answers wait for the prompt tokens of their iteration: where they are what matters, these are a
// part of a chunk, but no less than a page, so that prompts come to their end.
int Scheduler::left_for_prompts() const {
  constexpr int kPartOfChunk = 8;
  const int left = limits_.max_num_tokens - step_.num_tokens;
  if (role_ != Role::kDecode || generating_.empty()) return left;
  return std::min(left, std::max(kernels::kPageTokens, limits_.prefill_chunk / kPartOfChunk));
}

// Gives up to `most` tokens to prompts with fewer tokens left than the oldest, shortest first.
void Scheduler::add_short_prompts(int max) {
  const Sequence* oldest = prompts_.front();
  std::vector<Sequence*> shorter;
  std::copy_if(prompts_.begin() + 1, prompts_.end(), std::back_inserter(shorter),
               [&](const Sequence* sequence) {
                 return sequence->num_to_compute() < oldest->num_to_compute();
               });
  std::sort(shorter.begin(), shorter.end(), [](const Sequence* a, const Sequence* b) {
    return std::pair(a->num_to_compute(), a->arrival) < std::pair(b->num_to_compute(), b->arrival);
  });
  const int end = step_.num_tokens + max;
  for (Sequence* sequence : shorter) {
    if (!add_chunk(*sequence, end - step_.num_tokens)) return;
    std::erase(prompts_, sequence);
  }
}

// Adds up to `most` tokens of the prompt. Returns whether another prompt may get a chunk too.
bool Scheduler::add_chunk(Sequence& sequence, int max) {
  if (step_.num_requests == limits_.max_batch_size) return false;
  // Another request may have computed the next pages since this one was admitted.
  note_reuse(sequence, pages_.reuse(sequence));
  const int rest = sequence.num_to_compute();
  const int to_cut = pages_.next_cut(sequence) - sequence.num_computed;
  const int chunk = fitting(sequence, std::min({max, limits_.prefill_chunk, to_cut}));
  if (chunk <= 0) return false;
  const bool samples = chunk == rest;
  if (samples && step_.sampled.size() == static_cast<size_t>(share())) return false;
  step_.prompt_tokens += chunk;
  ++step_.num_prompts;
  if (sequence.request.reports_progress && sequence.num_generated() == 0) {
    step_.reporting.push_back(&sequence);
  }
  add_tokens(sequence, chunk);
  return true;
}

// How many of the sequence's next `count` tokens fit: there are pages for them, and no rank exceeds
// max_rank_tokens.
int Scheduler::fitting(const Sequence& sequence, int count) const {
  count = pages_.fitting(sequence, count);
  std::vector<int> tokens = rank_tokens_;
  for (int i = 0; i < count; ++i) {
    const int page = (sequence.num_computed + i) / kernels::kPageTokens;
    if (tokens[pages_.rank_of_page(sequence, page)]++ == limits_.max_rank_tokens) return i;
  }
  return count;
}

void Scheduler::add_tokens(Sequence& sequence, int count, int drafts) {
  ++step_.num_requests;
  sequence.before_step = {sequence.num_computed, sequence.prefix, sequence.is_spoiled};
  const int end = sequence.num_computed + count;
  pages_.grow(sequence, end, drafts);
  sequence.num_verifying = drafts;
  for (int position = sequence.num_computed; position < end + drafts; ++position) {
    add_token(sequence, position);
  }
  step_.num_tokens += count + drafts;
  sequence.num_computed = end;
  if (end < static_cast<int>(sequence.tokens.size())) return;
  step_.sampled.push_back(&sequence);
  step_.first_row.push_back(step_.first_row.back() + 1 + drafts);
}

// Counts the token for the rank that holds its page, and adds it to the batch if that is this rank;
// its state in any case, since ranks that share sequences advance all states together.
// The last token of a sequence, and each draft, yields the logits of the next one.
void Scheduler::add_token(Sequence& sequence, int position) {
  const int rank = pages_.rank_of_page(sequence, position / kernels::kPageTokens);
  ++rank_tokens_[rank];
  model::Batch& batch = step_.batch;
  const int last = static_cast<int>(sequence.tokens.size()) - 1;
  if (pages_.keeps_states()) {
    if (rank == place_.rank && place_.size > 1) {
      batch.step_rows.push_back(static_cast<int32_t>(batch.states.size()));
    }
    batch.states.push_back(pages_.state(sequence));
    const int draft = position - last;  // the one that follows
    const bool saves = draft >= 0 && draft < sequence.num_verifying;
    batch.saved_states.push_back(saves ? pages_.state_before_draft(sequence, draft) : nullptr);
  }
  if (rank != place_.rank) return;
  if (position >= last) {
    batch.logit_rows.push_back(batch.num_tokens());
    step_.logit_places.push_back(step_.first_row.back() + position - last);
  }
  batch.ids.push_back(sequence.token_at(position));
  batch.positions.push_back(position);
  batch.prompt_lengths.push_back(sequence.prompt_length());
  batch.pages.push_back(&sequence.pages);
  step_.owners.push_back(&sequence);
}

RankReadiness Scheduler::readiness() const {
  RankReadiness readiness;
  int generating = 0;
  for (const Sequence& sequence : running_) {
    readiness.has_prompts |= sequence.in_prefill();
    generating += sequence.in_prefill() ? 0 : 1;
  }
  readiness.generates = generating > 0;
  readiness.has_room = static_cast<size_t>(generating) < max_running();
  return readiness;
}

// Cache pages are summed over all ranks that share sequences.
void Scheduler::note_record() {
  const PageCache& cache = pages_.cache();
  record_.running = static_cast<int32_t>(running_.size());
  record_.waiting = static_cast<int32_t>(waiting_.size());
  record_.scheduled = step_.num_requests;
  record_.prompts = step_.num_prompts;
  record_.cache_pages = record_.kept_pages = 0;
  for (int rank = 0; rank < place_.size; ++rank) {
    record_.cache_pages += cache.used(rank);
    record_.kept_pages += cache.kept(rank);
  }
  record_.max_pages = limits_.max_pages * place_.size;
  record_.evicted_pages = cache.num_evicted();
}

// ---- what follows ----

void Scheduler::append(Sequence& sequence, std::span<const int32_t> tokens,
                       std::vector<int32_t> drafts) {
  WIDEEP_CHECK(!tokens.empty());
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
  // All but the last one were drafts, and are computed.
  const int end = static_cast<int>(sequence.tokens.size()) - 1;
  pages_.accept(sequence, end);
  sequence.num_computed = end;
  sequence.num_verifying = 0;
  sequence.drafts = std::move(drafts);
}

// ---- who ends ----

bool Scheduler::cancel(int index) {
  const auto is_it = [&](const Sequence& sequence) { return sequence.request.index == index; };
  if (std::erase_if(waiting_, is_it) > 0) return true;
  const auto found = std::find_if(running_.begin(), running_.end(), is_it);
  if (found == running_.end()) return false;
  // A micro-batch in flight points to the sequence, so it must live until its token arrives.
  if (found->awaits_token()) {
    found->cancelled = true;
    return false;
  }
  finish(&*found);
  return true;
}

void Scheduler::finish(Sequence* sequence) {
  if (pages_.keeps_states()) pages_.keep_state(*sequence);
  pages_.release(*sequence, false);
  running_.remove_if([&](const Sequence& running) { return &running == sequence; });
}

std::vector<int> Scheduler::give_up_step() {
  // First, because pages that nobody uses any more cannot be forgotten.
  pages_.forget_new_pages();
  // Who shares a page is decided for all before any of them gives its pages back.
  std::vector<Sequences::iterator> pausing;
  for (auto sequence = running_.begin(); sequence != running_.end(); ++sequence) {
    const bool has_changed_states = sequence->before_step && pages_.keeps_states();
    if (has_changed_states || pages_.shares_new_page(*sequence)) pausing.push_back(sequence);
  }
  for (Sequence& sequence : running_) {
    if (sequence.before_step) pages_.take_back(sequence);
  }
  for (const auto sequence : pausing) pause(sequence);
  std::vector<int> ended;
  for (Sequences* all : {&running_, &waiting_}) {
    for (auto next = all->begin(); next != all->end();) {
      const auto sequence = next++;
      if (!sequence->cancelled) continue;
      ended.push_back(sequence->request.index);
      pages_.release(*sequence, false);
      all->erase(sequence);
    }
  }
  clear_step();
  return ended;
}

std::vector<int> Scheduler::drop_requests() {
  std::vector<int> ended;
  for (Sequence& sequence : running_) {
    ended.push_back(sequence.request.index);
    pages_.release(sequence, true);
  }
  for (const Sequence& sequence : waiting_) ended.push_back(sequence.request.index);
  running_.clear();
  waiting_.clear();
  clear_step();
  return ended;
}

// ---- pages that are kept elsewhere, too ----

// A sequence of the prompt's tokens that does not run, with its first rank.
Sequence Scheduler::sequence_of(const SharedTokens& prompt, const std::string& salt) const {
  Sequence sequence;
  sequence.request.prompt = prompt;
  sequence.request.salt = salt;
  sequence.tokens = prompt.ids();
  sequence.first_rank = first_rank(sequence).value_or(next_first_rank_);
  return sequence;
}

Scheduler::KnownPrefix Scheduler::known(const SharedTokens& prompt, const std::string& salt) const {
  return pages_.known(sequence_of(prompt, salt));
}

std::optional<Scheduler::Lent> Scheduler::lend(uint64_t ticket, const SharedTokens& prompt,
                                               const std::string& salt, int num_pages,
                                               std::optional<int> awaits_peer) {
  if (!limits_.reuse_pages || lent_.has(ticket)) return std::nullopt;
  Sequence sequence = sequence_of(prompt, salt);
  const bool is_first = !first_rank(sequence);
  // One slot is left for those that wait.
  LentPages::Terms terms{.claimed = claims_of_running(),
                         .states_wanted = waiting_.empty() ? 0 : 1,
                         .is_long = awaits_peer.has_value(),
                         .nobody_waits = waiting_.empty()};
  if (awaits_peer) add_claims_before(*awaits_peer, terms);
  auto lent = lent_.lend(ticket, std::move(sequence), num_pages, terms);
  if (lent && is_first) next_first_rank_ = (next_first_rank_ + 1) % place_.size;
  return lent;
}

// What waiting requests with a smaller index need to begin; of as many as may run beside those that
// do. What is shared, and where a sequence begins, shows only then: they may need less.
void Scheduler::add_claims_before(int index, LentPages::Terms& terms) const {
  int states = 0;
  int left = limits_.max_batch_size * limits_.micro_batches - static_cast<int>(running_.size());
  for (const Sequence& sequence : waiting_) {
    if (left <= 0) break;
    if (sequence.request.index > index) continue;
    const int pages = max_pages_of_rank(pages_claimed(sequence), place_.size, limits_.turn_pages);
    for (int& claimed : terms.claimed) claimed += pages;
    ++states;
    --left;
  }
  terms.states_wanted = std::max(terms.states_wanted, states);
}

// Any request fits alone. One that runs lacks pages only if it is the oldest that may pause.
std::optional<uint64_t> Scheduler::loan_in_the_way() const {
  if (step_.num_tokens > 0) return std::nullopt;
  const bool is_blocked = running_.empty() ? !waiting_.empty() && !hold_requests_
                                           : std::ranges::any_of(running_, &Sequence::lacks_pages);
  return is_blocked ? lent_.last_long() : std::nullopt;
}

}  // namespace wideep::engine
