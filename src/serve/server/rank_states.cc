// SPDX-License-Identifier: Apache-2.0
//
// Only events tell what ranks do, and some belong together: the first death begins a recovery, the
// next change of members ends it. A rank that was asked to end has retired, not died. While the
// service grows, its old size is its full one, so that growing is not degraded. A serving process
// that goes on for a dead one has seen no event: to it no rank computes until members have changed.
#include "server/rank_states.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "server/prometheus_text.h"

namespace wideep::server {
namespace {

constexpr size_t kMaxEvents = 20;

// "1 request", "2 requests"
template <typename T>
std::string many(T count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

std::string line_of(const run::RankDied& rank) {
  std::string line = rank.how;
  if (rank.moved > 0) {
    line +=
        fmt::format("; {} on elsewhere",
                    rank.moved == 1 ? "1 request goes" : fmt::format("{} requests go", rank.moved));
  }
  if (!rank.failed.empty()) {
    line +=
        fmt::format("; {} failed: several ranks have died of themselves with {}",
                    many(rank.failed.size(), "request"), rank.failed.size() == 1 ? "it" : "them");
  }
  return line;
}

std::string line_of(const run::MembersChanged& change, size_t num_ranks) {
  std::string line = fmt::format("{} of {} ranks compute", change.ranks.size(), num_ranks);
  if (change.reloaded > 0) line += fmt::format("; {} reloaded", many(change.reloaded, "expert"));
  if (change.replayed > 0) line += fmt::format("; {} replayed", many(change.replayed, "request"));
  return line;
}

void RankStates::note(double now, std::string text) {
  events_.push_back({now, std::move(text)});
  if (events_.size() > kMaxEvents) events_.pop_front();
}

RankStates::RankStates(int num_ranks, int start_ranks)
    : states_(static_cast<size_t>(num_ranks), State::kActive),
      resident_(static_cast<size_t>(num_ranks)),
      wanted_(start_ranks),
      size_(start_ranks) {
  std::fill(states_.begin() + start_ranks, states_.end(), State::kRetired);
}

void RankStates::begin_again(int number, int wanted, double now) {
  num_fronts_ = number;
  wanted_ = size_ = wanted;
  std::fill_n(states_.begin(), wanted, State::kStarting);
  std::fill(states_.begin() + wanted, states_.end(), State::kRetired);
  note(now, "the serving process has died; another one goes on with its requests");
}

void RankStates::want(int num_ranks, std::function<void()> done) {
  wanted_ = num_ranks;
  size_ = std::min(size_, num_ranks);
  done_ = std::move(done);
}

void RankStates::died(const run::RankDied& rank, double now) {
  replayed_ += static_cast<uint64_t>(rank.moved);
  resident_[static_cast<size_t>(rank.rank)] = 0;
  if (rank.was_expected) {
    states_[static_cast<size_t>(rank.rank)] = State::kRetired;
    return;
  }
  states_[static_cast<size_t>(rank.rank)] = State::kDead;
  ++deaths_;
  given_up_ += rank.failed.size();
  if (broken_at_ == 0.0) broken_at_ = now;
  note(now, line_of(rank));
}

void RankStates::memory(const run::RankMemory& rank) {
  resident_[static_cast<size_t>(rank.rank)] = rank.resident_bytes;
}

void RankStates::started(const run::RankStarted& rank) {
  states_[static_cast<size_t>(rank.rank)] = State::kStarting;
}

void RankStates::changed(const run::MembersChanged& change, double now) {
  for (size_t rank = 0; rank < states_.size(); ++rank) {
    const bool is_member =
        std::ranges::find(change.ranks, static_cast<int>(rank)) != change.ranks.end();
    if (is_member) states_[rank] = State::kActive;
    const bool is_wanted = static_cast<int>(rank) < wanted_;
    if (!is_member && !is_wanted && states_[rank] == State::kActive) {
      states_[rank] = State::kRetired;
    }
  }
  ++changes_;
  replayed_ += static_cast<uint64_t>(change.replayed);
  reloaded_ += static_cast<uint64_t>(change.reloaded);
  if (const double broken_at = std::exchange(broken_at_, 0.0); broken_at > 0.0) {
    ++recoveries_;
    recovery_seconds_ += now - broken_at;
    longest_recovery_ = std::max(longest_recovery_, now - broken_at);
  }
  note(now, line_of(change, states_.size()));
  if (static_cast<int>(change.ranks.size()) != wanted_ || change.ranks.back() >= wanted_) return;
  size_ = wanted_;
  if (const auto done = std::exchange(done_, nullptr)) done();
}

bool RankStates::compute_alone(int num_ranks) const {
  const auto end = states_.begin() + num_ranks;
  const auto is_active = [](State state) { return state == State::kActive; };
  return std::all_of(states_.begin(), end, is_active) &&
         std::none_of(end, states_.end(), is_active);
}

int RankStates::count(State state) const {
  return static_cast<int>(std::ranges::count(states_, state));
}

std::string RankStates::degraded() const {
  std::vector<int> dead;
  int starting = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const State state = states_[static_cast<size_t>(rank)];
    if (state == State::kDead || state == State::kStarting) dead.push_back(rank);
    if (state == State::kStarting) ++starting;
  }
  if (dead.empty()) return "";
  return fmt::format("rank{} {} {} not compute{}", dead.size() == 1 ? "" : "s",
                     fmt::join(dead, ", "), dead.size() == 1 ? "does" : "do",
                     starting > 0 ? fmt::format(" ({} start again)", starting) : "");
}

std::string RankStates::metrics() const {
  std::string text = metric_head("wideep_ep_rank_active", "gauge", "Whether the rank computes.");
  for (size_t rank = 0; rank < states_.size(); ++rank) {
    text += fmt::format("wideep_ep_rank_active{{ep_rank=\"{}\"}} {}\n", rank,
                        states_[rank] == State::kActive ? 1 : 0);
  }
  text += metric_head("wideep_rank_resident_memory_bytes", "gauge",
                      "Memory of the rank's process, shared memory that it has touched included.");
  for (size_t rank = 0; rank < resident_.size(); ++rank) {
    if (resident_[rank] == 0) continue;
    text += fmt::format("wideep_rank_resident_memory_bytes{{ep_rank=\"{}\"}} {}\n", rank,
                        resident_[rank]);
  }
  return text +
         metric("wideep_ep_active_ranks", "gauge", "Ranks that compute.", count(State::kActive)) +
         metric("wideep_ep_wanted_ranks", "gauge", "Ranks that are to compute.", wanted_) +
         metric("wideep_ep_failed_ranks_total", "counter", "Ranks that have died.", deaths_) +
         metric("wideep_serving_processes_died_total", "counter",
                "Serving processes that have died before this one.", num_fronts_) +
         metric("wideep_member_changes_total", "counter", "Changes of the ranks that compute.",
                changes_) +
         metric("wideep_recoveries_total", "counter", "Changes after the death of a rank.",
                recoveries_) +
         metric("wideep_recovery_seconds_total", "counter",
                "From deaths until the other ranks computed again.", recovery_seconds_) +
         metric("wideep_longest_recovery_seconds", "gauge", "The longest of these times.",
                longest_recovery_) +
         metric("wideep_experts_reloaded_total", "counter",
                "Experts brought into slots because the ranks that compute have changed.",
                reloaded_) +
         metric("wideep_requests_replayed_total", "counter",
                "Requests that another rank went on with.", replayed_) +
         metric("wideep_requests_given_up_total", "counter",
                "Requests that failed because ranks died of themselves with them.", given_up_);
}

nlohmann::ordered_json RankStates::json() const {
  constexpr std::array kNames = {"active", "dead", "starting", "retired"};  // as State
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const State state : states_) {
    ranks.push_back(kNames[static_cast<size_t>(state)]);
  }
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const Event& each : events_) events.push_back({{"time", each.time}, {"text", each.text}});
  return {{"states", std::move(ranks)},
          {"wanted", wanted_},
          {"degraded", degraded()},
          {"events", std::move(events)}};
}

}  // namespace wideep::server
