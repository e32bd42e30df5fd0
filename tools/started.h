// SPDX-License-Identifier: Apache-2.0
//
// The command as one of several processes that mpirun or srun has started.
#pragma once

#include <string>
#include <vector>

#include "transport/started_ranks.h"
#include "wideep/status.h"

namespace wideep::tools {

class Started {
 public:
  // Connects the ranks where `command`, the program's arguments, is one that runs on several.
  // Errors as transport::start_mpi_ranks; only the first process says them.
  static Started find(const std::vector<std::string>& command);

  const Status& status() const { return status_; }
  transport::StartedRanks* ranks() const { return ranks_.get(); }
  // Whether results and messages of this process are for people: rank 0's are.
  bool speaks() const { return speaks_; }
  // What the command has read of its options: ok where it is on all ranks.
  Status agree_on(const Status& mine) const;
  // Says why the command has failed, where this process speaks (after a failure the first of each
  // node does), and ends it: all ranks alike, if they can still be reached.
  [[noreturn]] void end(const Status& status);

 private:
  std::unique_ptr<transport::StartedRanks> ranks_;
  Status status_;
  bool speaks_ = true;
};

}  // namespace wideep::tools
