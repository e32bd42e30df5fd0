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
  // Each may be empty. Of run_rank_processes, in the parent: all ranks have been forked, from here
  // on the parent may start threads; of run_started_ranks: this rank's node has its memory.
  std::function<void(const std::shared_ptr<SharedMemory>&)> on_started = {};
  // Of both: the first SIGINT or SIGTERM, whose ranks are then not asked to stop: somebody does so
  // within the time returned (control().stop_requested), and the run has not been interrupted.
  std::function<std::chrono::milliseconds(int signal)> on_stop = {};
};

// Runs body(endpoint) once per rank, each in its own thread, and returns their statuses in rank
// order. A rank that fails makes the others' waits fail with the same message.
Result<std::vector<Status>> run_rank_threads(const GroupOptions& options,
                                             const std::function<Status(Endpoint&)>& body);

}  // namespace wideep::transport
