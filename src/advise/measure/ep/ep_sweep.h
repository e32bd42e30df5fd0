// SPDX-License-Identifier: Apache-2.0
//
// The processor time of a rank for dispatch and combine in groups of different sizes, at the same
// number of tokens per rank. Not wall time, because many ranks may share few cores.
//
// Thread safety: as ep_run.h.
#pragma once

#include <vector>

#include "measure/ep/ep_run.h"

namespace wideep::measure {

struct EpSweepRow {
  int num_ranks = 0;
  Figure cpu;                   // microseconds per rank and round, over the repeats
  double wait_cpu = 0.0;        // the part of cpu spent in waits
  double copy_cpu = 0.0;        // the same for plain copies of as many bytes
  double bytes_per_rank = 0.0;  // sent and pulled in a round
  // cpu and copy_cpu / those of the first group with at least top_k ranks.
  std::optional<double> relative;
  std::optional<double> relative_copy;
};

// Measures one group after the other, options.repeats times; options.group.num_ranks is ignored.
// REQUIRES: one test besides the empty round. Errors: those of run_ep_bench; the options of all
// groups are checked before the first is measured.
Result<std::vector<EpSweepRow>> run_ep_sweep(const EpBenchOptions& options,
                                             const std::vector<int>& ranks,
                                             const std::function<void()>& on_group);

}  // namespace wideep::measure
