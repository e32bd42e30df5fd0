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
                                               std::vector<int> claimed, int states_wanted) {
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
  const StateSlots& states = pages_.states();
  if (pages_.keeps_states() && states.num_states() + states_wanted >= states.max_slots()) {
    return std::nullopt;
  }
  pages_.share_known(prompt);
  for (int rank = 0; rank < num_ranks_; ++rank) {
    claimed[static_cast<size_t>(rank)] +=
        pages_.pages_on(rank, prompt, num_pages) - pages_.pages_on(rank, prompt, first);
    if (claimed[static_cast<size_t>(rank)] <= pages_.cache().available(rank)) continue;
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
  lent_.emplace(ticket, std::move(prompt));
  return lent;
}

void LentPages::import(uint64_t ticket, int num_pages) {
  const auto found = lent_.find(ticket);
  if (found == lent_.end()) return;
  Sequence& prompt = found->second;
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
  for (const auto& [ticket, prompt] : lent_) {
    if (pages_.begin_alike(sequence, prompt)) return prompt.first_rank;
  }
  return std::nullopt;
}

int LentPages::num_states() const {
  return pages_.keeps_states() ? static_cast<int>(lent_.size()) : 0;
}

}  // namespace wideep::engine
