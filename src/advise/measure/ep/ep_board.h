// SPDX-License-Identifier: Apache-2.0
//
// Shared memory in which the ranks of `wideep bench ep` publish their times, which rank 0 reads.
//
// Thread safety: each rank writes only its own block; rank 0 reads all blocks after a barrier.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "base/shared_bytes.h"
#include "measure/ep/ep_round.h"

namespace wideep::measure {

// The times of one rank in one block of rounds. A block has as many rounds as fit into its
// duration, at most kMaxRounds.
struct EpRankBlock {
  static constexpr int kMaxRounds = 2048;

  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t cpu_ns = 0;   // processor time of the rounds
  int64_t wait_ns = 0;  // the part of cpu_ns spent in waits
  int64_t bytes = 0;    // sent and pulled in one round
  EpPhases rounds[kMaxRounds];
};

class EpBoard {
 public:
  // Call before the ranks are forked. Errors (failed): the kernel refuses the memory.
  static Result<EpBoard> create(int num_ranks);

  EpRankBlock& block(int rank) const;
  // Number of rounds of the next block: rank 0 writes it, the others read it after a barrier.
  int& num_rounds() const;
  // The flags of the ping-pong between ranks 0 and 1, each on a cache line of its own. Rank `rank`
  // writes its own.
  std::atomic<uint32_t>& ping_pong_flag(int rank) const;

 private:
  base::SharedBytes bytes_;
};

// A block of the whole group, in microseconds. If rounds are not timed one by one, `round` is their
// mean and the phases are 0.
struct EpBlock {
  double round = 0.0;  // median over rounds of the slowest rank's time
  double mean = 0.0;   // duration of the block / rounds
  double prepare = 0.0, dispatch = 0.0, combine = 0.0;  // medians of the slowest rank, as `round`
  double cpu = 0.0;                                     // per rank and round, mean over ranks
  double wait_cpu = 0.0;                                // the part of cpu spent in waits
  double bytes = 0.0;                                   // of all ranks, per round
  int num_rounds = 0;
};
EpBlock block_of_group(const EpBoard& board, int num_ranks);

double median_of(std::vector<double> values);  // REQUIRES: not empty

}  // namespace wideep::measure
