// SPDX-License-Identifier: Apache-2.0
//
// The requests of a run: a log of commands that every rank reads in the same order. Forked ranks
// each have a pipe to read it from. Of ranks that a launcher has started, rank 0 has the pipe and
// passes on over the bridge what it reads.
//
// How far the log is followed is agreed at the start of every iteration, so that ranks that must
// schedule alike do. A rank that schedules by itself begins its own requests earlier: in the
// iteration at whose start it sees them.
//
// Thread safety: one thread per feed; the writing end is any MessagePipe.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "transport/bridge.h"
#include "transport/endpoint.h"
#include "wideep/status.h"

namespace wideep::engine {

struct Command {
  enum class Kind : uint8_t {
    kSubmit,
    kCancel,
    kHold,            // requests that are submitted from here on wait …
    kRelease,         // … until now: they begin in one iteration, on all ranks
    kReportWhenIdle,  // events of what follows are sent when nobody has work any more
    kRecordExperts,   // from the next iteration on
    kEndRecord,
    kFinish,  // no request comes any more: the run ends when all are answered
    kStop  // the group is to stop, as its memory says: for ranks that sleep, or have other memory
  };
  Kind kind = Kind::kSubmit;
  int owner = 0;    // kSubmit: whose request it is, where ranks have requests of their own
  Request request;  // kSubmit; kCancel: only its index
};

// As a message of a MessagePipe.
std::string encode(const Command& command);

class RequestFeed {
 public:
  // fd: the reading end of a pipe, which stays the caller's; −1: none, commands come over the
  // bridge. bridge: who reads a pipe passes everything on over it; null: every rank has a pipe.
  // owner: whose requests are this rank's; nothing: all are.
  RequestFeed(int fd, std::optional<int> owner, transport::Bridge* bridge = nullptr);

  bool is_mine(const Command& command) const { return !owner_ || command.owner == *owner_; }

  // Commands that have come since the start.
  uint64_t seen() const { return seen_; }

  // Takes in what has come, without waiting. Errors (failed): the writer is gone.
  Status poll();
  // Waits until something comes, `at_most` is over, or the group is to stop or has failed. Who had
  // to wait takes in too what comes at once with the first, as of clients that begin together: an
  // iteration for one of them alone would have the others wait for it.
  Status wait(const transport::Endpoint& endpoint, std::chrono::milliseconds at_most);
  // Waits until `count` have come. Errors: they do not within the endpoint's timeout.
  Status wait_for(uint64_t count, const transport::Endpoint& endpoint);

  // Whether the oldest not yet taken may be followed now. agreed: so many have all ranks seen.
  // alone: this rank schedules by itself; it waits for the others only with what all begin at once.
  bool has_next(uint64_t agreed, bool alone) const;
  // The oldest not yet taken. REQUIRES: fewer than seen() have been.
  Command take();
  uint64_t taken() const { return seen_ - commands_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  Status read_pipe();
  void take_apart();
  Status gather();
  void sleep_until(Clock::time_point end) const;

  int fd_;
  std::optional<int> owner_;
  transport::Bridge* bridge_;
  std::string inbox_;
  std::deque<Command> commands_;
  uint64_t seen_ = 0;
};

}  // namespace wideep::engine
