// SPDX-License-Identifier: Apache-2.0
//
// The worker has what both threads share, under one mutex, and what is the thread's alone. A job is
// done without the mutex; `generation_` says whether its result is still wanted. Who ends all
// (end_fetches) takes the queues away, makes the running job stop at its next record, and waits
// until the thread touches nothing of the engine's any more: what waits for a peer is forgotten by
// the thread before it does anything else.
#include "run/prompt_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/named_thread.h"
#include "base/try.h"
#include "store/page_peer.h"
#include "store/peer_fetches.h"
#include "store/peer_place.h"

namespace wideep::run {

using engine::KeptBytes;
using engine::PageFetch;
using engine::PageLook;
using store::Head;
using store::PlaceCounts;
using Milliseconds = std::chrono::milliseconds;

// A place that does not come back is left behind after this.
constexpr Milliseconds kEndTime{10'000};
// Between two offers of what has come from elsewhere, where tokens are waited for.
constexpr Milliseconds kImportedPause{100};
// Behind so many to the places one goes to the front: they may never end.
constexpr int kOffersInRow = 4;
// Of all questions of a look for pages, or for states, to a peer.
constexpr Milliseconds kPeerLookTime{250};
constexpr size_t kHeadsAtOnce = store::PageServerLimits::kMaxHeads;
// Of looks that nobody has come back to: a front that died has asked for them.
constexpr size_t kMaxLooks = PromptStore::kMaxAsked;

class PromptStore::Worker {
 public:
  Worker(Parts parts, const transport::Messenger& messenger)
      : parts_(std::move(parts)),
        places_(std::move(parts_.places)),
        has_places_(places_.size() > 0),
        messenger_(messenger),
        has_news_(has_places_),
        from_peers_(parts_.geometry.record_class) {}

  // ---- the engine's thread ----

  void ask(PageLook look) {
    std::unique_lock lock(mutex_);
    if (jobs_.size() >= kMaxAsked) return report(nothing_found(look), generation_, lock);
    jobs_.emplace_back(std::move(look));
    wake_.notify_one();
  }
  void ask(PageFetch fetch, bool has_room) {
    const std::lock_guard lock(mutex_);
    jobs_.emplace_back(Fetch{.what = std::move(fetch), .has_room = has_room});
    wake_.notify_one();
  }
  void abandon(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    if (running_ == ticket) is_abandoned_ = true;
    std::erase_if(jobs_, [&](const Job& job) {
      const auto* look = std::get_if<PageLook>(&job);
      return look != nullptr && look->ticket == ticket;
    });
    for (Job& job : jobs_) {
      if (auto* fetch = std::get_if<Fetch>(&job); fetch != nullptr && fetch->what.ticket == ticket)
        fetch->is_abandoned = true;
    }
    jobs_.emplace_front(Forget{ticket});
    wake_.notify_one();
  }
  void offer(std::vector<KeptBytes> kept, double seconds_per_token) {
    if (!has_places_) return;
    const std::lock_guard lock(mutex_);
    for (KeptBytes& each : kept) {
      const bool is_state = each.head.kind == store::Kind::kState;
      const bool is_sent = is_state ? parts_.sends_states : parts_.sends_pages;
      if (has_front_ && is_sent) for_front_.push_back({each, seconds_per_token});
      std::deque<Offer>& offers = each.is_imported ? imported_ : offers_;
      offers.push_back({std::move(each), seconds_per_token});
    }
    for (std::deque<Offer>* each : {&offers_, &imported_, &for_front_}) {
      while (each->size() > kMaxOffers) {
        each->pop_front();
        ++not_offered_;
      }
    }
    wake_.notify_one();
  }
  void offer_to(std::string front) {
    const std::lock_guard lock(mutex_);
    has_front_ = !front.empty();
    if (!has_front_) for_front_.clear();
    new_front_ = std::move(front);
    wake_.notify_one();
  }
  void prefer(engine::Role role) {
    const std::lock_guard lock(mutex_);
    role_ = role;
  }

  bool end_all(Milliseconds at_most) {
    std::unique_lock lock(mutex_);
    ++generation_;
    jobs_.clear();
    for (std::deque<Offer>* each : {&offers_, &imported_, &for_front_}) {
      not_offered_ += each->size();
      each->clear();
    }
    is_abandoned_ = true;
    wake_.notify_one();
    return idle_.wait_for(lock, at_most, [this] { return !is_busy_; });
  }
  size_t flush(Milliseconds at_most) {
    std::unique_lock lock(mutex_);
    std::ranges::move(imported_, std::back_inserter(offers_));
    imported_.clear();
    is_flushing_ = true;
    wake_.notify_one();
    idle_.wait_for(lock, at_most, [this] { return offers_.empty() && (!is_busy_ || is_sending_); });
    is_flushing_ = false;
    return offers_.size();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    wake_.notify_one();
  }

  // ---- the store's thread ----

  void run();

 private:
  struct Fetch {
    PageFetch what;
    bool has_room = true;
    bool is_abandoned = false;
  };
  struct Forget {
    uint64_t ticket = 0;
  };
  using Job = std::variant<PageLook, Fetch, Forget>;
  struct Offer {
    KeptBytes kept;
    double seconds_per_token = 0.0;
  };
  // The answer to a look, for its fetch.
  struct Looked {
    std::vector<Head> pages;  // all that the prompt can use
    std::vector<int> where;   // [pages] in the places
    std::optional<store::PagePeer> peer = {};
  };
  // A fetch that waits for a peer.
  struct Arriving {
    PagesFetched fetched;         // with what places had
    std::vector<uint32_t> pages;  // that the peer is asked for
    int end = 0;                  // of the fetch's pages
    bool needs_state = false;
    double begun = 0.0;
    std::chrono::steady_clock::time_point told = std::chrono::steady_clock::now();

    int end_of(size_t come) const {
      return come < pages.size() ? static_cast<int>(pages[come]) : end;
    }
  };

  PagesFound nothing_found(const PageLook& look) const;
  void do_job(PageLook look, uint64_t generation);
  void do_job(Fetch fetch, uint64_t generation);
  void do_job(const Forget& forget, uint64_t) {
    looked_.erase(forget.ticket);
    from_peers_.abandon(forget.ticket);
  }
  std::optional<Offer> next_offer();
  void do_offer(const Offer& offer, bool is_for_front);
  void offer_to_front(const Offer& offer, const Head& head, double seconds);
  std::optional<Head> offered_head(const KeptBytes& kept) const;
  void meet_front(const std::string& text);
  Looked look_up(const PageLook& look);
  static size_t end_in_places(const PageLook& look, const Looked& looked);
  Looked look_for_states(const PageLook& look, const Looked& looked, PagesFound* found);
  double seconds_of(const Looked& looked, size_t first, size_t end, const Looked& states) const;
  void look_again(const PageFetch& fetch, Looked& looked);
  std::vector<store::Wanted> wanted_of(const PageFetch& fetch, const Looked& looked);
  size_t read(std::span<const store::Wanted> wanted, PagesFetched* fetched);
  void fetch_from_peer(const store::PagePeer& peer, std::span<const store::Wanted> wanted,
                       Arriving arriving, uint64_t generation);
  void poll_peers(uint64_t generation);
  std::optional<store::PagePeer> peer_of(const PageLook& look);
  std::vector<bool> find_at_peer(const Looked& looked, std::span<const Head> heads,
                                 PagesFound* found);
  size_t leading_at_peer(const Looked& looked, std::span<const Head> pages, PagesFound* found);
  std::vector<bool> last_at_peer(const Looked& looked, std::span<const Head> states,
                                 PagesFound* found);
  void forget_all();
  Head state_of(Head page) const;
  bool has_pages() const { return parts_.geometry.page.bytes() > 0; }
  bool has_state() const { return parts_.geometry.state.bytes() > 0; }
  bool is_given_up() {
    const std::lock_guard lock(mutex_);
    return is_abandoned_;
  }
  bool wait_for_work(std::unique_lock<std::mutex>& lock);
  void report(const RankEvent& event, uint64_t generation, std::unique_lock<std::mutex>& lock);
  void report(const RankEvent& event, uint64_t generation) {
    std::unique_lock lock(mutex_);
    report(event, generation, lock);
  }
  void report_state();

  Parts parts_;
  store::Places places_;
  const bool has_places_;
  const transport::Messenger& messenger_;

  std::mutex mutex_;  // guards the members up to the next comment
  std::condition_variable wake_, idle_;
  std::deque<Job> jobs_;
  std::deque<Offer> offers_, imported_, for_front_;
  std::optional<std::string> new_front_;  // that the thread has not met
  bool has_front_ = false;
  int offers_in_row_ = 0;  // since the last to the front
  engine::Role role_ = engine::Role::kBoth;
  uint64_t not_offered_ = 0;
  uint64_t generation_ = 0;  // counts calls of end_all()
  uint64_t running_ = 0;     // ticket of the job that is done; 0: none
  bool is_abandoned_ = false;
  bool is_busy_ = false;     // touches what the engine has
  bool is_sending_ = false;  // that is for the front
  bool is_flushing_ = false;
  bool is_stopping_ = false;

  // The thread's alone.
  std::unordered_map<uint64_t, Looked> looked_;
  std::deque<uint64_t> looked_order_;
  uint64_t seen_generation_ = 0;  // that of looked_, from_peers_ and what was told
  bool has_news_;                 // since the last StoreState
  std::chrono::steady_clock::time_point told_;
  std::chrono::steady_clock::time_point next_imported_;
  std::optional<store::Places> front_;  // one place
  PlaceCounts front_before_;            // of those that were front_ before
  store::PeerFetches from_peers_;
  std::unordered_map<uint64_t, Arriving> arriving_;  // those of from_peers_
  bool has_told_of_text_ = false, has_told_of_class_ = false;
};

// ---- the thread ----

// A new front counts what is added to what it is told first: that comes before anything else.
bool PromptStore::Worker::wait_for_work(std::unique_lock<std::mutex>& lock) {
  using Clock = std::chrono::steady_clock;
  while (!is_stopping_) {
    if (std::exchange(seen_generation_, generation_) != generation_) {
      forget_all();
      has_news_ = has_places_;
      told_ = {};
    }
    const Clock::time_point now = Clock::now();
    const Clock::time_point news = has_news_ ? told_ + kStatePause : Clock::time_point::max();
    if (news <= now) {
      lock.unlock();
      report_state();
      lock.lock();
      continue;
    }
    if (new_front_ || !jobs_.empty() || !offers_.empty() || !for_front_.empty()) return true;
    Clock::time_point poll = from_peers_.next_poll();
    if (!imported_.empty()) poll = std::min(poll, next_imported_);
    if (poll <= now) return true;
    if (const auto next = std::min(poll, news); next == Clock::time_point::max()) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, next);
    }
  }
  return false;
}

// Of an earlier generation.
void PromptStore::Worker::forget_all() {
  looked_.clear();
  looked_order_.clear();
  from_peers_.clear();
  arriving_.clear();
}

// Of what was computed here, then of what has come, then to the front.
std::optional<PromptStore::Worker::Offer> PromptStore::Worker::next_offer() {
  const auto now = std::chrono::steady_clock::now();
  const bool is_fronts_turn = offers_in_row_ >= kOffersInRow && !is_flushing_;
  std::deque<Offer>* from = &for_front_;
  if (for_front_.empty() || !is_fronts_turn) {
    if (!offers_.empty()) {
      from = &offers_;
    } else if (!imported_.empty() && now >= next_imported_) {
      from = &imported_;
      next_imported_ = role_ == engine::Role::kDecode ? now + kImportedPause : now;
    }
  }
  if (from->empty()) return std::nullopt;
  is_sending_ = from == &for_front_;
  offers_in_row_ = is_sending_ ? 0 : std::min(offers_in_row_ + 1, kOffersInRow);
  Offer offer = std::move(from->front());
  from->pop_front();
  return offer;
}

// In each round a job, the peers, and an offer if no job waits.
void PromptStore::Worker::run() {
  std::unique_lock lock(mutex_);
  while (wait_for_work(lock)) {
    const uint64_t generation = generation_;
    is_busy_ = true;
    is_abandoned_ = false;
    std::optional<Job> job;
    std::optional<Offer> offer;
    const auto new_front = std::exchange(new_front_, std::nullopt);
    if (!jobs_.empty()) {
      job = std::move(jobs_.front());
      jobs_.pop_front();
      if (const auto* look = std::get_if<PageLook>(&*job)) running_ = look->ticket;
      if (const auto* fetch = std::get_if<Fetch>(&*job)) running_ = fetch->what.ticket;
    } else {
      offer = next_offer();
    }
    const bool is_sending = is_sending_;
    lock.unlock();
    if (new_front) meet_front(*new_front);
    if (job) std::visit([&](auto&& each) { do_job(std::move(each), generation); }, std::move(*job));
    poll_peers(generation);
    if (offer) do_offer(*offer, is_sending);
    has_news_ = has_news_ || (has_places_ && (job || offer || new_front));
    lock.lock();
    running_ = 0;
    is_busy_ = is_sending_ = false;
    idle_.notify_all();
  }
}

// The front that has asked is there as long as the generation is the same, the messenger as long as
// this is not stopping.
void PromptStore::Worker::report(const RankEvent& event, uint64_t generation,
                                 std::unique_lock<std::mutex>&) {
  if (generation != generation_ || is_stopping_) return;
  [[maybe_unused]] const Status sent = messenger_.send(encode(event));
}

void PromptStore::Worker::report_state() {
  StoreState state{.rank = parts_.rank, .tiers = {}};
  const auto add = [&state](store::Places& places, int index) -> StoreState::Tier& {
    store::Place& place = places.place(index);
    StoreState::Tier tier{.label = {},
                          .counts = place.counts(),
                          .size = place.size(),
                          .is_out = places.is_out(index)};
    const std::string_view label = place.label();
    std::copy_n(label.begin(), std::min(label.size(), tier.label.size() - 1), tier.label.begin());
    return state.tiers.emplace_back(tier);
  };
  for (int i = 0; i < places_.size(); ++i) add(places_, i);
  if (front_) add(*front_, 0).counts += front_before_;
  told_ = std::chrono::steady_clock::now();
  has_news_ = false;
  std::unique_lock lock(mutex_);
  state.not_offered = not_offered_;
  report(state, generation_, lock);
}

// ---- looking ----

// What the cache has.
PagesFound PromptStore::Worker::nothing_found(const PageLook& look) const {
  PagesFound found{.ticket = look.ticket,
                   .rank = parts_.rank,
                   .known = look.known,
                   .found = look.known,
                   .states = look.states,
                   .is_stateless = !has_state()};
  if (parts_.keeps_states) found.known = look.states.empty() ? 0 : look.states.back();
  return found;
}

Head PromptStore::Worker::state_of(Head page) const {
  page.kind = store::Kind::kState;
  page.canonical_bytes = parts_.geometry.state_bytes;
  page.part = parts_.geometry.state;
  return page;
}

PromptStore::Worker::Looked PromptStore::Worker::look_up(const PageLook& look) {
  Looked looked;
  store::PageWalk walk(parts_.geometry.record_class, look.salt, store::reusable(look.prompt.ids()));
  while (auto head = walk.next()) {
    head->canonical_bytes = parts_.geometry.page_bytes;
    head->part = parts_.geometry.page;
    looked.pages.push_back(*head);
  }
  const std::span<const Head> unknown =
      std::span(looked.pages)
          .subspan(std::min(static_cast<size_t>(look.known), looked.pages.size()));
  looked.where.assign(looked.pages.size(), store::Places::kNowhere);
  if (has_pages()) std::ranges::copy(places_.find(unknown), looked.where.end() - unknown.size());
  return looked;
}

// The first page that neither the cache has nor a place.
size_t PromptStore::Worker::end_in_places(const PageLook& look, const Looked& looked) {
  size_t end = std::min(static_cast<size_t>(look.known), looked.pages.size());
  while (end < looked.pages.size() && looked.where[end] != store::Places::kNowhere) ++end;
  return end;
}

// Behind the last one that the cache has, up to the last page that was found. Behind the first page
// that places lack all comes from the peer, and so must the state.
PromptStore::Worker::Looked PromptStore::Worker::look_for_states(const PageLook& look,
                                                                 const Looked& looked,
                                                                 PagesFound* found) {
  Looked states;
  for (int page = found->known; page < found->found; ++page) {
    if (std::ranges::find(look.states, page + 1) != look.states.end()) continue;
    states.pages.push_back(state_of(looked.pages[static_cast<size_t>(page)]));
  }
  states.where = places_.find(states.pages);
  const std::vector<bool> is_at_peer = last_at_peer(looked, states.pages, found);
  const size_t own = has_pages() ? end_in_places(look, looked) : looked.pages.size();
  for (size_t i = 0; i < states.pages.size(); ++i) {
    found->is_promised = found->is_promised || is_at_peer[i];
    const bool is_own = states.where[i] != store::Places::kNowhere && states.pages[i].page < own;
    if (is_own || is_at_peer[i])
      found->states.push_back(static_cast<int32_t>(states.pages[i].page) + 1);
  }
  std::ranges::sort(found->states);
  return states;
}

// Of pages first … end, and of the last of these states: one comes with a fetch.
double PromptStore::Worker::seconds_of(const Looked& looked, size_t first, size_t end,
                                       const Looked& states) const {
  std::vector<Head> heads(looked.pages.begin() + first, looked.pages.begin() + end);
  std::vector<int> where(looked.where.begin() + first, looked.where.begin() + end);
  for (size_t i = states.pages.size(); i-- > 0;) {
    if (states.where[i] == store::Places::kNowhere) continue;
    heads.push_back(states.pages[i]);
    where.push_back(states.where[i]);
    break;
  }
  return places_.predicted_seconds(heads, where);
}

// nullopt: nobody, or none that pages can be taken from.
std::optional<store::PagePeer> PromptStore::Worker::peer_of(const PageLook& look) {
  if (look.peer.empty()) return std::nullopt;
  auto peer = store::parse_page_peer(look.peer);
  if (!peer.ok()) {
    if (!std::exchange(has_told_of_text_, true)) {
      log::warn("a request's peer: {}; such prompts are computed here", peer.status().message());
    }
    return std::nullopt;
  }
  const std::string& own = parts_.geometry.record_class;
  if (peer->record_class == own) return std::move(*peer);
  if (!std::exchange(has_told_of_class_, true)) {
    log::warn(
        "a request's peer {} has pages of class {}, expected {}: its checkpoint, program or "
        "precision is another; such prompts are computed here",
        peer->host.text(), peer->record_class, own);
  }
  return std::nullopt;
}

// [heads] which of them the peer has.
std::vector<bool> PromptStore::Worker::find_at_peer(const Looked& looked,
                                                    std::span<const Head> heads,
                                                    PagesFound* found) {
  auto is_there = from_peers_.find(*looked.peer, heads);
  if (is_there.ok()) return std::move(is_there).value();
  found->peer_kind = PeerTrouble::kGone;
  found->peer_trouble = is_there.status().message();
  return std::vector<bool>(heads.size());
}

// How many of the first of these a peer has that computes nothing for the request. It keeps what it
// is asked for, so nothing behind a gap is.
size_t PromptStore::Worker::leading_at_peer(const Looked& looked, std::span<const Head> pages,
                                            PagesFound* found) {
  if (!looked.peer || looked.peer->computes()) return 0;
  const auto end = std::chrono::steady_clock::now() + kPeerLookTime;
  size_t count = 0;
  while (count < pages.size() && std::chrono::steady_clock::now() < end) {
    const auto some = pages.subspan(count, std::min(kHeadsAtOnce, pages.size() - count));
    const std::vector<bool> is_there = find_at_peer(looked, some, found);
    const auto here = static_cast<size_t>(std::ranges::find(is_there, false) - is_there.begin());
    count += here;
    if (here < some.size()) break;
  }
  return count;
}

// [states] which of them it has: of the last ones, and of those before them only if it has none.
std::vector<bool> PromptStore::Worker::last_at_peer(const Looked& looked,
                                                    std::span<const Head> states,
                                                    PagesFound* found) {
  std::vector<bool> all(states.size());
  if (!looked.peer || looked.peer->computes()) return all;
  const auto end = std::chrono::steady_clock::now() + kPeerLookTime;
  for (size_t rest = states.size(); rest > 0 && std::chrono::steady_clock::now() < end;) {
    const size_t first = rest - std::min(kHeadsAtOnce, rest);
    const auto is_there = find_at_peer(looked, states.subspan(first, rest - first), found);
    std::copy(is_there.begin(), is_there.end(), all.begin() + static_cast<ptrdiff_t>(first));
    if (std::ranges::find(is_there, true) != is_there.end()) break;
    rest = first;
  }
  return all;
}

void PromptStore::Worker::do_job(PageLook look, uint64_t generation) {
  PagesFound found = nothing_found(look);
  Looked looked = look_up(look);
  looked.peer = peer_of(look);
  found.is_promised = looked.peer && looked.peer->computes();
  const size_t known = std::min(static_cast<size_t>(look.known), looked.pages.size());
  // A stage without keys and values lacks none.
  const bool has_all = found.is_promised || !has_pages();
  size_t all = has_all ? looked.pages.size() : end_in_places(look, looked);
  const size_t at_peer = leading_at_peer(looked, std::span(looked.pages).subspan(all), &found);
  found.is_promised = found.is_promised || at_peer > 0;
  all += at_peer;
  found.found = static_cast<int>(all);
  const Looked states = has_state() ? look_for_states(look, looked, &found) : Looked();
  // A peer's that computes them is the one after all pages.
  if (looked.peer && looked.peer->computes() && has_state() &&
      std::ranges::find(found.states, found.found) == found.states.end())
    found.states.push_back(found.found);
  found.seconds = seconds_of(looked, known, all, states);
  if (looked_order_.size() >= kMaxLooks) {
    looked_.erase(looked_order_.front());
    looked_order_.pop_front();
  }
  looked_order_.push_back(look.ticket);
  looked_[look.ticket] = std::move(looked);
  report(found, generation);
}

// ---- fetching ----

// For pages that the cache had when it was asked, and has dropped since.
void PromptStore::Worker::look_again(const PageFetch& fetch, Looked& looked) {
  std::vector<Head> gone;
  const size_t end = std::min(fetch.first + fetch.pages.size(), looked.pages.size());
  for (auto page = static_cast<size_t>(fetch.first); page < end; ++page) {
    const bool is_own = fetch.pages[page - static_cast<size_t>(fetch.first)] != nullptr;
    if (is_own && looked.where[page] == store::Places::kNowhere) gone.push_back(looked.pages[page]);
  }
  if (gone.empty()) return;
  const std::vector<int> where = places_.find(gone);
  for (size_t i = 0; i < gone.size(); ++i) looked.where[gone[i].page] = where[i];
}

std::vector<store::Wanted> PromptStore::Worker::wanted_of(const PageFetch& fetch,
                                                          const Looked& looked) {
  std::vector<store::Wanted> wanted;
  const auto first = static_cast<size_t>(fetch.first);
  for (size_t i = 0; i < fetch.pages.size(); ++i) {
    if (fetch.pages[i] == nullptr || first + i >= looked.pages.size()) continue;
    wanted.push_back({.order = {.head = looked.pages[first + i],
                                .into = {fetch.pages[i], parts_.geometry.page.bytes()}},
                      .place = looked.where[first + i]});
  }
  const size_t end = first + fetch.pages.size();
  if (!has_state() || fetch.state == nullptr || end == 0 || end > looked.pages.size()) {
    return wanted;
  }
  const Head state = state_of(looked.pages[end - 1]);
  wanted.push_back({.order = {.head = state, .into = {fetch.state, parts_.geometry.state.bytes()}},
                    .place = places_.find(std::span(&state, 1)).front()});
  return wanted;
}

// Returns how many of the first are whole: nothing behind one that is missing is of use.
size_t PromptStore::Worker::read(std::span<const store::Wanted> wanted, PagesFetched* fetched) {
  std::vector<bool> is_whole(wanted.size());
  places_.fetch(wanted, [&](size_t index, store::FetchResult result, int) {
    is_whole[index] = result == store::FetchResult::kWhole;
    if (is_whole[index]) fetched->bytes += wanted[index].order.into.size();
    return is_whole[index] && !is_given_up();
  });
  return static_cast<size_t>(std::ranges::find(is_whole, false) - is_whole.begin());
}

namespace {

bool is_for_state(const store::Wanted& wanted) {
  return wanted.order.head.kind == store::Kind::kState;
}

PeerPages pages_of(const store::PeerFetches::Done& done) {
  using End = store::PeerFetches::End;
  PeerPages pages{.pages = static_cast<int>(done.pages),
                  .bytes = done.bytes,
                  .seconds = done.seconds,
                  .transfer_seconds = done.transfer_seconds,
                  .exposed_seconds = done.exposed_seconds,
                  .trouble = ""};
  const auto end_with = [&](PeerTrouble kind, std::string trouble) {
    pages.kind = kind;
    pages.trouble = std::move(trouble);
  };
  if (done.end == End::kPeerGone) end_with(PeerTrouble::kGone, done.trouble);
  if (done.end == End::kPeerEnded) {
    end_with(PeerTrouble::kEnded, "the peer has ended the request, and has no more of it");
  }
  if (done.end == End::kNoMore) {
    end_with(PeerTrouble::kMissing, "the peer has not all of the pages, or not any more");
  }
  if (done.end == End::kNotKnown) {
    end_with(PeerTrouble::kUnknown, "the peer does not know the request");
  }
  if (done.end == End::kAbandoned) {
    end_with(PeerTrouble::kNoRoom, "other requests needed the room of its pages");
  }
  return pages;
}

}  // namespace

// A request of a model with states has no use for pages without their state.
void PromptStore::Worker::do_job(Fetch fetch, uint64_t generation) {
  PagesFetched fetched{
      .ticket = fetch.what.ticket, .rank = parts_.rank, .has_room = fetch.has_room};
  auto looked = looked_.extract(fetch.what.ticket);
  if (!fetch.has_room || fetch.is_abandoned || !looked) return report(fetched, generation);
  Arriving arriving{.fetched = {},
                    .pages = {},
                    .end = fetch.what.first + static_cast<int>(fetch.what.pages.size()),
                    .begun = store::Places::steady_seconds()};
  look_again(fetch.what, looked.mapped());
  const std::vector<store::Wanted> wanted = wanted_of(fetch.what, looked.mapped());
  const auto& peer = looked.mapped().peer;
  const auto from_places =
      peer ? std::ranges::find(wanted, store::Places::kNowhere, &store::Wanted::place)
           : wanted.end();
  const size_t whole = read({wanted.begin(), from_places}, &fetched);
  const std::span<const store::Wanted> rest = std::span(wanted).subspan(whole);
  if (peer && !rest.empty() && !is_given_up()) {
    arriving.fetched = fetched;
    return fetch_from_peer(*peer, rest, std::move(arriving), generation);
  }
  fetched.pages = arriving.end;
  if (!rest.empty()) {
    fetched.pages =
        is_for_state(wanted.back()) ? 0 : static_cast<int>(rest.front().order.head.page);
  }
  fetched.seconds = store::Places::steady_seconds() - arriving.begun;
  report(fetched, generation);
}

// ---- from peers ----

void PromptStore::Worker::fetch_from_peer(const store::PagePeer& peer,
                                          std::span<const store::Wanted> wanted, Arriving arriving,
                                          uint64_t generation) {
  const uint64_t ticket = arriving.fetched.ticket;
  store::PeerFetches::Order order{.ticket = ticket, .peer = peer, .pages = {}};
  for (const store::Wanted& each : wanted) {
    if (is_for_state(each)) {
      order.state = each.order;
    } else {
      order.pages.push_back(each.order);
      arriving.pages.push_back(each.order.head.page);
    }
  }
  arriving.needs_state = order.state.has_value();
  if (from_peers_.size() >= kMaxAsked) {
    arriving.fetched.pages = arriving.needs_state ? 0 : arriving.end_of(0);
    arriving.fetched.from_peer.kind = PeerTrouble::kBusy;
    arriving.fetched.from_peer.trouble = "too many prompts are waited for already";
    return report(arriving.fetched, generation);
  }
  from_peers_.begin(std::move(order));
  arriving_[ticket] = std::move(arriving);
}

void PromptStore::Worker::poll_peers(uint64_t generation) {
  const auto now = std::chrono::steady_clock::now();
  if (from_peers_.next_poll() > now) return;
  for (const store::PeerFetches::Done& done : from_peers_.poll()) {
    Arriving arriving = std::move(arriving_.extract(done.ticket).mapped());
    PagesFetched& fetched = arriving.fetched;
    fetched.pages = arriving.needs_state && !done.has_state ? 0 : arriving.end_of(done.pages);
    fetched.bytes += done.bytes;
    fetched.seconds = store::Places::steady_seconds() - arriving.begun;
    fetched.from_peer = pages_of(done);
    report(fetched, generation);
  }
  // Also where nothing comes: whoever computes it is still there.
  for (auto& [ticket, arriving] : arriving_) {
    if (now - arriving.told < kArrivingPause) continue;
    arriving.told = now;
    report(PagesArriving{.ticket = ticket,
                         .rank = parts_.rank,
                         .pages = arriving.end_of(from_peers_.num_pages(ticket))},
           generation);
  }
}

// ---- offering ----

// With this rank's part of it. nullopt: it has none, or another rank offers it.
std::optional<Head> PromptStore::Worker::offered_head(const KeptBytes& kept) const {
  Head head = kept.head;
  const bool is_state = head.kind == store::Kind::kState;
  const Share& share = is_state ? parts_.of_states : parts_.of_pages;
  if (!share.has(head.page) || (is_state && !has_state())) return std::nullopt;
  if (is_state) {
    head = state_of(head);
  } else {
    head.canonical_bytes = parts_.geometry.page_bytes;
    head.part = parts_.geometry.page;
  }
  return head.part.bytes() > 0 ? std::optional(head) : std::nullopt;
}

// A page saves what computing its tokens takes. A state saves that of all tokens before it: without
// it their pages are of no use.
void PromptStore::Worker::do_offer(const Offer& offer, bool is_for_front) {
  const std::optional<Head> found = offered_head(offer.kept);
  if (!found) return;
  const Head& head = *found;
  const double pages = head.kind == store::Kind::kState ? head.page + 1.0 : 1.0;
  const double seconds = pages * static_cast<double>(store::kPageTokens) * offer.seconds_per_token;
  if (!offer.kept.is_intact()) {
    const std::lock_guard lock(mutex_);
    ++not_offered_;
    return;
  }
  if (is_for_front) return offer_to_front(offer, head, seconds);
  const std::span<const std::byte> bytes(offer.kept.bytes, head.part.bytes());
  const auto is_intact = [&offer] { return offer.kept.is_intact(); };
  if (offer.kept.is_imported) return places_.offer_hit(head, bytes, seconds, is_intact);
  places_.offer_to_all(head, bytes, seconds, is_intact);
}

// Of one that takes several parts, the rest comes after what has to be done meanwhile.
void PromptStore::Worker::offer_to_front(const Offer& offer, const Head& head, double seconds) {
  if (!front_) return;
  // What a place of this node had was likely sent before.
  const bool is_there = offer.kept.is_imported &&
                        front_->find(std::span(&head, 1)).front() != store::Places::kNowhere;
  if (is_there) return;
  bool has_begun = false, is_put_off = false;
  const auto goes_on = [&] {
    const bool may_wait = std::exchange(has_begun, true);
    const bool is_due = from_peers_.next_poll() <= std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    is_put_off = may_wait && (is_due || !jobs_.empty());
    return !is_abandoned_ && !is_put_off && offer.kept.is_intact();
  };
  const std::span<const std::byte> bytes(offer.kept.bytes, head.part.bytes());
  front_->offer(0, head, bytes, seconds, goes_on);
  const std::lock_guard lock(mutex_);
  if (is_put_off && !is_abandoned_) for_front_.push_front(offer);
}

// As a new place: what was left alone is tried at once. "": there is none.
void PromptStore::Worker::meet_front(const std::string& text) {
  if (front_) front_before_ += front_->place(0).counts();
  front_.reset();
  if (text.empty()) return;
  const auto open = [&]() -> Result<std::unique_ptr<store::PeerPlace>> {
    WIDEEP_TRY_ASSIGN(store::PagePeer front, store::parse_page_peer(text));
    return store::PeerPlace::make({.host = std::move(front.host),
                                   .token = std::move(front.token),
                                   .record_class = std::move(front.record_class),
                                   .offers = true});
  };
  auto place = open();
  if (!place.ok()) {
    log::warn("prompt cache: the front's node: {}; its pages are not offered there",
              place.status().message());
    return;
  }
  std::vector<store::ListedPlace> places;
  places.push_back({.place = std::move(*place), .expected = store::kServerPrice});
  front_.emplace(std::move(places));
}

// ---- the engine's side ----

PromptStore::PromptStore(Parts parts, const transport::Messenger& messenger) {
  std::vector<int> processors = parts.processors;
  worker_ = std::make_shared<Worker>(std::move(parts), messenger);
  thread_ = std::thread([worker = worker_, processors = std::move(processors)] {
    base::name_and_bind_thread("prompts", processors);
    worker->run();
  });
}

PromptStore::~PromptStore() {
  const bool has_ended = worker_->end_all(kEndTime);
  worker_->stop();
  if (has_ended) {
    thread_.join();
    return;
  }
  log::warn("prompt cache: a place has not answered for {} s; it is left behind",
            kEndTime.count() / 1000);
  thread_.detach();
}

void PromptStore::look(PageLook look) { worker_->ask(std::move(look)); }

void PromptStore::fetch(PageFetch fetch) { worker_->ask(std::move(fetch), true); }

void PromptStore::refuse(uint64_t ticket) { worker_->ask({.ticket = ticket, .pages = {}}, false); }

void PromptStore::abandon(uint64_t ticket) { worker_->abandon(ticket); }

void PromptStore::offer(std::vector<KeptBytes> kept, double seconds_per_token) {
  if (!kept.empty()) worker_->offer(std::move(kept), seconds_per_token);
}

void PromptStore::offer_to(std::string front) { worker_->offer_to(std::move(front)); }

void PromptStore::prefer(engine::Role role) { worker_->prefer(role); }

Status PromptStore::end_fetches(Milliseconds at_most) {
  if (worker_->end_all(at_most)) return {};
  return failed(fmt::format("prompt cache: a place has not answered for {} ms", at_most.count()));
}

size_t PromptStore::flush(Milliseconds at_most) { return worker_->flush(at_most); }

}  // namespace wideep::run
