// SPDX-License-Identifier: Apache-2.0
//
// wideep disaggregated_mpi_worker: all servers of a disagg_config.yaml, started by one mpirun or
// srun. Each process becomes a rank of `wideep serve` with the part of the file that is its
// server's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "group/mpi_ranks.h"
#include "wideep/status.h"

namespace wideep::tools {

// If the arguments are those of disaggregated_mpi_worker, without --help, makes them those of
// `serve`, and the launch one of the ranks of this process's server alone; nullopt: of one rank,
// where every server has one. Errors (invalid input): the options; the file; the number of ranks.
Status become_mpi_worker(std::vector<std::string>* arguments,
                         std::optional<transport::Launch>* launch);

}  // namespace wideep::tools
