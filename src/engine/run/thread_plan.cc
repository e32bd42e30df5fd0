// SPDX-License-Identifier: Apache-2.0
#include "run/thread_plan.h"

#include <algorithm>

namespace wideep::run {
namespace {

// The first processor we may use of each core.
std::vector<int> one_processor_per_core(const base::Machine& machine) {
  std::vector<int> processors;
  for (const std::vector<int>& core : machine.topology.cores) {
    const auto found = std::find_first_of(core.begin(), core.end(), machine.allowed.begin(),
                                          machine.allowed.end());
    if (found != core.end()) processors.push_back(*found);
  }
  return processors;
}

}  // namespace

base::ThreadPoolOptions ThreadPlan::of_rank(int rank) const {
  return {threads_per_rank, spin,
          processors.empty() ? std::vector<int>() : processors[static_cast<size_t>(rank)]};
}

ThreadPlan plan_threads(const base::Machine& machine, int num_ranks, int threads_per_rank) {
  const int cores = machine.usable_cores();
  ThreadPlan plan;
  plan.threads_per_rank = threads_per_rank > 0 ? threads_per_rank : std::max(1, cores / num_ranks);
  const int threads = num_ranks * plan.threads_per_rank;
  plan.spin = threads <= cores;
  // Threads are bound only if they use exactly all cores (see ThreadPlan::processors).
  const std::vector<int> processors = one_processor_per_core(machine);
  if (threads != cores || processors.size() != static_cast<size_t>(cores)) return plan;
  for (auto at = processors.begin(); at != processors.end(); at += plan.threads_per_rank) {
    plan.processors.emplace_back(at, at + plan.threads_per_rank);
  }
  return plan;
}

}  // namespace wideep::run
