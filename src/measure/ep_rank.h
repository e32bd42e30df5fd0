// SPDX-License-Identifier: Apache-2.0
//
// One rank process of `wideep bench ep`: the blocks of all tests in turn. Rank 0 also decides how
// many rounds a block has, asks MPI for its blocks meanwhile the others sleep, and tells the
// parent.
#pragma once

#include <cstring>
#include <string_view>

#include "measure/ep_options.h"
#include "measure/ep_round.h"
#include "measure/mpi_baseline.h"
#include "transport/rank_processes.h"

namespace wideep::measure {

// What rank 0 tells after each block.
struct EpSample {
  enum Kind : int { kRounds, kCopy, kPingPong, kMpi };  // kMpi + MpiRows

  int test = 0;  // of EpBenchOptions::tests
  int kind = kRounds;
  EpBlock block;  // kPingPong: `mean` alone, kMpi: `mean` and `round`, kCopy: those that say times

  std::string_view bytes() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
  static EpSample of(std::string_view bytes) {
    EpSample sample;
    std::memcpy(&sample, bytes.data(), sizeof(sample));
    return sample;
  }
};

struct EpRankSetup {
  const EpBenchOptions& options;
  const EpBoard& board;
  const kernels::Kernels* kernels;
  std::vector<int> processors;  // of each rank
  std::string mpi_program;      // empty: no MPI
};

EpRoundSetup round_setup(const EpRankSetup& setup, const EpTest& test);

Status run_ep_rank(const EpRankSetup& setup, transport::Endpoint& endpoint,
                   const transport::Messenger& pipe);

}  // namespace wideep::measure
