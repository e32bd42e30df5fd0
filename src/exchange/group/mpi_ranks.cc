// SPDX-License-Identifier: Apache-2.0
#ifndef WIDEEP_WITH_MPI
#include <fmt/format.h>

#include <cstdlib>

#include "group/mpi_ranks.h"

namespace wideep::transport {

Result<std::unique_ptr<StartedRanks>> start_mpi_ranks(const Launch& launch) {
  return invalid_input(fmt::format(
      "{} has started {} processes, but this wideep is built without MPI: install libopenmpi-dev "
      "and build again, or start one process with --ranks {}",
      launch.launcher, launch.num_ranks, launch.num_ranks));
}

void end_mpi_ranks(std::unique_ptr<StartedRanks>, int exit_code) { std::_Exit(exit_code); }

}  // namespace wideep::transport

#endif  // WIDEEP_WITH_MPI
