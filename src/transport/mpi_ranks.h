// SPDX-License-Identifier: Apache-2.0
//
// Ranks that mpirun or srun has started, with MPI between them. mpi_ranks_with_mpi.cc is compiled
// where CMake finds MPI, mpi_ranks_without_mpi.cc elsewhere; only the command is linked with them.
//
// Ranks are renumbered so that those of a node are consecutive; rank 0 stays rank 0. Ranks are on
// one node where they share the kernel, the network namespace and the value of WIDEEP_NODE, with
// which tests make one machine look like several.
//
// Thread safety: the thread that calls start_mpi_ranks makes all calls.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/started_ranks.h"

namespace wideep::transport {

// What the launcher has put into the environment, known before MPI is started.
struct Launch {
  const char* launcher = "";
  int rank = 0;
  int num_ranks = 1;
};
// Empty where the process was started by hand, or as the only one.
std::optional<Launch> find_launch();

// Collective: every started process calls it. REQUIRES: the caller has started no thread.
// Errors (invalid input): this build has no MPI, or MPI does not see the ranks that were started.
Result<std::unique_ptr<StartedRanks>> start_mpi_ranks(const Launch& launch);

// Ends the process, and never returns. Waits for all other ranks, unless the ranks are broken.
[[noreturn]] void end_mpi_ranks(std::unique_ptr<StartedRanks> ranks, int exit_code);

}  // namespace wideep::transport
