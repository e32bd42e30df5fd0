// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of `wideep bench ep` write for rank 0 to read, in memory that all of them see.
//
// Thread safety: a rank writes what is its own, rank 0 reads it after all have met.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/shared_bytes.h"
#include "measure/ep_round.h"

namespace wideep::measure {

// One block of rounds of one rank: as many as fit its time, at most kMostRounds.
struct EpRankBlock {
  static constexpr int kMostRounds = 2048;

  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t cpu_ns = 0;   // processor time of the rounds
  int64_t wait_ns = 0;  // of it, in waits
  int64_t bytes = 0;    // sent and pulled in a round
  EpPhases rounds[kMostRounds];
};

class EpBoard {
 public:
  // Made before the ranks are forked. Errors (failed): the kernel refuses the memory.
  static Result<EpBoard> create(int num_ranks);

  EpRankBlock& block(int rank) const;
  // How many rounds the next block has: rank 0 says so, and all meet.
  int& num_rounds() const;
  // Two ranks throw it to and fro, each on a cache line of its own.
  std::atomic<uint32_t>& ball(int side) const;

 private:
  base::SharedBytes bytes_;
};

// A block of the whole group, in microseconds. Where rounds are not timed each, `round` is the
// mean, and there are no phases.
struct EpBlock {
  double round = 0.0;  // median over rounds of the slowest rank's time
  double mean = 0.0;   // of the whole block
  double prepare = 0.0, dispatch = 0.0, combine = 0.0;  // as `round`
  double cpu = 0.0;                                     // per rank and round, mean over ranks
  double wait_cpu = 0.0;                                // of it, in waits
  double bytes = 0.0;                                   // of all ranks, per round
  int num_rounds = 0;
};
EpBlock block_of_group(const EpBoard& board, int num_ranks);

double median_of(std::vector<double> values);  // REQUIRES: not empty

}  // namespace wideep::measure
