// SPDX-License-Identifier: Apache-2.0
//
// Distributes the cores of this machine to the threads of all its ranks.
//
// Thread safety: plain values; pure function.
#pragma once

#include <vector>

#include "base/machine.h"
#include "base/thread_pool.h"

namespace wideep::run {

struct ThreadPlan {
  int threads_per_rank = 1;
  // Whether waiting threads may spin: every thread has a core to itself.
  bool spin = false;
  // [rank][thread] processors that threads are bound to, if the ranks use all cores. Else empty:
  // bound threads could not move away from other programs that run on the same processors.
  std::vector<std::vector<int>> processors;

  base::ThreadPoolOptions of_rank(int rank) const;
};

// threads_per_rank: 0 for cores / ranks, at least 1.
ThreadPlan plan_threads(const base::Machine& machine, int num_ranks, int threads_per_rank);

}  // namespace wideep::run
