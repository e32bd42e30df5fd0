// SPDX-License-Identifier: Apache-2.0
//
// The same rounds by MPI, to compare with: a program of its own (bench/mpi_all_to_all.cc), which
// this starts with mpirun, and which sleeps except when it is asked to measure.
//
// Thread safety: one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "measure/ep_routing.h"
#include "measure/ep_sums.h"
#include "wideep/status.h"

namespace wideep::measure {

// What travels.
enum class MpiRows {
  kPerExpert,    // a row for each (token, expert), there and back
  kOncePerRank,  // there one for each (token, rank), back one for each (token, expert)
  kPerRank,      // one for each (token, rank), there and back
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

// The program beside wideep's own. Errors (invalid input): this build has none, or there is no
// mpirun.
Result<std::string> find_mpi_baseline();

class MpiBaseline {
 public:
  MpiBaseline() = default;
  MpiBaseline(const MpiBaseline&) = delete;
  MpiBaseline& operator=(const MpiBaseline&) = delete;
  ~MpiBaseline();  // ends it

  // Errors (failed): mpirun cannot be started, or ends.
  Status start(const std::string& program, const MpiBaselineOptions& options);

  struct Times {         // microseconds
    double round = 0.0;  // median over rounds of the slowest rank's time
    double mean = 0.0;   // of all rounds
  };
  // Rounds for about `duration`. Errors (failed): the program has ended.
  Result<Times> measure(int num_tokens, MpiRows rows, std::chrono::microseconds duration);

 private:
  Result<std::string> read_answer();

  pid_t pid_ = -1;
  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
};

}  // namespace wideep::measure
