// SPDX-License-Identifier: Apache-2.0
//
// Each event changes one rank's place, and the state of the epoch follows from the places. Nothing
// is remembered of the order of events, so a test can explore all of them. An event that comes too
// late, of an epoch that is over, has no effect.
#include "group/members.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace wideep::transport {

Status check_max_ranks(int num_ranks) {
  if (num_ranks <= kMaxRanks) return {};
  return invalid_input(fmt::format(
      "--on-rank-loss recover: expected at most {} ranks, found {}; take fewer, or --on-rank-loss "
      "fail",
      kMaxRanks, num_ranks));
}

Membership::Membership(int capacity, int wanted, int min)
    : wanted_(wanted), min_(min), places_(static_cast<size_t>(capacity), Place::kAbsent) {
  WIDEEP_CHECK(1 <= min && min <= wanted && wanted <= capacity);
}

void Membership::started(int rank) {
  WIDEEP_CHECK(place(rank) == Place::kAbsent);
  at(rank) = Place::kStarting;
}

void Membership::ready(int rank) {
  if (place(rank) == Place::kStarting) at(rank) = Place::kWaiting;
}

// A member that leaves an intact epoch waited for another one in vain: the epoch is broken for all.
void Membership::left(int rank, uint32_t epoch) {
  if (place(rank) != Place::kMember || epoch != members_.epoch) return;
  at(rank) = Place::kWaiting;
  if (state_ == State::kIntact) state_ = State::kBroken;
  end_if_empty();
}

// A rank that has left a closing epoch may die without harm to the others.
void Membership::died(int rank) {
  const bool was_member = place(rank) == Place::kMember;
  at(rank) = Place::kAbsent;
  if (!was_member) return;
  state_ = State::kBroken;
  end_if_empty();
}

void Membership::retired(int rank) {
  WIDEEP_CHECK(place(rank) == Place::kWaiting);
  at(rank) = Place::kEnding;
}

void Membership::break_up() {
  if (state_ != State::kNone) state_ = State::kBroken;
}

void Membership::end_if_empty() {
  if (inside().empty()) state_ = State::kNone;
}

std::vector<int> Membership::missing() const {
  std::vector<int> ranks = all(Place::kAbsent);
  std::erase_if(ranks, [this](int rank) { return rank >= wanted_; });
  return ranks;
}

std::vector<int> Membership::surplus() const {
  std::vector<int> ranks;
  for (const Place place : {Place::kStarting, Place::kWaiting}) {
    for (const int rank : all(place)) {
      if (rank >= wanted_) ranks.push_back(rank);
    }
  }
  return ranks;
}

bool Membership::close() {
  if (state_ != State::kIntact) return false;
  const bool has_surplus = members_.ranks.back() >= wanted_;
  // One that is not wanted any more is on its way out: it neither joins nor holds up others.
  const auto is_wanted = [this](int rank) { return rank < wanted_; };
  if (!has_surplus && std::ranges::none_of(waiting(), is_wanted)) return false;
  if (std::ranges::any_of(starting(), is_wanted)) return false;
  state_ = State::kClosing;
  return true;
}

std::optional<Members> Membership::form() {
  if (state_ != State::kNone) return std::nullopt;
  std::vector<int> ranks = waiting();
  std::erase_if(ranks, [this](int rank) { return rank >= wanted_; });
  const bool is_first = members_.epoch == 0;
  if (static_cast<int>(ranks.size()) < (is_first ? wanted_ : min_)) return std::nullopt;
  for (const int rank : ranks) at(rank) = Place::kMember;
  members_ = {.epoch = members_.epoch + 1, .ranks = std::move(ranks)};
  state_ = State::kIntact;
  return members_;
}

std::vector<int> Membership::all(Place place) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < places_.size(); ++rank) {
    if (places_[rank] == place) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace wideep::transport
