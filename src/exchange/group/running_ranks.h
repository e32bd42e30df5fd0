// SPDX-License-Identifier: Apache-2.0
//
// A running group of ranks. The process that started it pulls the ranks' messages:
//
//   WIDEEP_TRY_ASSIGN(const auto ranks, start_rank_processes(options, body));
//   while (const auto event = ranks->next()) { ... }
//   return ranks->result();
//
// Implementations: forked ranks, which the parent supervises (group/rank_processes.h), and
// ranks that mpirun or srun has started, of which this process is one (group/started_ranks.h).
//
// Thread safety: one thread calls next() and result(); any thread may call the rest.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "transport/shared_memory.h"
#include "wideep/status.h"

namespace wideep::transport {

// A message that a rank has sent with its Messenger.
struct RankMessage {
  int rank = 0;
  std::string bytes;
};
// SIGINT or SIGTERM was received (only with GroupOptions::reports_stop_signals).
struct StopSignal {
  int signal = 0;
};
// SIGHUP was received: the process should take no more work, but stay (only with
// GroupOptions::reports_hang_up, where this process started the ranks and has no terminal).
struct DrainSignal {};
// Only where ranks may die and return (group/keeper.h): a rank's process has been started;
// commands: the pipe to write its commands to, owned by the receiver.
struct RankStarted {
  int rank = 0;
  int commands = -1;
};
// A rank's process has ended. All messages that it has sent came before.
struct RankDied {
  int rank = 0;
  std::string how;
  bool was_expected = false;  // it was asked to end
  bool is_own_fault = false;  // it was not killed from outside
};
// Only with a keeper: it asks whether this process still works (KeptRanks::answer).
struct Ping {
  int64_t number = 0;
};
using RankEvent = std::variant<RankMessage, StopSignal, DrainSignal, RankStarted, RankDied, Ping>;

class RunningRanks {
 public:
  virtual ~RunningRanks() = default;

  // Waits for the next event. Empty: all ranks have ended. Messages of one rank keep their order.
  virtual std::optional<RankEvent> next() = 0;
  // After next() has returned empty: ok, the group's first error, or kInterrupted.
  virtual Status result() = 0;

  // The memory that the ranks of this node share.
  virtual SharedMemory& memory() = 0;
  // Gives the ranks this much time to end; then the group fails. A second call can shorten the
  // time, never extend it.
  virtual void end_within(std::chrono::milliseconds grace) = 0;
  // Asks for this many ranks: those with the smallest numbers. Errors (invalid input): their number
  // is fixed; (failed) the process that starts them has ended.
  virtual Status want(int /*num_ranks*/) { return invalid_input("the number of ranks is fixed"); }
};

// Passes the ranks' messages to on_message(rank, message) until all ranks have ended. Ignores stop
// signals. Returns the result.
Status run_to_end(RunningRanks& ranks,
                  const std::function<void(int, std::string_view)>& on_message);

}  // namespace wideep::transport
