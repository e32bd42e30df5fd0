// SPDX-License-Identifier: Apache-2.0
//
// All commands go through write() under one mutex, to every rank: equal order on all ranks is what
// their schedules rely on. submit() adds the tokens that a request may take to its owner, and picks
// the owner with the fewest.
//
// Where ranks may die, a request is kept with its answered tokens. Moving it is then submitting it
// again: the new owner computes these tokens again and goes on. A request that was there at several
// ranks' own deaths is given up, since it may be their cause.
#include "run/request_writer.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace wideep::run {

using engine::Command;
using engine::Request;

// A request that was computed by this many ranks when they died of themselves is likely the cause.
constexpr int kMaxOwnDeaths = 3;

struct RequestWriter::Pipe {
  explicit Pipe(int descriptor) : fd(descriptor), messages(descriptor) {}
  ~Pipe() {
    messages.finish();
    ::close(fd);
  }
  int fd;
  transport::MessagePipe messages;
};

RequestWriter::RequestWriter(int num_owners, OnLoss on_loss) : on_loss_(on_loss) {
  for (int owner = 0; owner < num_owners; ++owner) {
    tokens_of_owner_[owner] = 0;
    members_.push_back(owner);
  }
}

RequestWriter::~RequestWriter() = default;

void RequestWriter::add_rank(int rank, int fd, bool joins_later) {
  const std::lock_guard lock(mutex_);
  (joins_later ? joining_ : pipes_)[rank] = std::make_unique<Pipe>(fd);
}

void RequestWriter::submit(Request request) {
  const std::lock_guard lock(mutex_);
  Running running{.request = std::move(request)};
  if (tokens_of_owner_.empty()) return orphans_.push_back(std::move(running));
  const int cached_on = on_loss_ == OnLoss::kMove ? running.request.cached_on : -1;
  const bool has_cache = tokens_of_owner_.contains(cached_on);
  submit_to(has_cache ? cached_on : least_loaded(), std::move(running));
}

void RequestWriter::submit_together(std::vector<Request> requests, Reports reports) {
  const std::lock_guard lock(mutex_);
  if (reports == Reports::kWhenIdle) write(Command::Kind::kReportWhenIdle);
  write(Command::Kind::kHold);
  auto owner = tokens_of_owner_.begin();
  for (Request& request : requests) {
    if (owner == tokens_of_owner_.end()) owner = tokens_of_owner_.begin();
    if (owner == tokens_of_owner_.end()) {  // nobody lives
      orphans_.push_back({.request = std::move(request)});
      continue;
    }
    submit_to(owner->first, {.request = std::move(request)});
    ++owner;
  }
  write(Command::Kind::kRelease);
}

int RequestWriter::least_loaded() const {
  return std::ranges::min_element(tokens_of_owner_, {},
                                  [](const auto& owner) { return owner.second; })
      ->first;
}

void RequestWriter::submit_to(int owner, Running running) {
  const Request& request = running.request;
  const int index = request.index;
  running.owner = owner;
  running.tokens = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  tokens_of_owner_[owner] += running.tokens;
  write({.kind = Command::Kind::kSubmit, .owner = owner, .request = request});
  running.returns_experts = request.returns_experts;
  if (!keeps()) running.request = {};
  running_[index] = std::move(running);
}

void RequestWriter::cancel(int index) {
  const std::lock_guard lock(mutex_);
  end(index);
  std::erase_if(orphans_, [&](const Running& each) { return each.request.index == index; });
  write({.kind = Command::Kind::kCancel, .request = {.index = index}});
}

void RequestWriter::cut(int index) {
  const std::lock_guard lock(mutex_);
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

void RequestWriter::finish() {
  const std::lock_guard lock(mutex_);
  write(Command::Kind::kFinish);
}

void RequestWriter::stop() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
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
  if (found == running_.end()) return;
  const auto owner = tokens_of_owner_.find(found->second.owner);
  if (owner != tokens_of_owner_.end()) owner->second -= found->second.tokens;
  running_.erase(found);
}

RequestWriter::Loss RequestWriter::lose_rank(int rank, bool is_own_fault) {
  const std::lock_guard lock(mutex_);
  pipes_.erase(rank);
  joining_.erase(rank);
  const bool moves = on_loss_ == OnLoss::kMove;
  if (moves) tokens_of_owner_.erase(rank);
  std::erase(members_, rank);
  Loss loss;
  std::vector<Running> orphans;
  for (auto next = running_.begin(); next != running_.end();) {
    const auto running = next++;
    if (moves && running->second.owner != rank) continue;
    if (is_own_fault && ++running->second.own_deaths == kMaxOwnDeaths) {
      loss.failed.push_back(running->first);
      end(running->first);
    } else if (moves) {
      orphans.push_back(std::move(running->second));
      running_.erase(running);
    }
  }
  for (Running& each : orphans) {
    ++loss.moved;
    if (tokens_of_owner_.empty()) {
      orphans_.push_back(std::move(each));
    } else {
      submit_to(least_loaded(), std::move(each));
    }
  }
  return loss;
}

bool RequestWriter::is_computed_by(int index, int rank) {
  const std::lock_guard lock(mutex_);
  const auto found = running_.find(index);
  return found != running_.end() && found->second.owner == rank;
}

void RequestWriter::want(int num_ranks) {
  const std::lock_guard lock(mutex_);
  std::erase_if(tokens_of_owner_, [&](const auto& owner) { return owner.first >= num_ranks; });
  for (const int rank : members_) {
    if (rank < num_ranks) tokens_of_owner_.try_emplace(rank, tokens_of(rank));
  }
}

int64_t RequestWriter::tokens_of(int owner) const {
  int64_t tokens = 0;
  for (const auto& [index, each] : running_) tokens += each.owner == owner ? each.tokens : 0;
  return tokens;
}

int RequestWriter::change_members(uint32_t epoch, const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex_);
  members_ = ranks;
  for (const int rank : ranks) {
    if (const auto joining = joining_.extract(rank)) pipes_[rank] = std::move(joining.mapped());
    if (on_loss_ == OnLoss::kMove) tokens_of_owner_.try_emplace(rank, 0);
  }
  if (on_loss_ == OnLoss::kMove) {
    std::erase_if(tokens_of_owner_, [&](const auto& owner) {
      return std::ranges::find(ranks, owner.first) == ranks.end();
    });
  }
  write({.kind = Command::Kind::kMembers, .request = {}, .epoch = epoch});
  // A rank that stays may have dropped it with the last epoch, and one that joins has not read it.
  if (num_recordings_ > 0) write_recording();
  if (is_stopping_) write(Command::Kind::kStop);
  std::vector<Running> again = std::exchange(orphans_, {});
  if (on_loss_ == OnLoss::kReplay) {
    for (auto& [index, each] : std::exchange(running_, {})) again.push_back(std::move(each));
    for (auto& [owner, tokens] : tokens_of_owner_) tokens = 0;
  }
  for (Running& each : again) submit_to(least_loaded(), std::move(each));
  return static_cast<int>(again.size());
}

}  // namespace wideep::run
