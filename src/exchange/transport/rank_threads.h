// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one process: for tests, sanitizers and embedding.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "transport/faulty.h"

namespace wideep::transport {

struct GroupOptions {
  int num_ranks = 1;
  size_t segment_bytes = 0;
  std::chrono::milliseconds timeout{30'000};
  std::vector<Fault> faults = {};  // injected by tests
  // Only for ranks that are threads: number of simulated nodes, each with its own memory.
  int num_nodes = 1;
  // Not for ranks that are threads. False: SIGINT and SIGTERM end the group. True: the first signal
  // becomes an event of RunningRanks::next(). The caller then asks the ranks to stop
  // (control().stop_requested) and sets a deadline (end_within); result() is ok, not interrupted. A
  // second signal ends the group.
  bool reports_stop_signals = false;
  // SIGHUP becomes an event, too, in a process without a terminal that has started its ranks.
  bool reports_hang_up = false;
};

// Runs body(endpoint) once per rank, each on its own thread, and returns the statuses in rank
// order. If a rank fails, the waits of all others return its error. Errors (failed): the kernel
// refuses the memory.
Result<std::vector<Status>> run_rank_threads(const GroupOptions& options,
                                             const std::function<Status(Endpoint&)>& body);

}  // namespace wideep::transport
