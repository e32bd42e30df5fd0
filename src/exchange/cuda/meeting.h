// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a group on one node find each other before there is any shared memory: every
// pair is connected by a local socket. Sockets have names of the abstract kind, which no file
// system knows, so that nothing is left of them. Processes of other users are turned away.
//
//   WIDEEP_TRY_ASSIGN(Meeting meeting,
//                     Meeting::hold({.group = "a", .rank = 0, .num_ranks = 2, …}));
//   WIDEEP_TRY(meeting.agree(check_memory()));   // the error of any rank is that of all
//
// The meeting fails at once if two ranks were given other terms.
//
// Thread safety: one thread for each rank's meeting.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "wideep/status.h"

namespace wideep::cuda {

// What all ranks must have equal: names and values.
using Terms = std::vector<std::pair<std::string, std::string>>;

struct MeetingOptions {
  std::string group;
  int rank = 0;
  int num_ranks = 1;
  Terms terms = {};
  std::chrono::milliseconds timeout{30'000};  // of the meeting, until its end
  std::vector<int> absent = {};               // ranks that do not come; not this one
  int occasion = 0;                           // a group that meets again counts its meetings
};

class Meeting {
 public:
  // Waits for all ranks. Errors (invalid input): a name or rank out of range; other terms; a rank
  // that joins twice; kDeadlineExceeded: a rank that has not come.
  static Result<Meeting> hold(const MeetingOptions& options);
  ~Meeting();
  Meeting(Meeting&& other) noexcept;
  Meeting& operator=(Meeting&&) = delete;

  int rank() const { return rank_; }
  int num_ranks() const { return static_cast<int>(sockets_.size()); }
  // To a peer; −1 to oneself and to those who are absent.
  int socket(int peer) const { return sockets_[static_cast<size_t>(peer)]; }

  // Collective: every rank brings a text and gets those of all, by rank; of the absent, "".
  Result<std::vector<std::string>> exchange(const std::string& mine);
  // Collective: ok if all ranks bring ok; otherwise this rank's error, or that of the first rank
  // that has one, with its name.
  Status agree(const Status& mine);

 private:
  using Clock = std::chrono::steady_clock;

  explicit Meeting(const MeetingOptions& options);
  Status listen();
  Status connect_to(int peer, const std::string& hello);
  Status accept_all(const std::string& hello);
  Status check_peer(int peer, const std::string& hello, const std::string& theirs);
  Status missing(int peer) const;
  Status send_text(int socket, const std::string& text, int peer) const;
  Result<std::string> receive_text(int socket, int peer) const;
  Status send_all(int socket, const void* data, size_t num_bytes, int peer) const;
  Status receive_all(int socket, void* data, size_t num_bytes, int peer) const;
  Status await_readable(int socket, int peer) const;
  std::string here() const;

  bool is_absent(int rank) const;

  std::string group_;
  int rank_;
  int occasion_;
  std::vector<int> absent_;
  std::chrono::milliseconds timeout_;
  Clock::time_point end_;
  int listener_ = -1;
  std::vector<int> sockets_;  // by peer
  Status other_terms_;        // of the first peer that has others
};

}  // namespace wideep::cuda
