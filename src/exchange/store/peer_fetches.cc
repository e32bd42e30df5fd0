// SPDX-License-Identifier: Apache-2.0
#include "store/peer_fetches.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/try.h"
#include "store/places.h"

namespace wideep::store {

void PeerFetches::begin(Order order) {
  Waiting& fetch = waiting_.emplace_back();
  fetch.so_far.ticket = order.ticket;
  fetch.order = std::move(order);
}

void PeerFetches::abandon(uint64_t ticket) {
  for (Waiting& each : waiting_) each.is_abandoned |= each.order.ticket == ticket;
}

size_t PeerFetches::num_pages(uint64_t ticket) const {
  const auto found = std::ranges::find_if(
      waiting_, [&](const Waiting& each) { return each.order.ticket == ticket; });
  return found == waiting_.end() ? 0 : found->so_far.pages;
}

// Errors: it has failed just before, or cannot be asked.
Result<PeerFetches::Peer*> PeerFetches::peer_of(const PagePeer& peer) {
  Peer& known = peers_[{peer.host, peer.token}];
  known.used = Clock::now();
  if (!known.outage.may_try(Places::steady_seconds())) return failed(known.trouble);
  if (known.place == nullptr) {
    WIDEEP_TRY_ASSIGN(
        known.place,
        PeerPlace::make({.host = peer.host, .token = peer.token, .record_class = record_class_}));
  }
  return &known;
}

// What the peer has of the next pages, and of the state where they are the last.
Status PeerFetches::take(Waiting& fetch, PeerPlace& place, bool& has_come) {
  Done& so_far = fetch.so_far;
  const auto& pages = fetch.order.pages;
  const size_t count = std::min(kPagesAtOnce, pages.size() - so_far.pages);
  const auto first = pages.begin() + static_cast<ptrdiff_t>(so_far.pages);
  std::vector<FetchOrder> next(first, first + static_cast<ptrdiff_t>(count));
  // Asked for with each: so that it is not evicted while the last pages are on their way.
  if (fetch.order.state) next.push_back(*fetch.order.state);
  std::vector<Head> heads;
  for (const FetchOrder& each : next) heads.push_back(each.head);
  const uint64_t failures = place.counts().failures;
  const std::vector<bool> is_there = place.find(heads);
  if (place.counts().failures != failures) return failed(std::string(place.trouble()));
  const auto gap = std::ranges::find(is_there, false);
  next.resize(static_cast<size_t>(gap - is_there.begin()));
  const bool are_last = so_far.pages + count == pages.size();
  if (!are_last) next.resize(std::min(next.size(), count));
  if (next.empty()) return {};
  return place.fetch(next, [&](size_t index, FetchResult result) {
    if (result != FetchResult::kWhole) return false;
    so_far.bytes += next[index].into.size();
    has_come = true;
    if (index < count) {
      ++so_far.pages;
    } else {
      so_far.has_state = true;
    }
    return true;
  });
}

// nullopt: it waits on. Errors: the peer has not answered.
Result<std::optional<PeerFetches::End>> PeerFetches::ask(Waiting& fetch, PeerPlace& place) {
  bool has_come = false;
  WIDEEP_TRY(take(fetch, place, has_come));
  const bool is_whole = fetch.so_far.pages == fetch.order.pages.size() &&
                        (fetch.so_far.has_state || !fetch.order.state);
  if (is_whole) return std::optional(End::kWhole);
  if (has_come) {
    has_more_ = true;
    fetch.silent_since.reset();
    return std::optional<End>();
  }
  WIDEEP_TRY_ASSIGN(const std::vector<RequestState> states,
                    place.states(std::span(&fetch.order.peer.request, 1)));
  if (states.front() == RequestState::kComputes) {
    fetch.silent_since.reset();
    return std::optional<End>();
  }
  const auto now = Clock::now();
  if (!fetch.silent_since) fetch.silent_since = now;
  const bool has_ended = states.front() == RequestState::kEnded;
  if (now - *fetch.silent_since < (has_ended ? kEndedGrace : kUnknownGrace)) {
    return std::optional<End>();
  }
  return std::optional(has_ended ? End::kPeerEnded : End::kNotKnown);
}

// nullopt: it waits on.
std::optional<PeerFetches::End> PeerFetches::advance(Waiting& fetch) {
  if (fetch.is_abandoned) return End::kAbandoned;
  const auto gone = [&](const Status& status) {
    fetch.so_far.trouble = status.message();
    return End::kPeerGone;
  };
  const auto peer = peer_of(fetch.order.peer);
  if (!peer.ok()) return gone(peer.status());
  const auto end = ask(fetch, *(*peer)->place);
  if (end.ok()) {
    (*peer)->outage.worked();
    return *end;
  }
  (*peer)->outage.failed(Places::steady_seconds());
  (*peer)->trouble = end.status().message();
  return gone(end.status());
}

std::vector<PeerFetches::Done> PeerFetches::poll() {
  std::vector<Done> done;
  has_more_ = false;
  for (auto each = waiting_.begin(); each != waiting_.end();) {
    const std::optional<End> end = advance(*each);
    if (!end) {
      ++each;
      continue;
    }
    each->so_far.end = *end;
    each->so_far.seconds = std::chrono::duration<double>(Clock::now() - each->begun).count();
    done.push_back(std::move(each->so_far));
    each = waiting_.erase(each);
  }
  std::erase_if(peers_, [now = Clock::now()](const auto& each) {
    return now - each.second.used > kIdleTime;
  });
  return done;
}

}  // namespace wideep::store
