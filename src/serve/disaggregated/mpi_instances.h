// SPDX-License-Identifier: Apache-2.0
//
// Which of the servers of a disagg_config.yaml a rank of mpirun or srun belongs to. Ranks are dealt
// out in the order of the file, context_servers first, tp·pp·cp to each server; a server in both
// sections is there once.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "disaggregated/disagg_config.h"
#include "wideep/status.h"

namespace wideep::disaggregated {

struct MpiInstance {
  server::RouterMember server;
  std::string part;  // of the file, that its ranks read: "context_servers"
  int index = 0;     // among all
  int num_ranks = 0;
};

std::vector<MpiInstance> mpi_instances(const DisaggConfig& config);

// Errors (invalid input): the file has no servers with urls; num_ranks, all that were started, are
// not as many as its servers have.
Result<MpiInstance> instance_of_rank(const DisaggConfig& config, int rank, int num_ranks);

}  // namespace wideep::disaggregated
