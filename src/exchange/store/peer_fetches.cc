// SPDX-License-Identifier: Apache-2.0
#include "store/peer_fetches.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/try.h"

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

Result<PeerPlace*> PeerFetches::place_of(const PagePeer& peer) {
  Peer& known = peers_[{peer.host, peer.token}];
  known.used = Clock::now();
  if (known.place == nullptr) {
    WIDEEP_TRY_ASSIGN(
        known.place,
        PeerPlace::make({.host = peer.host, .token = peer.token, .record_class = record_class_}));
  }
  return known.place.get();
}

// What the peer has of the next pages, or of the state behind the last one. True: something came.
bool PeerFetches::take(Waiting& fetch, PeerPlace& place, Status& status) {
  Done& so_far = fetch.so_far;
  std::vector<FetchOrder> next;
  const auto& pages = fetch.order.pages;
  const size_t count = std::min(kPagesAtOnce, pages.size() - so_far.pages);
  next.assign(pages.begin() + static_cast<ptrdiff_t>(so_far.pages),
              pages.begin() + static_cast<ptrdiff_t>(so_far.pages + count));
  const bool is_state = next.empty();
  if (is_state) next = {*fetch.order.state};
  std::vector<Head> heads;
  for (const FetchOrder& each : next) heads.push_back(each.head);
  const uint64_t failures = place.counts().failures;
  const std::vector<bool> is_there = place.find(heads);
  if (place.counts().failures != failures) {
    status = failed(std::string(place.trouble()));
    return false;
  }
  const auto gap = std::ranges::find(is_there, false);
  next.resize(static_cast<size_t>(gap - is_there.begin()));
  if (next.empty()) return false;
  size_t came = 0;
  status = place.fetch(next, [&](size_t index, FetchResult result) {
    if (result != FetchResult::kWhole) return false;
    so_far.bytes += next[index].into.size();
    ++came;
    return true;
  });
  if (is_state) {
    so_far.has_state = came == 1;
  } else {
    so_far.pages += came;
  }
  return came > 0;
}

// nullopt: it waits on.
std::optional<PeerFetches::End> PeerFetches::advance(Waiting& fetch) {
  const auto is_whole = [&] {
    return fetch.so_far.pages == fetch.order.pages.size() &&
           (fetch.so_far.has_state || !fetch.order.state);
  };
  const auto gone = [&](const Status& status) {
    fetch.so_far.trouble = status.message();
    return End::kPeerGone;
  };
  if (is_whole()) return End::kWhole;
  if (fetch.is_abandoned) return End::kAbandoned;
  const auto place = place_of(fetch.order.peer);
  if (!place.ok()) return gone(place.status());
  Status status;
  while (take(fetch, **place, status)) {
    fetch.news = Clock::now();
    if (is_whole()) return End::kWhole;
    if (!status.ok()) break;
  }
  if (!status.ok()) return gone(status);
  const auto states = (*place)->states(std::span(&fetch.order.peer.request, 1));
  if (!states.ok()) return gone(states.status());
  if (states->front() == RequestState::kComputes) {
    fetch.news = Clock::now();
    return std::nullopt;
  }
  const bool has_ended = states->front() == RequestState::kEnded;
  if (Clock::now() - fetch.news < (has_ended ? kEndedGrace : kUnknownGrace)) return std::nullopt;
  return has_ended ? End::kPeerEnded : End::kNotKnown;
}

std::vector<PeerFetches::Done> PeerFetches::poll() {
  std::vector<Done> done;
  std::erase_if(waiting_, [&](Waiting& fetch) {
    const std::optional<End> end = advance(fetch);
    if (!end) return false;
    fetch.so_far.end = *end;
    fetch.so_far.seconds = std::chrono::duration<double>(Clock::now() - fetch.begun).count();
    done.push_back(std::move(fetch.so_far));
    return true;
  });
  std::erase_if(peers_, [now = Clock::now()](const auto& each) {
    return now - each.second.used > kIdleTime;
  });
  return done;
}

}  // namespace wideep::store
