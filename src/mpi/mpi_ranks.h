// SPDX-License-Identifier: Apache-2.0
//
// Ranks that mpirun or srun has started, with MPI between them. Everything of MPI is behind this
// header; a build without it has another body of the same functions.
//
// Ranks are renumbered so that those of a node stand in a row; rank 0 stays rank 0. A node is who
// shares kernel, network namespace and, for tests, the variable WIDEEP_NODE: with different values
// ranks of one machine count as ranks of several.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/started_ranks.h"

namespace wideep::mpi {

// What a launcher says in the environment, before MPI is asked.
struct Launch {
  const char* launcher = "";
  int rank = 0;
  int num_ranks = 1;
};
// Nothing: started by hand, or as the only one.
std::optional<Launch> find_launch();

// Collective of all that were started. REQUIRES: the caller has started no thread.
// Errors (invalid input): this build has no MPI, or MPI does not see the ranks that were started.
Result<std::unique_ptr<transport::StartedRanks>> start_ranks(const Launch& launch);

// The last that a rank does; never returns. Waits for all others, unless they are broken off.
[[noreturn]] void end_ranks(std::unique_ptr<transport::StartedRanks> ranks, int exit_code);

}  // namespace wideep::mpi
