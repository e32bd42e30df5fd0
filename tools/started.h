// SPDX-License-Identifier: Apache-2.0
//
// The command as one of the processes that mpirun or srun has started.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/mpi_ranks.h"
#include "group/started_ranks.h"
#include "wideep/status.h"

namespace wideep::tools {

class Started {
 public:
  // Connects the ranks if mpirun or srun started this process, as `launch` says, and `command` (the
  // program's arguments) is generate or serve, without --nnodes. An error of
  // transport::start_mpi_ranks is kept in status().
  static Started find(const std::vector<std::string>& command,
                      const std::optional<transport::Launch>& launch);

  const Status& status() const { return status_; }
  transport::StartedRanks* ranks() const { return ranks_.get(); }
  // Whether this process prints results and messages: rank 0 does, and every process without MPI.
  bool prints() const { return prints_; }
  // Collective over the ranks: `mine` is this rank's result of reading its options. Returns ok if
  // it is ok on all ranks, else an error. Without MPI returns `mine`.
  Status agree_on(const Status& mine) const;
  // Logs the error of `status`, if any, and ends this process with its exit code; with MPI ends all
  // ranks that can still be reached. Rank 0 logs; if the ranks have lost each other, the first rank
  // of each node logs too.
  [[noreturn]] void end(const Status& status);

 private:
  std::unique_ptr<transport::StartedRanks> ranks_;
  Status status_;
  bool prints_ = true;
};

}  // namespace wideep::tools
