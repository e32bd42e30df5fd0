// SPDX-License-Identifier: Apache-2.0
//
// The same rounds with MPI, to compare with. This class starts a separate program
// (programs/mpi_all_to_all.cc) with mpirun; between measurements its ranks sleep.
//
// Thread safety: one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "measure/ep/ep_routing.h"
#include "measure/ep/ep_sums.h"
#include "wideep/status.h"

namespace wideep::measure {

// Which rows MPI sends.
enum class MpiRows {
  kPerExpert,    // one row per (token, expert) in dispatch and in combine
  kOncePerRank,  // one per (token, rank) in dispatch, one per (token, expert) in combine
  kPerRank,      // one row per (token, rank) in dispatch and in combine
};
inline constexpr MpiRows kMpiRows[] = {MpiRows::kPerExpert, MpiRows::kOncePerRank,
                                       MpiRows::kPerRank};
std::string_view mpi_rows_name(MpiRows rows);

struct MpiBaselineOptions {
  EpGroup group;
  int hidden = 7168;
  EpSum sum = EpSum::kRow;
  std::vector<int> processors;  // of each rank
};

// Path of the program, which lies next to wideep's own. Errors (invalid input): this build has
// none, or there is no mpirun.
Result<std::string> find_mpi_baseline();

class MpiBaseline {
 public:
  MpiBaseline() = default;
  MpiBaseline(const MpiBaseline&) = delete;
  MpiBaseline& operator=(const MpiBaseline&) = delete;
  ~MpiBaseline();  // ends the program

  // Errors (failed): mpirun cannot be started.
  Status start(const std::string& program, const MpiBaselineOptions& options);

  struct Times {         // microseconds
    double round = 0.0;  // median over rounds of the slowest rank's time
    double mean = 0.0;   // per round, over all rounds
  };
  // Measures rounds for about `duration`. Errors (failed): the program has ended.
  Result<Times> measure(int num_tokens, MpiRows rows, std::chrono::microseconds duration);

 private:
  Result<std::string> read_answer();

  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace wideep::measure
