// SPDX-License-Identifier: Apache-2.0
//
// What libwideep_mpi.so gives to the command, which loads it when mpirun or srun has started it
// (mpi_ranks.cc): the command itself is not linked with MPI and runs where there is none. Both come
// from one build, which `version` says; they pass C++ objects to each other.
//
// Thread safety: one thread makes all calls.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "transport/link.h"
#include "wideep/status.h"

namespace wideep::transport {

// The ranks as MPI has connected them, numbered anew: those of a node are consecutive.
struct MpiConnection {
  std::unique_ptr<Link> control;
  std::unique_ptr<Link> data;
  std::vector<int> nodes;  // by rank
  int rank = 0;
};

// What the module asks of the command, which writes the log.
struct MpiHost {
  // Logs that `what` has not returned within the limit.
  void (*log_late)(const char* what, std::chrono::seconds limit) = nullptr;
};

struct MpiModule {
  const char* version;  // WIDEEP_VERSION
  struct Launched {
    const char* launcher = "";  // these as in Launch (mpi_ranks.h)
    int num_ranks = 1;
    int group = 0;
  };
  // Initialises MPI and connects the ranks of the group. Collective, for all ranks. Ends the process
  // if this takes longer than 120 s. Errors (invalid input): MPI's number of ranks is another.
  Status (*connect)(const Launched& launched, const MpiHost& host, MpiConnection* connection);
  // Waits for all other ranks; ends the process with exit_code if they take longer than 10 s.
  void (*finalize)(int exit_code);
};

// The one function that the library exports, by the name kMpiModuleFunction.
using MpiModuleFunction = const MpiModule*();
constexpr const char* kMpiModuleFunction = "wideep_mpi_module";

}  // namespace wideep::transport
