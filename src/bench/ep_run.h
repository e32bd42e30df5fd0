// SPDX-License-Identifier: Apache-2.0
//
// `wideep bench ep`: dispatch and combine between rank processes, beside what limits them and,
// where asked, beside MPI.
//
// A virtual machine changes from second to second, so whatever is compared is measured in turn in
// one run: a block of wideep's rounds, one of plain copies of as many bytes, one of each kind of
// MPI's, and again. Ratios and shares are medians over those turns. Ranks stay on a processor each,
// MPI's on the same ones.
//
// Thread safety: one thread; it forks the ranks, so the caller has started no other.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "bench/bench_report.h"
#include "bench/ep_board.h"
#include "bench/mpi_baseline.h"

namespace wideep::bench {

struct EpBenchOptions {
  EpGroup group;
  int hidden = 7168;                                       // elements of a row
  kernels::RowFormat rows = kernels::RowFormat::kBf16;     // dispatched
  kernels::RowFormat results = kernels::RowFormat::kBf16;  // combined
  std::vector<int> tokens = {1, 16};  // of each rank: a test each; an empty round comes first
  bool with_copies = true;
  bool with_mpi = false;
  int repeats = 5;
  std::chrono::microseconds block{50'000};
  std::chrono::milliseconds timeout{120'000};
};
// Errors (invalid input): what cannot be measured, with the numbers.
Status check_options(const EpBenchOptions& options);

// Microseconds where nothing else is said.
struct EpTestReport {
  int tokens = 0;
  int num_rounds = 0;  // of the last block
  Figure round;        // median over rounds of the slowest rank's time
  Figure mean;         // a block's time per round
  double prepare = 0.0, dispatch = 0.0, combine = 0.0;
  double cpu = 0.0;       // processor time per rank and round
  double wait_cpu = 0.0;  // of it, in waits
  double bytes = 0.0;     // of all ranks, sent and pulled in a round
  Figure copy;            // as many bytes without a protocol; 0 where not measured
  Figure share;           // copy / round
  // With MPI, by MpiRows.
  struct Peer {
    Figure round;
    Figure ratio;  // its time / wideep's
  };
  std::array<std::optional<Peer>, std::size(kMpiRows)> mpi;
};

struct EpBenchReport {
  std::string isa;
  std::vector<int> processors;         // of each rank
  std::optional<Figure> ping_pong_ns;  // there and back; none where ranks 0 and 1 share a processor
  std::vector<EpTestReport> tests;     // the empty round, then as options.tokens
};

// on_block is called after each of num_blocks(options) blocks.
// Errors: those of check_options; failed: a rank fails; mpirun does.
Result<EpBenchReport> run_ep_bench(const EpBenchOptions& options,
                                   const std::function<void()>& on_block);
int num_blocks(const EpBenchOptions& options);

}  // namespace wideep::bench
