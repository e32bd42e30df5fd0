// SPDX-License-Identifier: Apache-2.0
//
// A loan is a Sequence that never runs: so pages are shared, taken, entered and released by the
// same code as those of requests.
#include "schedule/lent_pages.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace wideep::engine {

std::optional<LentPages::Lent> LentPages::lend(uint64_t ticket, Sequence prompt, int num_pages,
                                               const Terms& terms) {
  WIDEEP_CHECK(!has(ticket));
  // Never the page of the last token, whose logits are needed.
  num_pages = std::min(num_pages, (prompt.prompt_length() - 1) / kernels::kPageTokens);
  if (num_pages <= 0) return std::nullopt;
  prompt.tokens.resize(static_cast<size_t>(num_pages * kernels::kPageTokens) + 1);
  const SequencePages::Known known = pages_.known(prompt);
  const int first = known.pages;
  const bool lacks_state =
      pages_.keeps_states() && (known.states.empty() || known.states.back() != num_pages);
  if (first == num_pages && !lacks_state) return std::nullopt;
  const bool is_limited = terms.is_long && !(terms.nobody_waits && lent_.empty());
  const StateSlots& states = pages_.states();
  if (pages_.keeps_states() && (states.num_states() + terms.states_wanted >= states.max_slots() ||
                                (is_limited && num_long() >= states.max_slots() / 2))) {
    return std::nullopt;
  }
  const PageCache& cache = pages_.cache();
  std::vector<int> taken;
  for (int rank = 0; rank < num_ranks_; ++rank) taken.push_back(cache.available(rank));
  pages_.share_known(prompt);
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const int left = cache.available(rank) - pages_.pages_on(rank, prompt, num_pages) +
                     pages_.pages_on(rank, prompt, first);
    int& of_rank = taken[static_cast<size_t>(rank)];
    of_rank -= left;
    const bool fits = terms.claimed[static_cast<size_t>(rank)] <= left;
    if (fits && (!is_limited || long_pages(rank) + of_rank <= cache.max_pages() / 2)) continue;
    pages_.release(prompt, true);
    return std::nullopt;
  }
  pages_.take_pages(prompt, num_pages * kernels::kPageTokens);
  Lent lent{.first = first, .pages = {}};
  for (int page = first; page < num_pages; ++page) {
    lent.pages.push_back(pages_.own_bytes(prompt.page_ids[static_cast<size_t>(page)]));
  }
  if (pages_.keeps_states()) {
    pages_.reserve_state(prompt);
    lent.state = pages_.state_bytes(prompt);
  }
  lent_[ticket] = {
      .prompt = std::move(prompt), .taken = std::move(taken), .is_long = terms.is_long};
  return lent;
}

void LentPages::import(uint64_t ticket, int num_pages) {
  const auto found = lent_.find(ticket);
  if (found == lent_.end()) return;
  Sequence& prompt = found->second.prompt;
  const auto lent = static_cast<int>(prompt.pages.size());
  const int filled = std::min(num_pages, lent) * kernels::kPageTokens;
  if (filled > prompt.num_computed) pages_.import(prompt, filled);
  if (num_pages >= lent && pages_.keeps_states()) pages_.import_state(prompt);
  pages_.release(prompt, true);
  lent_.erase(found);
}

void LentPages::take_back() {
  while (!lent_.empty()) import(lent_.begin()->first, 0);
}

std::optional<int> LentPages::first_rank(const Sequence& sequence) const {
  for (const auto& [ticket, loan] : lent_) {
    if (pages_.begin_alike(sequence, loan.prompt)) return loan.prompt.first_rank;
  }
  return std::nullopt;
}

int LentPages::num_states() const {
  return pages_.keeps_states() ? static_cast<int>(lent_.size()) : 0;
}

// Of what two loans share, the first one counts.
int LentPages::long_pages(int rank) const {
  int pages = 0;
  for (const auto& [ticket, loan] : lent_) {
    if (loan.is_long) pages += loan.taken[static_cast<size_t>(rank)];
  }
  return pages;
}

int LentPages::num_long() const {
  return static_cast<int>(
      std::ranges::count_if(lent_, [](const auto& each) { return each.second.is_long; }));
}

std::optional<uint64_t> LentPages::last_long() const {
  std::optional<uint64_t> last;
  for (const auto& [ticket, loan] : lent_) {
    if (loan.is_long) last = ticket;
  }
  return last;
}

}  // namespace wideep::engine
