// SPDX-License-Identifier: Apache-2.0
//
// The requests of a run: a log of commands that every rank reads in the same order. Each forked
// rank reads it from its own pipe. If a launcher started the ranks, only rank 0 has a pipe, and it
// forwards over the bridge what it reads.
//
// At the start of every iteration the ranks agree on how many commands of the log may be applied,
// so that ranks that must schedule the same requests do so. A rank that schedules alone does not
// wait for this agreement: it begins its own requests in the first iteration that sees them.
//
// Where the members of the group may change (group/seat.h), a rank is not needed for all of the
// log: kMembers marks where an epoch begins in it. Commands after the mark are counted from there,
// by all members alike. Those before it belong to an earlier epoch: what they did not agree on then
// they need not agree on any more.
//
// Thread safety: one thread per feed. The writing end is a transport::MessagePipe.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "engine/command.h"
#include "transport/bridge.h"
#include "transport/endpoint.h"
#include "wideep/status.h"

namespace wideep::engine {

class RequestFeed {
 public:
  // fd: the reading end of a pipe, owned by the caller; −1: commands come over the bridge.
  // owner: Command::owner of the requests that this rank computes; nullopt: it computes all.
  // bridge: the rank with a pipe forwards every command over it; null: every rank has a pipe.
  RequestFeed(int fd, std::optional<int> owner, transport::Bridge* bridge = nullptr);

  bool is_mine(const Command& command) const { return !owner_ || command.owner == *owner_; }

  // From now on commands come from another process, over this pipe. Forgets all that came before.
  void restart(int fd);
  // The rank is a member of this epoch from now on. Epoch 1 begins with the log.
  // drops_earlier: commands from before it are not to be applied any more.
  void begin_epoch(uint32_t epoch, bool drops_earlier);

  // The number of commands received since the epoch began.
  uint64_t seen() const { return mark_ == epoch_ ? seen_ : 0; }

  // Receives what has arrived, without waiting. Errors (failed): the writer has ended.
  Status poll();
  bool has_lost_writer() const { return has_lost_writer_; }
  // Waits until a command arrives, `at_most` is over, or the group has failed or must stop. After a
  // real wait it also receives the commands that follow within a fraction of a millisecond, for
  // example of clients that begin together: otherwise an iteration for the first request alone
  // would delay the others.
  Status wait(const transport::Endpoint& endpoint, std::chrono::milliseconds at_most);
  // Waits until seen() ≥ count. Errors: the endpoint's timeout has passed; the group has failed.
  Status wait_for(uint64_t count, const transport::Endpoint& endpoint);

  // Whether the oldest pending command may be applied now. agreed: the number of commands that all
  // ranks have received. alone: this rank schedules alone, so submits and cancels need no
  // agreement.
  bool has_next(uint64_t agreed, bool alone) const;
  // Removes the oldest pending command. REQUIRES: has_next().
  Command take();
  uint64_t taken() const { return taken_; }  // of this epoch

 private:
  using Clock = std::chrono::steady_clock;
  Status read_pipe();
  void parse_inbox();
  void add(std::string_view message);
  Status receive_burst();
  void sleep_until(Clock::time_point end) const;

  int fd_;
  std::optional<int> owner_;
  transport::Bridge* bridge_;
  std::string inbox_;
  std::deque<Command> commands_;
  CommandDecoder decoder_;
  uint32_t epoch_ = 1;  // of the rank
  uint32_t mark_ = 1;   // the last epoch that began in the log, as far as it was received
  bool drops_earlier_ = false;
  bool has_lost_writer_ = false;
  uint64_t received_ = 0;  // all that were ever received
  uint64_t seen_ = 0;      // commands since mark_
  uint64_t taken_ = 0;     // of these, by the rank as a member of epoch_
};

}  // namespace wideep::engine
