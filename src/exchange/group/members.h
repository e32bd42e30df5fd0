// SPDX-License-Identifier: Apache-2.0
//
// The members of a group whose ranks may die, come back and be added (docs/faults.md), and what
// their keeper decides about them. An epoch is a time with the same members.
//
//   absent ──started──▶ starting ──ready──▶ waiting ──form()──▶ member
//      ▲                                     │ ▲                  │
//      │                     ending ◀─retired┘ └───────left───────┘
//      └──────────────────────────── died, from anywhere
//
// An epoch breaks when a member dies, or leaves because another one does not answer: what its
// members were computing is lost. It closes when the keeper asks them to leave between two
// iterations, for ranks that wait to join: nothing is lost. The next epoch is formed only when
// every member of the last one has left or died, so no rank of an epoch ever meets one of another.
//
// Pure: no clock, no process, no message. members_test.cc explores it together with ranks.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/shared_memory.h"
#include "wideep/status.h"

namespace wideep::transport {

Status check_max_ranks(int num_ranks);  // errors (invalid input): more than kMaxRanks

struct Members {
  uint32_t epoch = 0;      // from 1
  std::vector<int> ranks;  // of the world, ascending
  // The process that they work for is another one now: it knows of no request.
  bool has_new_front = false;
  bool operator==(const Members&) const = default;
};

class Membership {
 public:
  enum class Place : uint8_t { kAbsent, kStarting, kWaiting, kMember, kEnding };
  enum class State : uint8_t {
    kNone,     // no epoch: the first is not formed yet, or the last one has ended
    kIntact,   // the members compute
    kClosing,  // they leave after their iteration
    kBroken,   // they leave at once
  };

  // capacity: ranks of the world. wanted: as want(). min: members without which no epoch is
  // formed. REQUIRES: 1 ≤ min ≤ wanted ≤ capacity.
  Membership(int capacity, int wanted, int min);

  // ---- what happens ----

  void started(int rank);
  void ready(int rank);
  // epoch: that the rank was a member of. No effect if it is not one now.
  void left(int rank, uint32_t epoch);
  void died(int rank);
  // It was told to end, which takes a while: until it has died it is not to be had, also if it is
  // wanted again. REQUIRES: it waits.
  void retired(int rank);
  // Ends the epoch at once, if there is one.
  void break_up();
  // From now on the ranks 0 … num_ranks − 1 are wanted.
  void want(int num_ranks) { wanted_ = num_ranks; }

  // ---- what follows ----

  // Wanted ranks that have to be started.
  std::vector<int> missing() const;
  // Ranks that are to be told to end: they wait or start, and are not wanted.
  std::vector<int> surplus() const;
  // Closes the epoch if that brings the members closer to those wanted, and no rank that starts
  // would soon need the same again. Returns whether it did.
  bool close();
  // Forms the next epoch if there is none and enough ranks wait: for the first one all that are
  // wanted.
  std::optional<Members> form();

  State state() const { return state_; }
  const Members& members() const { return members_; }  // of the present or the last epoch
  Place place(int rank) const { return places_[static_cast<size_t>(rank)]; }
  int wanted() const { return wanted_; }
  int min() const { return min_; }
  // Members that have not left yet.
  std::vector<int> inside() const { return all(Place::kMember); }
  std::vector<int> waiting() const { return all(Place::kWaiting); }
  std::vector<int> starting() const { return all(Place::kStarting); }
  std::vector<int> ending() const { return all(Place::kEnding); }

 private:
  std::vector<int> all(Place place) const;
  Place& at(int rank) { return places_[static_cast<size_t>(rank)]; }
  void end_if_empty();

  int wanted_;
  int min_;
  std::vector<Place> places_;
  State state_ = State::kNone;
  Members members_;
};

}  // namespace wideep::transport
