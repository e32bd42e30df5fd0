// SPDX-License-Identifier: Apache-2.0
//
// How the threads of all ranks of this machine share its cores.
//
// Thread safety: plain values; pure function.
#pragma once

#include <vector>

#include "base/machine.h"
#include "base/thread_pool.h"

namespace wideep::run {

struct ThreadPlan {
  int threads_per_rank = 1;
  // Every thread has a core to itself: it may spin.
  bool spin = false;
  // [rank][thread] processors, where the ranks fill the machine; else empty: other programs may be
  // bound to the same processors, which the operating system would then not even out.
  std::vector<std::vector<int>> processors;

  base::ThreadPoolOptions of_rank(int rank) const;
};

// threads_per_rank: 0 for cores / ranks, at least 1.
ThreadPlan plan_threads(const base::Machine& machine, int num_ranks, int threads_per_rank);

}  // namespace wideep::run
