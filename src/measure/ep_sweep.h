// SPDX-License-Identifier: Apache-2.0
//
// What a rank pays for dispatch and combine in groups of different sizes, at the same number of
// tokens per rank: processor time, for many ranks share few cores here.
//
// Thread safety: as ep_run.h.
#pragma once

#include <vector>

#include "measure/ep_run.h"

namespace wideep::measure {

struct EpSweepRow {
  int num_ranks = 0;
  Figure cpu;                   // microseconds per rank and round, of the repeats
  double wait_cpu = 0.0;        // of it, in waits
  double copy_cpu = 0.0;        // of plain copies of as many bytes
  double bytes_per_rank = 0.0;  // sent and pulled in a round
  // Both / those of the first group with at least top_k ranks.
  std::optional<double> relative;
  std::optional<double> relative_copy;
};

// A group after the other, and again. options.group.num_ranks is not looked at. REQUIRES:
// one test besides the empty round. Errors: those of run_ep_bench, for any of the groups before the
// first is measured.
Result<std::vector<EpSweepRow>> run_ep_sweep(const EpBenchOptions& options,
                                             const std::vector<int>& ranks,
                                             const std::function<void()>& on_group);

}  // namespace wideep::measure
