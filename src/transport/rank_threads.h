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
  std::vector<Fault> faults = {};  // of tests; none: all ranks are sound
  // Ranks that are threads only: so many nodes share the ranks evenly, each has memory of its own.
  int num_nodes = 1;
  // SIGINT and SIGTERM are events of RunningRanks::next() instead of ending the group: whoever
  // pulls them asks the ranks to stop (control().stop_requested) and says how long that may take
  // (end_within); the run then counts as ended, not as interrupted. A second signal ends it at
  // once. Not of ranks that are threads.
  bool reports_stop_signals = false;
};

// Runs body(endpoint) once per rank, each in its own thread, and returns their statuses in rank
// order. A rank that fails makes the others' waits fail with the same message.
Result<std::vector<Status>> run_rank_threads(const GroupOptions& options,
                                             const std::function<Status(Endpoint&)>& body);

}  // namespace wideep::transport
