// SPDX-License-Identifier: Apache-2.0
//
// Ranks that mpirun or srun has started, connected by MPI. What calls MPI is libwideep_mpi.so
// (mpi_module.cc), which is built where CMake finds MPI and loaded here, when a launcher has started
// the command: from beside the command, or from lib/wideep beside its folder.
//
// MPI's ranks are renumbered so that the ranks of a node are consecutive; rank 0 stays rank 0. Two
// ranks are on one node if they share the kernel, the network namespace and the value of
// WIDEEP_NODE. (Tests set WIDEEP_NODE to simulate several nodes on one machine.)
//
// Thread safety: one thread makes all calls.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "group/started_ranks.h"

namespace wideep::transport {

// The launcher's environment variables, read before MPI is initialised.
struct Launch {
  const char* launcher = "";
  int rank = 0;
  int num_ranks = 1;
  // Of the ranks that belong together, where a launch is of several groups: only those of the same
  // number are connected, and count.
  int group = 0;
};
// Empty if no launcher started this process, or if it started only this one.
std::optional<Launch> find_launch();

// Initialises MPI and connects the ranks. Collective: every started process calls it. Ends the
// process if this takes longer than 120 s. REQUIRES: this process has only one thread.
// Errors (invalid input): libwideep_mpi.so or MPI is not there, or of another version; MPI's number
// of ranks differs from the launcher's.
Result<std::unique_ptr<StartedRanks>> start_mpi_ranks(const Launch& launch);

// Ends the process with exit_code. First waits for all other ranks (MPI_Finalize), at most 10 s,
// and not if ranks->is_broken().
[[noreturn]] void end_mpi_ranks(std::unique_ptr<StartedRanks> ranks, int exit_code);

}  // namespace wideep::transport
