// SPDX-License-Identifier: Apache-2.0
//
// A group of ranks while it runs, seen by the process that started it: it pulls what the ranks say.
//
//   WIDEEP_TRY_ASSIGN(const auto ranks, start_rank_processes(options, body));
//   while (const auto event = ranks->next()) { ... }
//   return ranks->result();
//
// Two kinds: forked ranks, which the parent supervises (transport/rank_processes.h), and ranks that
// mpirun or srun has started, of which this process is one (transport/started_ranks.h).
//
// Thread safety: next() and result() belong to one thread, the others may be called by any.
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

// Something that a rank has sent with its Messenger.
struct RankMessage {
  int rank = 0;
  std::string bytes;
};
// SIGINT or SIGTERM has come, where GroupOptions::reports_stop_signals.
struct StopSignal {
  int signal = 0;
};
using RankEvent = std::variant<RankMessage, StopSignal>;

class RunningRanks {
 public:
  virtual ~RunningRanks() = default;

  // Waits for the next event; nothing: all ranks have ended. Messages of one rank come in order.
  virtual std::optional<RankEvent> next() = 0;
  // After next() has returned nothing: ok, the group's first failure, or interrupted.
  virtual Status result() = 0;

  // The memory that the ranks of this node share.
  virtual SharedMemory& memory() = 0;
  // Ranks that still run when this time is over are made to fail. Calling it again never gives more
  // time.
  virtual void end_within(std::chrono::milliseconds grace) = 0;
};

// Pulls until the ranks have ended, and passes on what they say.
Status run_to_end(RunningRanks& ranks,
                  const std::function<void(int, std::string_view)>& on_message);

}  // namespace wideep::transport
