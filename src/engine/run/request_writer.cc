// SPDX-License-Identifier: Apache-2.0
//
// All commands go through write() under one mutex, to every rank: equal order on all ranks is what
// their schedules rely on. submit() adds the tokens that a request may take to its owner, and picks
// the owner by them and by what the caches know.
//
// A request is in one of three places: in waiting_, while PromptFetches says what is asked for it
// (follow() writes that); in running_, once it is submitted; among the orphans, while no owner
// lives.
//
// Where ranks may die, a request is kept with its answered tokens. Moving it is then submitting it
// again: the new owner computes these tokens again and goes on. A request that was there at several
// ranks' own deaths is given up, since it may be their cause.
#include "run/request_writer.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/cpu_time.h"
#include "store/page_peer.h"

namespace wideep::run {

using engine::Command;
using engine::Request;

// A request that was computed by this many ranks when they died of themselves is likely the cause.
constexpr int kMaxOwnDeaths = 3;
// How often waiting requests are compared with their deadlines, which are seconds.
constexpr std::chrono::milliseconds kDeadlineInterval{100};

struct RequestWriter::Pipe {
  explicit Pipe(int descriptor) : fd(descriptor), messages(descriptor) {}
  ~Pipe() {
    messages.finish();
    ::close(fd);
  }
  int fd;
  transport::MessagePipe messages;
};

// Tickets of an earlier process were fewer than the nanoseconds since it began.
RequestWriter::RequestWriter(int num_owners, OnLoss on_loss, Prompts prompts)
    : on_loss_(on_loss),
      prompts_(std::move(prompts)),
      fetches_(static_cast<uint64_t>(base::wall_ns()), prompts_.clock),
      places_(prompts_.record_class) {
  for (int owner = 0; owner < num_owners; ++owner) {
    tokens_of_owner_[owner] = 0;
    members_.push_back(owner);
  }
}

double RequestWriter::steady_seconds() { return static_cast<double>(base::wall_ns()) * 1e-9; }

RequestWriter::~RequestWriter() = default;

void RequestWriter::add_rank(int rank, int fd, bool joins_later) {
  const std::lock_guard lock(mutex_);
  (joins_later ? joining_ : pipes_)[rank] = std::make_unique<Pipe>(fd);
}

void RequestWriter::submit(Request request) {
  const std::lock_guard lock(mutex_);
  place({.request = std::move(request)});
}

void RequestWriter::submit_together(std::vector<Request> requests, Reports reports) {
  const std::lock_guard lock(mutex_);
  if (reports == Reports::kWhenIdle) write(Command::Kind::kReportWhenIdle);
  write(Command::Kind::kHold);
  auto owner = tokens_of_owner_.begin();
  for (Request& request : requests) {
    if (owner == tokens_of_owner_.end()) owner = tokens_of_owner_.begin();
    if (owner == tokens_of_owner_.end()) {  // nobody lives
      add_orphan({.request = std::move(request)});
      continue;
    }
    submit_to(owner->first, {.request = std::move(request)});
    ++owner;
  }
  write(Command::Kind::kRelease);
}

// Where one owner has all, or pages have no names, nothing is known of them.
PagePlaces::Choice RequestWriter::choose(const Request& request) const {
  const int cached_on = on_loss_ == OnLoss::kMove ? request.cached_on : -1;
  if (tokens_of_owner_.contains(cached_on)) return {.owner = cached_on};
  return places_.choose(tokens_of_owner_, request.prompt.ids(), request.salt);
}

bool RequestWriter::is_looked_for(const Request& request) const {
  const bool may_pay = prompts_.are_kept || (prompts_.may_come_from_peers && !request.peer.empty());
  return may_pay && !is_stopping_ && PromptFetches::is_worth_a_look(request.prompt.size());
}

void RequestWriter::place(Running running) {
  if (tokens_of_owner_.empty()) return add_orphan(std::move(running));
  const PagePlaces::Choice choice = choose(running.request);
  running.known_tokens = choice.known_tokens;
  std::vector<int> ranks;
  if (is_looked_for(running.request)) ranks = living_ranks_of(choice.owner);
  if (ranks.empty()) return submit_to(choice.owner, std::move(running));
  look_for(choice.owner, std::move(ranks), std::move(running));
}

std::vector<int> RequestWriter::living_ranks_of(int owner) const {
  const auto index = static_cast<size_t>(owner);
  const bool is_alone = index >= prompts_.ranks_of_owner.size();
  std::vector<int> ranks = is_alone ? std::vector<int>{owner} : prompts_.ranks_of_owner[index];
  std::erase_if(ranks, [&](int rank) { return lost_.contains(rank); });
  return ranks;
}

int RequestWriter::owner_of_rank(int rank) const {
  const auto found = std::ranges::find_if(prompts_.ranks_of_owner, [&](const auto& ranks) {
    return std::ranges::find(ranks, rank) != ranks.end();
  });
  if (found == prompts_.ranks_of_owner.end()) return rank;
  return static_cast<int>(found - prompts_.ranks_of_owner.begin());
}

void RequestWriter::look_for(int owner, std::vector<int> ranks, Running running) {
  const Request& request = running.request;
  const auto peer = store::parse_page_peer(request.peer);
  const PromptFetches::Prompt prompt = {
      .index = request.index,
      .owner = owner,
      .ranks = std::move(ranks),
      .num_tokens = request.prompt.size(),
      .tells_transfer = !request.peer.empty() && request.answered.empty(),
      .peer_computes = peer.ok() && peer->computes()};
  assign(owner, running);
  waiting_[prompt.index] = std::move(running);
  follow(fetches_.begin(prompt));
  if (!deadlines_.joinable()) {
    deadlines_ = std::jthread([this](const std::stop_token& stop) { keep_deadlines(stop); });
  }
  begins_to_wait_.notify_one();
}

void RequestWriter::begins_to_compute() {
  if (running_.empty() && orphans_.empty()) computes_since_ = prompts_.clock();
}

void RequestWriter::add_orphan(Running running) {
  begins_to_compute();
  orphans_.push_back(std::move(running));
}

void RequestWriter::submit_to(int owner, Running running) {
  begins_to_compute();
  const Request& request = running.request;
  const int index = request.index;
  assign(owner, running);
  write({.kind = Command::Kind::kSubmit, .owner = owner, .request = request});
  running.returns_experts = request.returns_experts;
  if (!keeps()) running.request = {};
  running_[index] = std::move(running);
  fetches_.set_busy(true);
}

void RequestWriter::assign(int owner, Running& running) {
  const Request& request = running.request;
  running.owner = owner;
  running.tokens = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  running.tokens -= running.known_tokens;
  tokens_of_owner_[owner] += running.tokens;
}

// The owner may have gone.
RequestWriter::Running RequestWriter::take(Requests& from, Requests::iterator which) {
  Running running = std::move(which->second);
  from.erase(which);
  const auto owner = tokens_of_owner_.find(running.owner);
  if (owner != tokens_of_owner_.end()) owner->second -= running.tokens;
  fetches_.set_busy(!running_.empty());
  return running;
}

template <typename Wanted>
std::vector<RequestWriter::Running> RequestWriter::take_all(Requests& from, Wanted wanted) {
  std::vector<Running> taken;
  for (auto next = from.begin(); next != from.end();) {
    const auto each = next++;
    if (wanted(each->second)) taken.push_back(take(from, each));
  }
  return taken;
}

// ---- requests that wait for their pages ----

void RequestWriter::follow(const PromptFetches::Steps& steps) {
  for (const PromptFetches::Step& step : steps) {
    if (step.kind == Command::Kind::kSubmit) {
      submit_looked_for(step);
      continue;
    }
    Command command = {.kind = step.kind,
                       .owner = step.owner,
                       .request = {},
                       .ticket = step.ticket,
                       .num_pages = step.num_pages};
    if (step.kind == Command::Kind::kLook) {
      const Request& request = waiting_.at(step.index).request;
      command.request.index = step.index;
      command.request.prompt = request.prompt;
      command.request.salt = request.salt;
      command.request.peer = request.peer;
    }
    write(command);
  }
}

void RequestWriter::submit_looked_for(const PromptFetches::Step& step) {
  Running running = take(waiting_, waiting_.find(step.index));
  const int64_t fetched = step.num_pages * static_cast<int64_t>(store::kPageTokens);
  running.known_tokens = std::max(running.known_tokens, fetched);
  submit_to(step.owner, std::move(running));
}

void RequestWriter::ranks_ready() {
  const std::lock_guard lock(mutex_);
  write_offers();
  fetches_.ranks_ready();
}

void RequestWriter::found(const PagesFound& answer) {
  const std::lock_guard lock(mutex_);
  follow(fetches_.found(answer));
  finish_if_none_waits();
}

void RequestWriter::arriving(const PagesArriving& answer) {
  const std::lock_guard lock(mutex_);
  fetches_.arriving(answer);
}

std::vector<PromptTransfer> RequestWriter::take_transfers() {
  const std::lock_guard lock(mutex_);
  return fetches_.take_transfers();
}

void RequestWriter::fetched(const PagesFetched& answer) {
  const std::lock_guard lock(mutex_);
  follow(fetches_.fetched(answer));
  finish_if_none_waits();
}

void RequestWriter::pages_changed(const PagesChanged& changed) {
  if (prompts_.record_class.empty()) return;
  const std::lock_guard lock(mutex_);
  places_.add(owner_of_rank(changed.rank), changed);
}

void RequestWriter::iteration_ended(const Iteration& iteration) {
  if (!prompts_.are_kept && !prompts_.may_come_from_peers) return;
  const std::lock_guard lock(mutex_);
  fetches_.iteration_ended(iteration);
}

FetchCounts RequestWriter::fetch_counts() {
  const std::lock_guard lock(mutex_);
  return fetches_.counts();
}

PeerWaits RequestWriter::peer_waits() {
  const std::lock_guard lock(mutex_);
  return fetches_.peer_waits();
}

std::optional<double> RequestWriter::computes_since() {
  const std::lock_guard lock(mutex_);
  if (running_.empty() && orphans_.empty()) return std::nullopt;
  return computes_since_;
}

void RequestWriter::keep_deadlines(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    begins_to_wait_.wait(lock, stop, [this] { return !waiting_.empty(); });
    begins_to_wait_.wait_for(lock, stop, kDeadlineInterval, [] { return false; });
    follow(fetches_.expire());
    finish_if_none_waits();
  }
}

// ---- the end of requests, and of the run ----

void RequestWriter::cancel(int index) {
  const std::lock_guard lock(mutex_);
  if (const auto waiting = waiting_.find(index); waiting != waiting_.end()) {
    take(waiting_, waiting);
    follow(fetches_.release(index));
    return finish_if_none_waits();  // no rank knows it
  }
  end(index);
  std::erase_if(orphans_, [&](const Running& each) { return each.request.index == index; });
  write({.kind = Command::Kind::kCancel, .request = {.index = index}});
}

void RequestWriter::cut(int index) {
  const std::lock_guard lock(mutex_);
  if (const auto waiting = waiting_.find(index); waiting != waiting_.end()) {
    follow(fetches_.release(index));
    submit_looked_for({.owner = waiting->second.owner, .index = index});
    finish_if_none_waits();
  }
  Running* running = find(index);
  if (running == nullptr || running->awaits_experts) return;  // it has ended by itself
  running->awaits_experts = true;
  std::vector<int32_t>& answered = running->request.answered;
  running->request.max_tokens = static_cast<int>(answered.size());
  if (!answered.empty()) answered.pop_back();
  write({.kind = Command::Kind::kCancel, .request = {.index = index}});
}

RequestWriter::Running* RequestWriter::find(int index) {
  const auto found = running_.find(index);
  if (found != running_.end()) return &found->second;
  const auto orphan =
      std::ranges::find(orphans_, index, [](const Running& each) { return each.request.index; });
  return orphan == orphans_.end() ? nullptr : &*orphan;
}

void RequestWriter::record_experts(bool records) {
  const std::lock_guard lock(mutex_);
  records_experts_ = records;
  ++num_recordings_;
  write_recording();
}

// Numbered, so that an answer to an earlier one is not taken for one to this.
void RequestWriter::write_recording() {
  write({.kind = records_experts_ ? Command::Kind::kRecordExperts : Command::Kind::kEndRecord,
         .request = {.index = num_recordings_}});
}

int RequestWriter::change_role(engine::Role role) {
  const std::lock_guard lock(mutex_);
  role_ = role;
  ++num_roles_;
  write_role();
  return num_roles_;
}

void RequestWriter::write_role() {
  write({.kind = Command::Kind::kRole, .request = {.index = num_roles_}, .role = role_});
}

void RequestWriter::offer_pages_to(std::string front) {
  const std::lock_guard lock(mutex_);
  offers_to_ = std::move(front);
}

void RequestWriter::write_offers() {
  if (!offers_to_) return;
  write({.kind = Command::Kind::kOffers, .request = {.peer = *offers_to_}});
}

void RequestWriter::finish() {
  const std::lock_guard lock(mutex_);
  finishes_ = true;
  finish_if_none_waits();
}

void RequestWriter::finish_if_none_waits() {
  if (!finishes_ || !waiting_.empty() || !orphans_.empty()) return;
  finishes_ = false;
  write(Command::Kind::kFinish);
}

// What waits is begun by nobody any more.
void RequestWriter::stop() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  fetches_.clear();
  take_all(waiting_, [](const Running&) { return true; });
  write(Command::Kind::kStop);
}

void RequestWriter::answered(int index, int32_t token, bool is_last) {
  if (!is_last && !keeps()) return;
  const std::lock_guard lock(mutex_);
  // It may be unknown: cancelled, while a token of it was in flight.
  const auto found = running_.find(index);
  if (found == running_.end() || found->second.awaits_experts) return;
  Running& running = found->second;
  if (!is_last) return running.request.answered.push_back(token);
  if (!running.returns_experts) return end(index);
  running.awaits_experts = true;
  running.request.max_tokens = static_cast<int>(running.request.answered.size()) + 1;
}

bool RequestWriter::routed(int index) {
  const std::lock_guard lock(mutex_);
  const bool wanted = running_.contains(index) && running_.at(index).returns_experts;
  end(index);
  return wanted;
}

// Errors are ignored: they mean that a rank has ended, which is an event of its own.
void RequestWriter::write(const Command& command) {
  const std::string message = encoder_.encode(command);
  for (const auto& [rank, pipe] : pipes_) {
    [[maybe_unused]] const Status sent = pipe->messages.send(message);
  }
}

// The request may be unknown: it may both be cancelled and have its last token in flight.
void RequestWriter::end(int index) {
  const auto found = running_.find(index);
  if (found != running_.end()) take(running_, found);
}

// ---- ranks that die and return ----

RequestWriter::Loss RequestWriter::lose_rank(int rank, bool is_own_fault) {
  const std::lock_guard lock(mutex_);
  pipes_.erase(rank);
  joining_.erase(rank);
  lost_.insert(rank);
  places_.clear(owner_of_rank(rank));
  const bool moves = on_loss_ == OnLoss::kMove;
  if (on_loss_ == OnLoss::kReplay) {  // all begin with empty caches
    for (const auto& [owner, tokens] : tokens_of_owner_) places_.clear(owner);
  }
  if (moves) {
    tokens_of_owner_.erase(rank);
    fetches_.drop_owner(rank);
  }
  std::erase(members_, rank);
  Loss loss;
  if (is_own_fault) loss.failed = count_own_death(rank);
  if (moves) {
    const auto has_lost_owner = [&](const Running& each) { return each.owner == rank; };
    std::vector<Running> moved = take_all(running_, has_lost_owner);
    std::ranges::move(take_all(waiting_, has_lost_owner), std::back_inserter(moved));
    loss.moved = static_cast<int>(moved.size());
    for (Running& each : moved) place(std::move(each));
  } else {
    follow(fetches_.lose_rank(rank));
  }
  finish_if_none_waits();
  return loss;
}

// Also what only waits may be the cause: its pages are fetched. Returns those that are given up.
std::vector<int> RequestWriter::count_own_death(int rank) {
  std::vector<int> failed;
  const auto has_met_too_many = [&](Running& each) {
    const bool was_there = on_loss_ != OnLoss::kMove || each.owner == rank;
    return was_there && ++each.own_deaths == kMaxOwnDeaths;
  };
  for (Requests* requests : {&running_, &waiting_}) {
    for (auto next = requests->begin(); next != requests->end();) {
      const auto each = next++;
      if (!has_met_too_many(each->second)) continue;
      failed.push_back(each->first);
      take(*requests, each);
      follow(fetches_.release(failed.back()));
    }
  }
  return failed;
}

bool RequestWriter::is_computed_by(int index, int rank) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(index);
  return found != running_.end() && found->second.owner == rank;
}

// A rank that ends is not asked any more, but computes what it has.
void RequestWriter::want(int num_ranks) {
  const std::lock_guard lock(mutex_);
  std::erase_if(tokens_of_owner_, [&](const auto& owner) { return owner.first >= num_ranks; });
  for (const int rank : members_) {
    if (rank < num_ranks) tokens_of_owner_.try_emplace(rank, tokens_of(rank));
  }
  for (Running& each : take_all(waiting_, [&](const Running& one) { return !has_owner(one); })) {
    follow(fetches_.release(each.request.index));
    place(std::move(each));
  }
}

int64_t RequestWriter::tokens_of(int owner) const {
  int64_t tokens = 0;
  for (const Requests* requests : {&running_, &waiting_}) {
    for (const auto& [index, each] : *requests) tokens += each.owner == owner ? each.tokens : 0;
  }
  return tokens;
}

int RequestWriter::change_members(uint32_t epoch, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  members_ = ranks;
  for (const int rank : ranks) {
    if (const auto joining = joining_.extract(rank)) pipes_[rank] = std::move(joining.mapped());
    if (on_loss_ == OnLoss::kMove) tokens_of_owner_.try_emplace(rank, 0);
    lost_.erase(rank);
  }
  if (on_loss_ == OnLoss::kMove) {
    std::erase_if(tokens_of_owner_, [&](const auto& owner) {
      return std::ranges::find(ranks, owner.first) == ranks.end();
    });
  }
  write({.kind = Command::Kind::kMembers, .request = {}, .epoch = epoch});
  // A rank that stays may have dropped it with the last epoch, and one that joins has not read it.
  if (num_recordings_ > 0) write_recording();
  if (num_roles_ > 0) write_role();
  write_offers();
  if (is_stopping_) write(Command::Kind::kStop);
  fetches_.ranks_ready();
  std::vector<Running> again = begin_again();
  for (Running& each : again) place(std::move(each));
  finish_if_none_waits();
  return static_cast<int>(again.size());
}

// What the new members have to begin. Owners that stay go on with what they were asked; ranks that
// share their requests have forgotten it.
std::vector<RequestWriter::Running> RequestWriter::begin_again() {
  std::vector<Running> again = std::exchange(orphans_, {});
  const bool all = on_loss_ == OnLoss::kReplay;
  if (all) {
    fetches_.clear();
    std::ranges::move(take_all(running_, [](const Running&) { return true; }),
                      std::back_inserter(again));
  }
  const auto begins = [&](const Running& each) { return all || !has_owner(each); };
  for (Running& each : take_all(waiting_, begins)) {
    fetches_.drop_owner(each.owner);
    again.push_back(std::move(each));
  }
  return again;
}

}  // namespace wideep::run
