// SPDX-License-Identifier: Apache-2.0
//
// Ranks as processes on one GPU, which share their segments in one way or another. The parent
// starts itself once per rank (CUDA does not survive a fork); each rank plays the same case, and
// compares its own results with the CPU path.
//
// Thread safety: one thread.
#pragma once

#include <optional>
#include <string>

#include "cuda/exchange_case_testing.h"
#include "cuda/shared_mapping.h"

namespace wideep::cuda {

// In a process that was started as a rank: plays the case and returns its exit code. Otherwise
// null.
std::optional<int> run_as_rank_process();

// Starts num_ranks processes and waits for them. Errors (failed): ranks that did not end well, or
// not within two minutes; those are killed.
Status run_rank_processes(int num_ranks, SharingWays ways);

}  // namespace wideep::cuda
