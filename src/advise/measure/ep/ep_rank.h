// SPDX-License-Identifier: Apache-2.0
//
// One rank process of `wideep bench ep`: it runs the blocks of all tests in turn. Rank 0 also
// chooses the number of rounds of a block, measures MPI's blocks while the other ranks sleep, and
// reports to the parent.
#pragma once

#include <cstring>
#include <string_view>

#include "group/rank_processes.h"
#include "measure/ep/ep_options.h"
#include "measure/ep/ep_round.h"
#include "measure/ep/mpi_baseline.h"

namespace wideep::measure {

// The message that rank 0 sends to the parent after each block, as plain bytes.
struct EpSample {
  enum Kind : int { kRounds, kCopy, kPingPong, kMpi };  // kMpi + MpiRows

  int test = 0;  // index into EpBenchOptions::tests
  int kind = kRounds;
  EpBlock block;  // kPingPong: only `mean`; kMpi: `mean` and `round`; kCopy: `mean` and `cpu`

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
  std::vector<int> processors;  // the processor of each rank
  std::string mpi_program;      // empty: no MPI
};

EpRoundSetup round_setup(const EpRankSetup& setup, const EpTest& test);

Status run_ep_rank(const EpRankSetup& setup, transport::Endpoint& endpoint,
                   const transport::Messenger& pipe);

}  // namespace wideep::measure
