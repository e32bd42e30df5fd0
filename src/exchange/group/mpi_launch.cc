// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "group/mpi_ranks.h"

namespace wideep::transport {

std::optional<Launch> find_launch() {
  struct Names {
    const char* launcher;
    const char* size;
    const char* rank;
  };
  // SLURM_STEP_NUM_TASKS is set by srun only. SLURM_NTASKS would also be set in a batch script that
  // starts one process by itself.
  constexpr Names kNames[] = {{"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                              {"the launcher", "PMI_SIZE", "PMI_RANK"},
                              {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
  for (const Names& names : kNames) {
    const char* size = std::getenv(names.size);
    const char* rank = std::getenv(names.rank);
    if (size == nullptr || rank == nullptr) continue;
    const Launch launch{names.launcher, std::atoi(rank), std::atoi(size)};
    if (launch.num_ranks > 1) return launch;
  }
  return {};
}

}  // namespace wideep::transport
