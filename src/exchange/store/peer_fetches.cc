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

PeerFetches::Done PeerFetches::end_of(Waiting fetch, End end) {
  fetch.so_far.end = end;
  const auto now = Clock::now();
  fetch.so_far.seconds = std::chrono::duration<double>(now - fetch.begun).count();
  fetch.so_far.exposed_seconds =
      std::max(0.0, std::chrono::duration<double>(now - fetch.computed_until).count());
  return std::move(fetch.so_far);
}

void PeerFetches::abandon(uint64_t ticket) {
  const auto found = std::ranges::find_if(
      waiting_, [&](const Waiting& each) { return each.order.ticket == ticket; });
  if (found == waiting_.end()) return;
  ended_.push_back(end_of(std::move(*found), End::kAbandoned));
  waiting_.erase(found);
}

PeerFetches::Clock::time_point PeerFetches::next_poll() const {
  if (!ended_.empty()) return Clock::time_point::min();
  Clock::time_point next = Clock::time_point::max();
  for (const Waiting& each : waiting_) next = std::min(next, each.due);
  for (const auto& [key, peer] : peers_) next = std::min(next, peer.used + kIdleTime);
  return next;
}

size_t PeerFetches::num_pages(uint64_t ticket) const {
  const auto found = std::ranges::find_if(
      waiting_, [&](const Waiting& each) { return each.order.ticket == ticket; });
  return found == waiting_.end() ? 0 : found->so_far.pages;
}

// Errors: it can never be asked.
Result<PeerFetches::Peer*> PeerFetches::peer_of(const PagePeer& peer) {
  const PeerKey key = {peer.host, peer.token};
  if (!peers_.contains(key) && peers_.size() >= kMaxPeers) {
    peers_.erase(
        std::ranges::min_element(peers_, {}, [](const auto& each) { return each.second.used; }));
  }
  Peer& known = peers_[key];
  known.used = Clock::now();
  if (known.place == nullptr) {
    WIDEEP_TRY_ASSIGN(
        known.place,
        PeerPlace::make({.host = peer.host, .token = peer.token, .record_class = record_class_}));
  }
  return &known;
}

namespace {

constexpr std::chrono::milliseconds kLastQuestionTime{100};

Result<std::vector<bool>> find_at(PeerPlace& place, std::span<const Head> heads) {
  const uint64_t failures = place.counts().failures;
  std::vector<bool> is_there = place.find(heads);
  if (place.counts().failures != failures) return failed(std::string(place.trouble()));
  return is_there;
}

}  // namespace

Result<std::vector<bool>> PeerFetches::find(const PagePeer& at, std::span<const Head> heads) {
  const double now = Places::steady_seconds();
  const auto away = absences_.find(at.host);
  if (away != absences_.end() && !away->second.outage.may_try(now)) {
    return failed(away->second.trouble);
  }
  WIDEEP_TRY_ASSIGN(Peer* const peer, peer_of(at));
  if (!peer->absence.outage.may_try(now)) return failed(peer->absence.trouble);
  const auto asked = Clock::now();
  auto found = find_at(*peer->place, heads);
  note_answer(at.host, *peer, found.status(), asked);
  return found;
}

// Of so many next pages that the peer has.
size_t PeerFetches::pages_to_take(Waiting& fetch, size_t there) {
  if (fetch.is_computed && there < kHurryPages) {
    fetch.take_at = Clock::now() + kCalmPause;
    return std::min(there, std::max(there / kCalmShare, size_t{1}));
  }
  fetch.take_at = {};
  if (there == 0) return 0;
  const uint64_t page_bytes =
      std::max(fetch.order.pages[fetch.so_far.pages].into.size(), size_t{1});
  return std::min(there, static_cast<size_t>(std::max(kBytesAtOnce / page_bytes, uint64_t{1})));
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
  WIDEEP_TRY_ASSIGN(const std::vector<bool> is_there, find_at(place, heads));
  const auto there = static_cast<size_t>(std::ranges::find(is_there, false) - is_there.begin());
  const size_t taken = pages_to_take(fetch, std::min(there, count));
  fetch.leaves_pages = taken < std::min(there, count);
  const bool are_last = so_far.pages + taken == pages.size();
  next.resize(are_last ? there : taken);
  if (next.empty()) return {};
  const double before = place.counts().fetch_seconds;
  Status status = place.fetch(next, [&](size_t index, FetchResult result) {
    if (result != FetchResult::kWhole) return false;
    so_far.bytes += next[index].into.size();
    has_come = true;
    if (index < taken) {
      ++so_far.pages;
    } else {
      so_far.has_state = true;
    }
    return true;
  });
  if (status.ok()) so_far.transfer_seconds += place.counts().fetch_seconds - before;
  return status;
}

// What the peer says of the request, and notes until when it has computed it.
Result<RequestState> PeerFetches::ask_state(Waiting& fetch, PeerPlace& place,
                                            std::chrono::milliseconds limit) {
  WIDEEP_TRY_ASSIGN(const RequestStatus found, place.state(fetch.order.peer.request, limit));
  const auto now = Clock::now();
  if (found.state == RequestState::kComputes) fetch.computed_until = now;
  if (found.state == RequestState::kEnded) {
    fetch.computed_until = std::max(fetch.computed_until, now - found.ended_before);
  }
  return found.state;
}

// Of one that is whole, whatever the peer says: for Done::exposed_seconds alone, so that nobody
// waits long for it. A peer that is only slow has not failed. Errors: it has.
Status PeerFetches::ask_when_ended(Waiting& fetch, PeerPlace& place) {
  const Status status = ask_state(fetch, place, kLastQuestionTime).status();
  return status.code() == StatusCode::kDeadlineExceeded ? Status() : status;
}

// nullopt: it waits on. Errors: the peer has not answered.
Result<std::optional<PeerFetches::End>> PeerFetches::ask(Waiting& fetch, PeerPlace& place) {
  bool has_come = false;
  const bool takes = !fetch.is_computed || fetch.take_at <= Clock::now();
  fetch.leaves_pages = !takes;
  if (takes) WIDEEP_TRY(take(fetch, place, has_come));
  const bool is_whole = fetch.so_far.pages == fetch.order.pages.size() &&
                        (fetch.so_far.has_state || !fetch.order.state);
  if (is_whole) return std::optional(End::kWhole);
  if (has_come) fetch.silent_since.reset();
  if (has_come && !fetch.is_computed) {  // there may be more already
    fetch.pause = {};
    return std::optional<End>();
  }
  if (!fetch.order.peer.computes()) return std::optional(End::kNoMore);
  fetch.pause = has_come ? kFirstPause : std::clamp(2 * fetch.pause, kFirstPause, kLongestPause);
  WIDEEP_TRY_ASSIGN(const RequestState state, ask_state(fetch, place, RedisServers::kNoLimit));
  fetch.is_computed = state == RequestState::kComputes;
  if (fetch.is_computed) {
    fetch.silent_since.reset();
    return std::optional<End>();
  }
  if (has_come || !takes) {  // the rest is there
    fetch.pause = {};
    return std::optional<End>();
  }
  const auto now = Clock::now();
  if (!fetch.silent_since) fetch.silent_since = now;
  const bool has_ended = state == RequestState::kEnded;
  if (now - *fetch.silent_since < (has_ended ? kEndedGrace : kUnknownGrace)) {
    return std::optional<End>();
  }
  return std::optional(has_ended ? End::kPeerEnded : End::kNotKnown);
}

// Or it may have some, for all that is known without asking.
bool PeerFetches::has_news(const Waiting& fetch, PeerPlace& place) {
  const auto now = Clock::now();
  if (!fetch.is_computed || now >= fetch.ask_at) return true;
  const std::optional<uint64_t> news = place.news();
  // It may be of other requests: these do not make questions more frequent than without it.
  return !news || (news != fetch.news && now >= fetch.asked + fetch.pause);
}

// Pages of a chunk come together, and after the last ones the end.
std::chrono::milliseconds PeerFetches::glance_pause(const Waiting& fetch) {
  return Clock::now() - fetch.news_at < kBusyTime ? kBusyGlancePause : kGlancePause;
}

bool PeerFetches::may_ask(const Absence& absence, const Waiting& fetch) {
  return absence.outage.may_try(Places::steady_seconds()) ||
         (fetch.so_far.pages > 0 && Clock::now() >= absence.retry_at);
}

void PeerFetches::note_failure(Absence& absence, const Status& failure) {
  const double now = Places::steady_seconds();
  if (!absence.outage.is_out()) absence.gone_since = Clock::now();
  if (absence.outage.may_try(now)) absence.outage.failed(now);
  absence.trouble = failure.message();
  absence.used = Clock::now();
  absence.retry_at = absence.used + kGonePause;
}

// Of a question that was asked then. Null: it was answered; else whose failure it is.
PeerFetches::Absence* PeerFetches::note_answer(const RedisHost& host, Peer& peer,
                                               const Status& answer, Clock::time_point asked) {
  if (answer.ok()) {
    peer.absence.outage.worked();
    absences_.erase(host);
    return nullptr;
  }
  // A host that says quickly what it does not like may like other tokens.
  const bool is_slow = Clock::now() - asked >= kPollTime;
  Absence& absence = is_slow ? absences_[host] : peer.absence;
  note_failure(absence, answer);
  return &absence;
}

// A peer that does not answer at present. nullopt: it waits on.
std::optional<PeerFetches::End> PeerFetches::wait_for(const Absence& absence, Waiting& fetch) {
  const bool may_wait = fetch.so_far.pages > 0 && fetch.order.peer.computes();
  if (may_wait && Clock::now() - absence.gone_since < kGoneGrace) {
    fetch.due = absence.retry_at;
    return std::nullopt;
  }
  fetch.so_far.trouble = absence.trouble;
  return End::kPeerGone;
}

// nullopt: it waits on.
std::optional<PeerFetches::End> PeerFetches::advance(Waiting& fetch) {
  const RedisHost& host = fetch.order.peer.host;
  if (const auto away = absences_.find(host); away != absences_.end()) {
    away->second.used = Clock::now();
    if (!may_ask(away->second, fetch)) return wait_for(away->second, fetch);
  }
  const auto found = peer_of(fetch.order.peer);
  if (!found.ok()) {
    fetch.so_far.trouble = found.status().message();
    return End::kPeerGone;
  }
  Peer& peer = **found;
  if (!may_ask(peer.absence, fetch)) return wait_for(peer.absence, fetch);
  if (!has_news(fetch, *peer.place)) {
    fetch.due = Clock::now() + glance_pause(fetch);
    return std::nullopt;
  }
  auto asked = Clock::now();
  if (const auto news = std::exchange(fetch.news, peer.place->news()); news != fetch.news) {
    fetch.news_at = asked;
  }
  const auto end = ask(fetch, *peer.place);
  Status answer = end.status();
  if (end.ok() && *end == End::kWhole && fetch.order.peer.computes()) {
    asked = Clock::now();
    answer = ask_when_ended(fetch, *peer.place);
  }
  const Absence* absence = note_answer(host, peer, answer, asked);
  if (!end.ok()) return wait_for(*absence, fetch);
  const auto now = Clock::now();
  fetch.due = now + (fetch.news ? std::min(fetch.pause, glance_pause(fetch)) : fetch.pause);
  fetch.asked = now;
  fetch.ask_at = fetch.leaves_pages ? fetch.take_at : now + kLongestSilence;
  return *end;
}

std::vector<PeerFetches::Done> PeerFetches::poll() {
  std::vector<Done> done = std::exchange(ended_, {});
  const auto begun = Clock::now();
  for (size_t rest = waiting_.size(); rest > 0 && Clock::now() - begun < kPollTime; --rest) {
    Waiting each = std::move(waiting_.front());
    waiting_.pop_front();
    const auto end = each.due <= begun ? advance(each) : std::nullopt;
    if (end) {
      done.push_back(end_of(std::move(each), *end));
    } else {
      waiting_.push_back(std::move(each));
    }
  }
  const auto is_idle = [now = Clock::now()](const auto& each) {
    return now - each.second.used >= kIdleTime;
  };
  std::erase_if(peers_, is_idle);
  std::erase_if(absences_, is_idle);
  return done;
}

}  // namespace wideep::store
