// SPDX-License-Identifier: Apache-2.0
#include "engine/kept_prompts.h"

#include <utility>

#include "base/try.h"

namespace wideep::engine {

void KeptPrompts::apply(const Command& command, PageStore* store) {
  if (store == nullptr) return;
  using Kind = Command::Kind;
  const uint64_t ticket = command.ticket;
  if (command.kind == Kind::kLook) {
    const Request& request = command.request;
    looks_[ticket] = {
        .prompt = request.prompt,
        .salt = request.salt,
        .awaits_peer = request.peer.empty() ? std::nullopt : std::optional(request.index)};
    Scheduler::KnownPrefix known = scheduler_.known(request.prompt, request.salt);
    store->look({.ticket = ticket,
                 .prompt = request.prompt,
                 .salt = request.salt,
                 .peer = request.peer,
                 .known = known.pages,
                 .states = std::move(known.states)});
  } else if (command.kind == Kind::kFetch) {
    fetch(command, *store);
  } else if (command.kind == Kind::kAbandon) {
    store->abandon(ticket);
    looks_.erase(ticket);
  } else if (command.kind == Kind::kImport) {
    scheduler_.import(ticket, command.num_pages);
    looks_.erase(ticket);
  }
}

void KeptPrompts::fetch(const Command& command, PageStore& store) {
  const auto look = looks_.find(command.ticket);
  if (look == looks_.end()) return store.refuse(command.ticket);
  const auto& [prompt, salt, awaits_peer] = look->second;
  auto lent = scheduler_.lend(command.ticket, prompt, salt, command.num_pages, awaits_peer);
  if (!lent) return store.refuse(command.ticket);
  store.fetch({.ticket = command.ticket,
               .first = lent->first,
               .pages = std::move(lent->pages),
               .state = lent->state});
}

Status KeptPrompts::pass_on_news(PageStore* store, Reporter* teller) {
  PageNews news = scheduler_.take_news();
  if (store != nullptr) store->offer(std::move(news.kept), seconds_per_token_);
  if (teller == nullptr || news.changes.empty()) return {};
  return teller->pages_changed(std::move(news.changes));
}

// Ranks may do this at different times: what they lend ends with a command, kImport.
void KeptPrompts::make_way(PageStore* store) {
  const std::optional<uint64_t> loan = scheduler_.loan_in_the_way();
  if (!loan || store == nullptr) return still_since_.reset();
  const auto now = std::chrono::steady_clock::now();
  if (!still_since_) still_since_ = now;
  if (now - *still_since_ < kStandstill) return;
  still_since_ = now;
  store->abandon(*loan);
}

// Of iterations that are mostly prompts: what else they compute counts as tokens of these.
void KeptPrompts::measure(int prompt_tokens, int all_tokens, double seconds) {
  constexpr double kShare = 0.2;  // of the last one
  if (prompt_tokens == 0 || 2 * prompt_tokens < all_tokens) return;
  const double measured = seconds / all_tokens;
  seconds_per_token_ = seconds_per_token_ == 0.0
                           ? measured
                           : seconds_per_token_ + kShare * (measured - seconds_per_token_);
}

void KeptPrompts::drop() {
  looks_.clear();
  scheduler_.take_back_lent();
}

}  // namespace wideep::engine
